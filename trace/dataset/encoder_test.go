package dataset_test

import (
	"bytes"
	"runtime"
	"testing"

	"github.com/apache/arrow-go/v18/parquet/compress"

	"github.com/memprof/memprof/trace/tracetest/assert"
)

// Pages of a level share an encoder: the Parquet library would allocate megabytes for each, however short it is.
func TestPagesShareEncoders(t *testing.T) {
	const pages, most = 50, 1 << 20
	codec, err := compress.GetCodec(compress.Codecs.Zstd)
	assert.NoError(t, err)
	page := bytes.Repeat([]byte("page "), 40)
	for _, level := range []int{compress.DefaultCompressionLevel, 1, 3, 9, 19} {
		first := codec.EncodeLevel(nil, page, level)
		for range runtime.GOMAXPROCS(0) { // an encoder works for as many goroutines, each in memory of its own
			codec.EncodeLevel(nil, page, level)
		}
		before := allocated()
		for range pages {
			again := codec.EncodeLevel(nil, page, level)
			assert.Must(t, bytes.Equal(again, first), "level %d: the same page becomes %x, then %x", level, first, again)
		}
		took := allocated() - before
		assert.That(t, took <= most, "level %d: %d bytes were allocated for %d pages of %d, want at most %d", level, took, pages, len(page), most)
		got := codec.Decode(make([]byte, len(page)), first)
		assert.That(t, bytes.Equal(got, page), "level %d: %q, want %q", level, got, page)
	}
}
