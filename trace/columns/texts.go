package columns

import (
	"encoding/binary"
	"fmt"

	"github.com/apache/arrow-go/v18/parquet"
)

// Texts decodes a string column to numbers, one for each different text. It calls Number once for each
// entry of a dictionary, not for each row, so that reading makes no string for each row.
type Texts struct {
	Chunk  Chunk
	Number func(text string) (int32, error)

	dict   []int32 // number of each dictionary entry
	left   int     // values of the current page that are not decoded yet
	packed indexDecoder
	plain  []byte
	isDict bool
}

// Read fills dst with the numbers of the next len(dst) rows.
func (c *Texts) Read(dst []int32) error {
	return readPages(dst, &c.left, c.nextPage, c.decode)
}

func (c *Texts) nextPage() error {
	p, err := c.Chunk.next()
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

func (c *Texts) setDictionary(data []byte, n int) error {
	c.dict = c.dict[:0]
	for range n {
		text, rest, err := plainText(data)
		if err != nil {
			return err
		}
		data = rest
		id, err := c.Number(string(text))
		if err != nil {
			return err
		}
		c.dict = append(c.dict, id)
	}
	return nil
}

// plainText splits the first length-prefixed string off data.
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

func (c *Texts) decode(dst []int32) error {
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
		if dst[i], err = c.Number(string(text)); err != nil {
			return err
		}
	}
	return nil
}
