package columns

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/apache/arrow-go/v18/parquet"
)

// Number is what a column of numbers holds. Delta-packed columns hold whole ones.
type Number interface{ int32 | int64 | float64 }

// Numbers decodes a column of int32, int64 or double.
type Numbers[T Number] struct {
	Chunk Chunk

	dict    []T
	left    int              // values of the current page that are not decoded yet
	how     parquet.Encoding // of the current page; one of packed, plain and delta decodes it
	packed  indexDecoder
	plain   []byte
	delta   deltaDecoder
	indices [1024]int32
}

// Read fills dst with the next len(dst) rows.
func (c *Numbers[T]) Read(dst []T) error {
	return readPages(dst, &c.left, c.nextPage, c.decode)
}

func (c *Numbers[T]) nextPage() error {
	p, err := c.Chunk.next()
	if err != nil {
		return err
	}
	if p.dictionary {
		c.dict = make([]T, p.values)
		_, err := plainNumbers(c.dict, p.data)
		return err
	}
	c.left, c.how = p.values, p.encoding
	switch p.encoding {
	case parquet.Encodings.Plain:
		c.plain = p.data
	case parquet.Encodings.DeltaBinaryPacked:
		c.delta, err = newDeltaDecoder(p.data, p.values)
	default:
		c.packed, err = newIndexDecoder(p.data)
	}
	return err
}

func (c *Numbers[T]) decode(dst []T) (err error) {
	switch c.how {
	case parquet.Encodings.Plain:
		c.plain, err = plainNumbers(dst, c.plain)
		return err
	case parquet.Encodings.DeltaBinaryPacked:
		return readDeltas(&c.delta, dst)
	}
	for len(dst) > 0 {
		n := min(len(dst), len(c.indices))
		indices := c.indices[:n]
		if c.packed.run > 0 { // read one index for the whole run: most jobs have one device, one thread and few streams
			n, indices = min(len(dst), c.packed.run), c.indices[:1]
		}
		if err := c.packed.read(indices); err != nil {
			return err
		}
		for i, index := range indices {
			if uint32(index) >= uint32(len(c.dict)) {
				return fmt.Errorf("%w: dictionary index %d of %d", errPage, uint32(index), len(c.dict))
			}
			dst[i] = c.dict[index]
		}
		for i := len(indices); i < n; i++ {
			dst[i] = dst[0]
		}
		c.packed.run -= n - len(indices)
		dst = dst[n:]
	}
	return nil
}

// plainNumbers fills dst from little-endian bytes and returns the rest of them.
func plainNumbers[T Number](dst []T, data []byte) ([]byte, error) {
	switch dst := any(dst).(type) {
	case []int32:
		if len(data) < 4*len(dst) {
			return nil, errPage
		}
		for i := range dst {
			dst[i] = int32(binary.LittleEndian.Uint32(data[4*i:]))
		}
		return data[4*len(dst):], nil
	case []int64:
		if len(data) < 8*len(dst) {
			return nil, errPage
		}
		for i := range dst {
			dst[i] = int64(binary.LittleEndian.Uint64(data[8*i:]))
		}
		return data[8*len(dst):], nil
	case []float64:
		if len(data) < 8*len(dst) {
			return nil, errPage
		}
		for i := range dst {
			dst[i] = math.Float64frombits(binary.LittleEndian.Uint64(data[8*i:]))
		}
		return data[8*len(dst):], nil
	}
	return nil, errPage
}

// maxMiniblock is the most values that a miniblock may have, and the most miniblocks of a block. The
// Parquet library writes 4 miniblocks of 32 values.
const maxMiniblock = 4096

// deltaDecoder reads Parquet's DELTA_BINARY_PACKED. A block stores the differences of successive values,
// each minus the block's smallest difference, in miniblocks that each have their own width in bits.
type deltaDecoder struct {
	data   []byte
	first  bool // the next value is the first, which the header holds
	last   int64
	size   int     // values in a miniblock
	minis  int     // miniblocks in a block
	least  int64   // smallest difference of the block
	widths []byte  // bits of a value, by miniblock of the block that is not decoded yet
	values []int64 // decoded and not read yet, in buffer
	buffer []int64
}

func newDeltaDecoder(data []byte, values int) (deltaDecoder, error) {
	var head [3]uint64
	for i := range head {
		v, n := binary.Uvarint(data)
		if n <= 0 {
			return deltaDecoder{}, fmt.Errorf("%w: its delta header is cut", errPage)
		}
		head[i], data = v, data[n:]
	}
	block, minis, total := head[0], head[1], head[2]
	first, n := binary.Varint(data)
	if n <= 0 || minis == 0 || block%minis != 0 || block/minis > maxMiniblock || block/minis%8 != 0 || block == 0 ||
		minis > maxMiniblock || total != uint64(values) {
		return deltaDecoder{}, fmt.Errorf("%w: %d values in delta blocks of %d, in %d parts", errPage, total, block, minis)
	}
	size := int(block / minis)
	return deltaDecoder{data: data[n:], first: true, last: first, size: size, minis: int(minis), buffer: make([]int64, size)}, nil
}

func readDeltas[T Number](d *deltaDecoder, dst []T) error {
	if d.first && len(dst) > 0 {
		dst[0] = T(d.last)
		dst = dst[1:]
		d.first = false
	}
	for len(dst) > 0 {
		if len(d.values) == 0 {
			if err := d.miniblock(); err != nil {
				return err
			}
		}
		n := min(len(dst), len(d.values))
		for i, v := range d.values[:n] {
			dst[i] = T(v)
		}
		d.values, dst = d.values[n:], dst[n:]
	}
	return nil
}

// miniblock decodes the next d.size values.
func (d *deltaDecoder) miniblock() error {
	if len(d.widths) == 0 {
		least, n := binary.Varint(d.data)
		if n <= 0 || len(d.data)-n < d.minis {
			return fmt.Errorf("%w: a delta block is cut", errPage)
		}
		d.least, d.widths, d.data = least, d.data[n:n+d.minis], d.data[n+d.minis:]
	}
	width := uint(d.widths[0])
	d.widths = d.widths[1:]
	bytes := d.size / 8 * int(width)
	if width > 64 || bytes > len(d.data) {
		return fmt.Errorf("%w: a delta block is cut", errPage)
	}
	d.values = d.buffer
	unpackDeltas(d.values, d.data[:bytes], width)
	d.data = d.data[bytes:]
	last := d.last
	for i, delta := range d.values {
		last += delta + d.least
		d.values[i] = last
	}
	d.last = last
	return nil
}

// unpackDeltas reads numbers of `width` bits, 0 to 64, packed from the lowest bit of each byte.
func unpackDeltas(dst []int64, data []byte, width uint) {
	if width == 0 {
		clear(dst)
		return
	}
	mask := ^uint64(0) >> (64 - width)
	bit, i := uint(0), 0
	for ; width <= 57 && i < len(dst) && bit/8+8 <= uint(len(data)); i++ { // width + shift <= 64 bits
		dst[i] = int64(binary.LittleEndian.Uint64(data[bit/8:]) >> (bit % 8) & mask)
		bit += width
	}
	for ; i < len(dst); i++ {
		at, shift := bit/8, bit%8
		var word uint64
		var above byte // bits of a ninth byte
		if at+9 <= uint(len(data)) {
			word, above = binary.LittleEndian.Uint64(data[at:]), data[at+8]
		} else {
			var rest [9]byte
			copy(rest[:], data[at:])
			word, above = binary.LittleEndian.Uint64(rest[:]), rest[8]
		}
		word >>= shift
		if shift > 0 {
			word |= uint64(above) << (64 - shift)
		}
		dst[i] = int64(word & mask)
		bit += width
	}
}
