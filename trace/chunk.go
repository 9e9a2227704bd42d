package trace

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/apache/arrow-go/v18/parquet"
	"github.com/klauspost/compress/zstd"
)

var errPage = errors.New("damaged page")

const (
	// maxPageHeader is what is read to find a page's header; those of a Writer have 50 bytes.
	maxPageHeader = 16 << 10
	// maxTextPage is the most bytes of a page of contexts before compression.
	maxTextPage = 256 << 20
	// zstdRatio is more than zstd can make of a byte: a block of 128 KiB takes four.
	zstdRatio = 1 << 16
)

// decompressor is shared by all columns of all readers. It writes no more than there is room for.
var decompressor = sync.OnceValue(func() *zstd.Decoder {
	d, err := zstd.NewReader(nil, zstd.WithDecodeAllCapLimit(true))
	if err != nil {
		panic(err) // the options are constants
	}
	return d
})

// columnChunk gives the pages of one column of a row group one by one. It reads within the
// chunk's bytes only, and takes no page that a [Writer] would not have made: at most one
// dictionary, before the data; encodings that the column is written in; no more values than the
// row group has, and no more bytes than those values can take.
type columnChunk struct {
	file    io.ReaderAt
	column  int
	at, end int64
	rows    int64 // of the row group
	left    int64 // rows that are in no page so far
	dict    bool  // the dictionary was seen
	started bool  // a data page was seen

	packed, data []byte // memory of the page at hand
}

// pageHeader is what is taken of Parquet's PageHeader.
type pageHeader struct {
	typ                      int64 // of the page
	uncompressed, compressed int64 // bytes
	values, encoding         int64
}

const (
	pageData       = 0
	pageDictionary = 2
)

func readPageHeader(r *thriftReader) pageHeader {
	h := pageHeader{typ: -1, values: -1, encoding: -1}
	r.fields(func(id int16, typ byte) bool {
		switch {
		case id == 1 && typ == thriftI32:
			h.typ = r.integer()
		case id == 2 && typ == thriftI32:
			h.uncompressed = r.integer()
		case id == 3 && typ == thriftI32:
			h.compressed = r.integer()
		case (id == 5 || id == 7) && typ == thriftStruct: // DataPageHeader, DictionaryPageHeader
			r.fields(func(id int16, typ byte) bool {
				switch {
				case id == 1 && typ == thriftI32:
					h.values = r.integer()
				case id == 2 && typ == thriftI32:
					h.encoding = r.integer()
				default:
					return false
				}
				return true
			})
		default:
			return false
		}
		return true
	})
	return h
}

// page is one page, decompressed; its data are valid until the next.
type page struct {
	dictionary bool
	values     int
	encoding   parquet.Encoding
	data       []byte
}

// next gives the next page. The error is errPage where the file is at fault.
func (c *columnChunk) next() (page, error) {
	if c.left == 0 {
		return page{}, fmt.Errorf("%w: fewer values than the footer says", errPage)
	}
	h, size, err := c.header()
	if err != nil {
		return page{}, err
	}
	if err := c.check(h); err != nil {
		return page{}, err
	}
	c.packed = resized(c.packed, h.compressed)
	if _, err := c.file.ReadAt(c.packed, c.at+size); err != nil {
		return page{}, fmt.Errorf("%w: %w", errPage, err)
	}
	data, err := decompressor().DecodeAll(c.packed, resized(c.data, h.uncompressed)[:0:h.uncompressed])
	if err != nil {
		return page{}, fmt.Errorf("%w: %w", errPage, err)
	}
	if int64(len(data)) != h.uncompressed {
		return page{}, fmt.Errorf("%w: %d bytes, where its header says %d", errPage, len(data), h.uncompressed)
	}
	c.data = data
	c.at += size + h.compressed
	p := page{dictionary: h.typ == pageDictionary, values: int(h.values), encoding: parquet.Encoding(h.encoding), data: data}
	if p.dictionary {
		c.dict = true
	} else {
		c.started = true
		c.left -= h.values
	}
	return p, nil
}

// header reads the header at c.at and its size.
func (c *columnChunk) header() (h pageHeader, size int64, err error) {
	// Most headers fit into the first piece.
	for _, most := range []int64{256, maxPageHeader} {
		piece := make([]byte, max(min(most, c.end-c.at), 0))
		if _, err := c.file.ReadAt(piece, c.at); err != nil && !errors.Is(err, io.EOF) {
			return h, 0, fmt.Errorf("%w: %w", errPage, err)
		}
		r := &thriftReader{data: piece}
		h = readPageHeader(r)
		if r.err == nil {
			return h, int64(len(piece) - len(r.data)), nil
		}
	}
	return h, 0, fmt.Errorf("%w: its header is cut or malformed", errPage)
}

func (c *columnChunk) check(h pageHeader) error {
	encoding := parquet.Encoding(h.encoding)
	switch {
	case h.typ != pageData && h.typ != pageDictionary:
		return fmt.Errorf("%w: type %d", errPage, h.typ)
	case h.typ == pageDictionary && (c.dict || c.started):
		return fmt.Errorf("%w: a second dictionary", errPage)
	case h.values < 0 || h.values > c.rows || h.typ == pageData && (h.values == 0 || h.values > c.left):
		return fmt.Errorf("%w: %d values, of %d rows that are left", errPage, h.values, c.left)
	case !c.written(h.typ, encoding):
		return fmt.Errorf("%w: %s in encoding %v, which memprof does not write", errPage, columns[c.column].name, encoding)
	case h.compressed < 0 || h.compressed > c.end-c.at:
		return fmt.Errorf("%w: %d bytes, more than are left of the column", errPage, h.compressed)
	case h.uncompressed < 0 || h.uncompressed > c.most(h.values) || h.uncompressed > h.compressed*zstdRatio:
		return fmt.Errorf("%w: %d bytes for %d values", errPage, h.uncompressed, h.values)
	}
	return nil
}

// written says whether a page like this may have come from a Writer; see writerProperties.
func (c *columnChunk) written(typ int64, e parquet.Encoding) bool {
	switch c.column {
	case colSeq, colTime:
		return typ == pageData && e == parquet.Encodings.DeltaBinaryPacked
	case colAddr:
		return typ == pageData && e == parquet.Encodings.Plain
	}
	if typ == pageDictionary {
		return e == parquet.Encodings.Plain || e == parquet.Encodings.PlainDict
	}
	if e == parquet.Encodings.RLEDict || e == parquet.Encodings.PlainDict {
		return c.dict
	}
	return e == parquet.Encodings.Plain // what the library falls back to
}

// most is how many bytes a page of so many values has at most.
func (c *columnChunk) most(values int64) int64 {
	switch c.column {
	case colContext:
		return maxTextPage
	case colKind:
		return 64*values + 1024
	}
	return 16*values + 4096 // whole blocks of a delta-packed page, indices of a dictionary
}

// readPages fills dst with the next rows of a column. left is how many values the page at hand still has,
// and stays 0 where the next one is a dictionary.
func readPages[T any](dst []T, left *int, nextPage func() error, decode func(dst []T) error) error {
	for len(dst) > 0 {
		if *left == 0 {
			if err := nextPage(); err != nil {
				return err
			}
			continue
		}
		n := min(len(dst), *left)
		if err := decode(dst[:n]); err != nil {
			return err
		}
		*left -= n
		dst = dst[n:]
	}
	return nil
}

// resized is b with n bytes, of the same memory if they fit.
func resized(b []byte, n int64) []byte {
	if int64(cap(b)) >= n {
		return b[:n]
	}
	return make([]byte, n)
}
