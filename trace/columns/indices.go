package columns

import (
	"encoding/binary"
	"fmt"
)

// indexDecoder reads dictionary indices: Parquet's hybrid of runs of one value and bit-packed groups of
// eight values.
type indexDecoder struct {
	width uint // bits of an index, at most 32
	data  []byte

	run    int   // values of the current run that are not read yet
	value  int32 // of that run
	packed int   // values of the current bit-packed groups that are not read yet
	bit    uint  // where the next of them begins, from the start of data
}

// newIndexDecoder decodes the indices of a data page, whose first byte is their width in bits.
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
	// After bit-packed groups, data still begins at their first byte.
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
