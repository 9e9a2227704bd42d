package page

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"math/bits"
	"slices"
	"strconv"
	"sync"

	"github.com/memprof/memprof/analysis/plain"
)

// pack is the data of a page: a JSON text, followed by columns of integers that it refers to. All is
// compressed with zlib, which browsers decompress (DecompressionStream "deflate").
//
//	bytes 0-3   length of the JSON text, little-endian
//	            the JSON text; {"$":[start,count,form]} stands for a column
//	            the columns, start counted from here
//
// A column has one of these forms, by the third number, if there is one:
//
//	none  varints, 7 bits per byte, the lowest first, with the top bit set in all bytes but the last: the differences
//	      from the value before, the first from 0, zigzag-coded so that small negative numbers are short too
//	1     the same of the values themselves, which repeat in sequences
//	2     a byte for each value with its length in bits, then the bits of all values but their highest, the lowest
//	      first: values that do not repeat are shorter so, because only their lengths can be compressed
//	3     as 2, zigzag-coded
type pack struct{ columns []byte }

// packed refers to a column.
type packed struct {
	start, count int
	form         columnForm
}

type columnForm int

const (
	differences columnForm = iota
	varints
	lengthsAndBits
	signedLengthsAndBits
)

func (c packed) MarshalJSON() ([]byte, error) {
	text := `{"$":[` + strconv.Itoa(c.start) + "," + strconv.Itoa(c.count)
	if c.form != differences {
		text += "," + strconv.Itoa(int(c.form))
	}
	return []byte(text + "]}"), nil
}

// plain appends a column whose values repeat in sequences, which compress better than their differences.
func (p *pack) plain(values []int64) packed {
	return p.append(values, varints, varintsOf(values))
}

func (p *pack) append(values []int64, form columnForm, bytes []byte) packed {
	c := packed{len(p.columns), len(values), form}
	p.columns = append(p.columns, bytes...)
	return c
}

func varintsOf(values []int64) (out []byte) {
	for _, v := range values {
		out = binary.AppendVarint(out, v)
	}
	return out
}

// shortest appends a column in the form that is shortest when it is compressed.
func (p *pack) shortest(values []int64) packed {
	form := lengthsAndBits
	if slices.ContainsFunc(values, func(v int64) bool { return v < 0 }) {
		form = signedLengthsAndBits
	}
	plain, split := varintsOf(values), appendBits(nil, values, form == signedLengthsAndBits)
	if len(compressed(split)) < len(compressed(plain)) {
		return p.append(values, form, split)
	}
	return p.append(values, varints, plain)
}

// appendBits appends the lengths of values and then their bits, each without its highest, which is 1.
func appendBits(out []byte, values []int64, zigzag bool) []byte {
	coded := make([]uint64, len(values))
	for i, v := range values {
		coded[i] = uint64(v)
		if zigzag {
			coded[i] = uint64(v<<1) ^ uint64(v>>63)
		}
		out = append(out, byte(bits.Len64(coded[i])))
	}
	var part byte
	filled := 0 // bits of part
	for _, v := range coded {
		for n := bits.Len64(v) - 1; n > 0; {
			took := min(n, 8-filled)
			part |= byte(v) & (1<<took - 1) << filled
			v, n, filled = v>>took, n-took, filled+took
			if filled == 8 {
				out, part, filled = append(out, part), 0, 0
			}
		}
	}
	if filled > 0 {
		out = append(out, part)
	}
	return out
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

// column is a name on the page and the number that each thing has.
type column[T any] struct {
	name string
	of   func(*T) int64
}

// columns are packed columns by their names, with what else is said of the same things.
type columns map[string]any

// columnsOf appends columns, in their order.
func columnsOf[T any](p *pack, things []T, list []column[T]) columns {
	out := columns{}
	for _, c := range list {
		out[c.name] = columnOf(p, things, c.of)
	}
	return out
}

// finish returns the data for the page, before dense, with a JSON text in pieces.
func (p *pack) finish(text ...[]byte) []byte {
	size := 0
	for _, piece := range text {
		size += len(piece)
	}
	return compressed(slices.Concat([][]byte{binary.LittleEndian.AppendUint32(nil, uint32(size))}, text, [][]byte{p.columns})...)
}

// writers have 800 KB each, and a page may have thousands of devices.
var writers = sync.Pool{New: func() any {
	z, _ := zlib.NewWriterLevel(nil, zlib.BestCompression) // fails for levels that do not exist
	return z
}}

// compressed are pieces one after the other, compressed with zlib.
func compressed(pieces ...[]byte) []byte {
	var out bytes.Buffer
	z := writers.Get().(*zlib.Writer)
	defer writers.Put(z)
	z.Reset(&out)
	for _, piece := range pieces {
		_, _ = z.Write(piece) // writing to a buffer does not fail
	}
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
