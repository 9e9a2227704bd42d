package columns

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"github.com/apache/arrow-go/v18/parquet"
	"github.com/klauspost/compress/zstd"

	"github.com/memprof/memprof/trace/tracetest/assert"
)

// aPage is a data page of plain numbers with its header, in the compact protocol of Thrift.
func aPage(t *testing.T, numbers ...int64) []byte {
	t.Helper()
	var data []byte
	for _, n := range numbers {
		data = binary.LittleEndian.AppendUint64(data, uint64(n))
	}
	encoder, err := zstd.NewWriter(nil)
	assert.NoError(t, err)
	packed := encoder.EncodeAll(data, nil)
	head := binary.AppendVarint([]byte{1<<4 | thriftI32}, pageData)
	head = binary.AppendVarint(append(head, 1<<4|thriftI32), int64(len(data)))
	head = binary.AppendVarint(append(head, 1<<4|thriftI32), int64(len(packed)))
	head = binary.AppendVarint(append(head, 2<<4|thriftStruct, 1<<4|thriftI32), int64(len(numbers)))
	head = binary.AppendVarint(append(head, 1<<4|thriftI32), int64(parquet.Encodings.Plain))
	return append(append(head, thriftStop, thriftStop), packed...)
}

// A page that ends behind its chunk is damaged, though its bytes are in the file: they are another column's.
func TestPageBeyondChunk(t *testing.T) {
	page := aPage(t, 7, 8)
	file := append(slices.Clone(page), make([]byte, 100)...)
	column := Column{Name: "addr", Type: parquet.Types.Int64, Encoding: Plain}
	for short := range len(page) {
		var got [2]int64
		var numbers Numbers[int64]
		numbers.Chunk.Open(bytes.NewReader(file), &column, 0, int64(len(page)-short), 2)
		err := numbers.Read(got[:])
		switch {
		case short == 0 && (err != nil || got != [2]int64{7, 8}):
			t.Errorf("%v, %v", got, err)
		case short > 0 && !errors.Is(err, errPage):
			t.Errorf("a chunk that is %d bytes short gives %v, %v, want a damaged page", short, got, err)
		}
	}
}
