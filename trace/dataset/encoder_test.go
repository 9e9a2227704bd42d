package dataset_test

import (
	"bytes"
	"runtime"
	"testing"

	"github.com/apache/arrow-go/v18/parquet/compress"
)

// Pages of a level share an encoder: the Parquet library would allocate megabytes for each, however short it is.
func TestPagesShareEncoders(t *testing.T) {
	const pages, most = 50, 1 << 20
	codec, err := compress.GetCodec(compress.Codecs.Zstd)
	if err != nil {
		t.Fatal(err)
	}
	page := bytes.Repeat([]byte("page "), 40)
	for _, level := range []int{compress.DefaultCompressionLevel, 1, 3, 9, 19} {
		first := codec.EncodeLevel(nil, page, level)
		for range runtime.GOMAXPROCS(0) { // an encoder works for as many goroutines, each in memory of its own
			codec.EncodeLevel(nil, page, level)
		}
		before := allocated()
		for range pages {
			if again := codec.EncodeLevel(nil, page, level); !bytes.Equal(again, first) {
				t.Fatalf("level %d: the same page becomes %x, then %x", level, first, again)
			}
		}
		if took := allocated() - before; took > most {
			t.Errorf("level %d: %d bytes were allocated for %d pages of %d, want at most %d", level, took, pages, len(page), most)
		}
		if got := codec.Decode(make([]byte, len(page)), first); !bytes.Equal(got, page) {
			t.Errorf("level %d: %q, want %q", level, got, page)
		}
	}
}
