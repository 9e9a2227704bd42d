package trace

import (
	"encoding/binary"
	"fmt"

	"github.com/apache/arrow-go/v18/parquet"
)

// textColumn reads a string column as numbers, without making a string for each row: a
// dictionary page is translated once, and the rows' dictionary indices through it.
type textColumn struct {
	pages  columnChunk
	number func(text string) (int32, error)

	dict   []int32 // the number of each dictionary entry
	left   int     // values left in the page
	packed indexDecoder
	plain  []byte
	isDict bool
}

// read fills dst with the numbers of the next len(dst) rows.
func (c *textColumn) read(dst []int32) error {
	return readPages(dst, &c.left, c.nextPage, c.decode)
}

func (c *textColumn) nextPage() error {
	p, err := c.pages.next()
	if err != nil {
		return err
	}
	if p.dictionary {
		return c.setDictionary(p.data, p.values)
	}
	c.left = p.values
	if c.isDict = p.encoding != parquet.Encodings.Plain; c.isDict {
		c.packed, err = newIndexDecoder(p.data)
		return err
	}
	c.plain = p.data
	return nil
}

func (c *textColumn) setDictionary(data []byte, n int) error {
	c.dict = c.dict[:0]
	for range n {
		text, rest, err := plainText(data)
		if err != nil {
			return err
		}
		data = rest
		id, err := c.number(string(text))
		if err != nil {
			return err
		}
		c.dict = append(c.dict, id)
	}
	return nil
}

// plainText splits one length-prefixed string off data.
func plainText(data []byte) (text, rest []byte, err error) {
	if len(data) < 4 {
		return nil, nil, errPage
	}
	n := binary.LittleEndian.Uint32(data)
	data = data[4:]
	if uint64(n) > uint64(len(data)) {
		return nil, nil, errPage
	}
	return data[:n], data[n:], nil
}

func (c *textColumn) decode(dst []int32) error {
	if c.isDict {
		if err := c.packed.read(dst); err != nil {
			return err
		}
		dict := c.dict
		for i, index := range dst {
			if uint32(index) >= uint32(len(dict)) {
				return fmt.Errorf("%w: dictionary index %d of %d", errPage, index, len(dict))
			}
			dst[i] = dict[index]
		}
		return nil
	}
	for i := range dst {
		text, rest, err := plainText(c.plain)
		if err != nil {
			return err
		}
		c.plain = rest
		if dst[i], err = c.number(string(text)); err != nil {
			return err
		}
	}
	return nil
}

// indexDecoder reads Parquet's hybrid of runs and bit-packed groups of eight.
type indexDecoder struct {
	width uint // bits of an index, at most 32
	data  []byte

	run    int // values left of a run of equal ones
	value  int32
	packed int // values left in bit-packed groups
	bit    uint
}

// newIndexDecoder starts at the indices of a data page, whose first byte is their width.
func newIndexDecoder(data []byte) (indexDecoder, error) {
	if len(data) == 0 || data[0] > 32 {
		return indexDecoder{}, fmt.Errorf("%w: index width", errPage)
	}
	return indexDecoder{width: uint(data[0]), data: data[1:]}, nil
}

func (d *indexDecoder) read(dst []int32) error {
	for len(dst) > 0 {
		switch {
		case d.run > 0:
			n := min(d.run, len(dst))
			for i := range dst[:n] {
				dst[i] = d.value
			}
			d.run -= n
			dst = dst[n:]
		case d.packed > 0:
			n := min(d.packed, len(dst))
			d.unpack(dst[:n])
			d.packed -= n
			dst = dst[n:]
		default:
			if err := d.header(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (d *indexDecoder) header() error {
	// Behind bit-packed groups, data still starts at their first byte.
	d.data = d.data[d.bit/8:]
	d.bit = 0
	h, n := binary.Uvarint(d.data)
	if n <= 0 || h>>1 == 0 || h>>1 > 1<<28 {
		return fmt.Errorf("%w: index run", errPage)
	}
	d.data = d.data[n:]
	count := int(h >> 1)
	if h&1 == 0 {
		size := int(d.width+7) / 8
		if len(d.data) < size {
			return errPage
		}
		var word [4]byte
		copy(word[:], d.data[:size])
		d.value = int32(binary.LittleEndian.Uint32(word[:]))
		d.data = d.data[size:]
		d.run = count
		return nil
	}
	if len(d.data) < count*int(d.width) {
		return errPage
	}
	d.packed = count * 8
	return nil
}

func (d *indexDecoder) unpack(dst []int32) {
	mask := uint64(1)<<d.width - 1
	bit, data := d.bit, d.data
	i := 0
	for ; i < len(dst) && int(bit/8)+8 <= len(data); i++ {
		word := binary.LittleEndian.Uint64(data[bit/8:])
		dst[i] = int32(word >> (bit % 8) & mask)
		bit += d.width
	}
	for ; i < len(dst); i++ {
		var word [8]byte
		copy(word[:], data[bit/8:])
		dst[i] = int32(binary.LittleEndian.Uint64(word[:]) >> (bit % 8) & mask)
		bit += d.width
	}
	d.bit = bit
}
