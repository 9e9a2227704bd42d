package dataset

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"math/rand/v2"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet/file"
)

// A column that repeats values is a dictionary, in the order of first use, and an index for each row. The library
// would find the indices value by value, each in an interface of its own: half of the time that encoding rows took.
// So they are found here, and the library writes them. The bytes are the same.

// dictionary finds the indices of integers. It is an open hash table with random seeds, so that no values are chosen to
// collide.
type dictionary[T int32 | int64] struct {
	values  []T
	slots   []int32 // numbers of values, from 1; 0 where free: a power of two of them, at most half of them taken
	seeds   [2]uint64
	indices []int32
}

// index returns the distinct values and each row's index into them. Both are valid until the next call.
func (d *dictionary[T]) index(rows []T) (values []T, indices []int32) {
	if d.slots == nil {
		d.slots, d.seeds = make([]int32, 1<<10), [2]uint64{rand.Uint64(), rand.Uint64()}
	}
	d.values, d.indices = d.values[:0], d.indices[:0]
	clear(d.slots)
	number := int32(0) // of the row before: many columns repeat one value
	for i, v := range rows {
		if i == 0 || v != rows[i-1] {
			number = d.numberOf(v)
		}
		d.indices = append(d.indices, number-1)
	}
	return d.values, d.indices
}

func (d *dictionary[T]) numberOf(v T) int32 {
	slot := d.find(v)
	if d.slots[slot] != 0 {
		return d.slots[slot]
	}
	d.values = append(d.values, v)
	number := int32(len(d.values))
	d.slots[slot] = number
	if 2*len(d.values) > len(d.slots) {
		d.slots = make([]int32, 2*len(d.slots))
		for i, v := range d.values {
			d.slots[d.find(v)] = int32(i + 1)
		}
	}
	return number
}

// find returns the slot of a value, or the free one where it would be.
func (d *dictionary[T]) find(v T) int {
	high, low := bits.Mul64(uint64(v)^d.seeds[0], d.seeds[1]|1)
	last := len(d.slots) - 1
	slot := int(high^low) & last
	for d.slots[slot] != 0 && d.values[d.slots[slot]-1] != v {
		slot = (slot + 1) & last
	}
	return slot
}

// textDictionary finds the indices of texts, which have numbers already.
type textDictionary struct {
	place   []int32 // of each text's number: its index and 1; 0 before its first use
	used    []int32 // numbers, by index
	indices []int32
}

// index returns the numbers of the texts that rows use, and each row's index into them. Both are valid until the next
// call. Every row is less than texts.
func (d *textDictionary) index(rows []int32, texts int) (used, indices []int32) {
	for _, text := range d.used {
		d.place[text] = 0
	}
	d.used, d.indices = d.used[:0], d.indices[:0]
	if len(d.place) < texts {
		d.place = append(d.place, make([]int32, texts-len(d.place))...)
	}
	for _, text := range rows {
		if d.place[text] == 0 {
			d.used = append(d.used, text)
			d.place[text] = int32(len(d.used))
		}
		d.indices = append(d.indices, d.place[text]-1)
	}
	return d.used, d.indices
}

// writeIndexed writes a column as a dictionary, which it gives up, and indices.
func writeIndexed(c file.ColumnChunkWriter, dictionary arrow.Array, indices []int32) error {
	defer dictionary.Release()
	encoder, ok := c.CurrentEncoder().(interface{ PutDictionary(arrow.Array) error })
	if !ok {
		return fmt.Errorf("the column has no dictionary, but %T", c.CurrentEncoder())
	}
	if err := encoder.PutDictionary(dictionary); err != nil {
		return err
	}
	rows := arrayOf(arrow.PrimitiveTypes.Int32, len(indices), arrow.Int32Traits.CastToBytes(indices))
	defer rows.Release()
	return c.WriteDictIndices(rows, nil, nil)
}

// arrayOf returns an array of n values. The buffers stay the caller's.
func arrayOf(kind arrow.DataType, n int, buffers ...[]byte) arrow.Array {
	all := []*memory.Buffer{nil} // no value is null
	for _, b := range buffers {
		all = append(all, memory.NewBufferBytes(b))
	}
	data := array.NewData(kind, n, all, nil, 0, 0)
	defer data.Release()
	return array.MakeFromData(data)
}

// arrayOfTexts returns an array of texts, of at most 2 GiB.
func arrayOfTexts(n int, text func(i int) string) arrow.Array {
	offsets, bytes := make([]byte, 4, 4*(n+1)), []byte(nil)
	for i := range n {
		bytes = append(bytes, text(i)...)
		offsets = binary.NativeEndian.AppendUint32(offsets, uint32(len(bytes)))
	}
	return arrayOf(arrow.BinaryTypes.String, n, offsets, bytes)
}
