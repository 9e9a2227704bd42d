package page

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"strconv"

	"github.com/memprof/memprof/report/plain"
)

// pack is the data of a page: a JSON text, and behind it columns of integers that it refers to.
// The whole is compressed with zlib, which browsers can undo (DecompressionStream "deflate").
//
//	bytes 0-3   length of the JSON text, little-endian
//	            the JSON text; {"$":[start,count]} stands for a column
//	            the columns, start counted from here
//
// A column is a run of varints (7 bits a byte, the lowest first, the top bit on all but the
// last): the difference from the value before, the first one from 0, zigzag-coded so that small
// negative differences are short too.
type pack struct{ columns []byte }

// packed refers to a column.
type packed struct{ start, count int }

func (c packed) MarshalJSON() ([]byte, error) {
	return []byte(`{"$":[` + strconv.Itoa(c.start) + "," + strconv.Itoa(c.count) + "]}"), nil
}

// column adds one.
func (p *pack) column(values []int64) packed {
	c := packed{len(p.columns), len(values)}
	last := int64(0)
	for _, v := range values {
		p.columns = binary.AppendVarint(p.columns, v-last)
		last = v
	}
	return c
}

// columnOf adds the column of one number of each of many things.
func columnOf[T any](p *pack, things []T, of func(*T) int64) packed {
	values := make([]int64, len(things))
	for i := range things {
		values[i] = of(&things[i])
	}
	return p.column(values)
}

// finish is the data as it stands in the page, before base64. What describes it is of our own types, which
// all can be JSON.
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

// mustJSON is the JSON of a value of the page's own types. Strings in them are clean, numbers finite.
func mustJSON(value any) []byte {
	text, err := plain.JSON(value)
	if err != nil {
		panic("report: " + err.Error())
	}
	return text
}
