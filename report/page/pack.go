package page

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"strconv"

	"github.com/memprof/memprof/report/plain"
)

// pack is the data of a page: a JSON text, followed by columns of integers that it refers to. All is
// compressed with zlib, which browsers decompress (DecompressionStream "deflate").
//
//	bytes 0-3   length of the JSON text, little-endian
//	            the JSON text; {"$":[start,count,plain]} stands for a column
//	            the columns, start counted from here
//
// A column is a sequence of varints: 7 bits per byte, the lowest first, with the top bit set in all bytes
// but the last. Each is the difference from the value before, the first from 0, or in a plain column the value itself;
// zigzag-coded so that small negative numbers are short too.
type pack struct{ columns []byte }

// packed refers to a column.
type packed struct {
	start, count int
	plain        bool
}

func (c packed) MarshalJSON() ([]byte, error) {
	text := `{"$":[` + strconv.Itoa(c.start) + "," + strconv.Itoa(c.count)
	if c.plain {
		text += ",1"
	}
	return []byte(text + "]}"), nil
}

// plain appends a column whose values repeat in sequences, which compress better than their differences.
func (p *pack) plain(values []int64) packed {
	c := packed{len(p.columns), len(values), true}
	for _, v := range values {
		p.columns = binary.AppendVarint(p.columns, v)
	}
	return c
}

// column appends a column and returns its reference.
func (p *pack) column(values []int64) packed {
	c := packed{start: len(p.columns), count: len(values)}
	last := int64(0)
	for _, v := range values {
		p.columns = binary.AppendVarint(p.columns, v-last)
		last = v
	}
	return c
}

// columnOf appends a column with one number of each thing.
func columnOf[T any](p *pack, things []T, of func(*T) int64) packed {
	values := make([]int64, len(things))
	for i := range things {
		values[i] = of(&things[i])
	}
	return p.column(values)
}

// finish returns the data for the page, before base64. The description must be a value that JSON can hold.
func (p *pack) finish(description any) []byte {
	text := mustJSON(description)
	var out bytes.Buffer
	z, _ := zlib.NewWriterLevel(&out, zlib.BestCompression) // fails for levels that do not exist
	// Writing to a buffer does not fail.
	_, _ = z.Write(binary.LittleEndian.AppendUint32(nil, uint32(len(text))))
	_, _ = z.Write(text)
	_, _ = z.Write(p.columns)
	_ = z.Close()
	return out.Bytes()
}

// mustJSON is the JSON of a value of this package's types, whose numbers are finite.
func mustJSON(value any) []byte {
	text, err := plain.JSON(value)
	if err != nil {
		panic("report: " + err.Error())
	}
	return text
}
