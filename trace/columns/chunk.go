package columns

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/apache/arrow-go/v18/parquet"
	"github.com/klauspost/compress/zstd"
)

// errPage is the error of a page that no writer of the declared columns produces.
var errPage = errors.New("damaged page")

const (
	// maxPageHeader is the most bytes read to find the end of a page's header. Headers have about 50.
	maxPageHeader = 16 << 10
	// zstdRatio is more than zstd can make of a byte: a block of 128 KiB takes four.
	zstdRatio = 1 << 16
)

// decompressor is shared by all columns. It writes at most as many bytes as its destination has room for.
var decompressor = sync.OnceValue(func() *zstd.Decoder {
	d, err := zstd.NewReader(nil, zstd.WithDecodeAllCapLimit(true))
	if err != nil {
		panic(err) // the options are constants
	}
	return d
})

// Chunk reads the pages of one column of a row group one after the other, within the chunk's bytes
// only. A page is damaged unless it is at most one dictionary before the data or data, has
// an encoding of the column, no more values than the row group still lacks, and no more bytes than these values need.
type Chunk struct {
	file    io.ReaderAt
	column  *Column
	at, end int64 // bytes of the file that are not read yet
	rows    int64 // of the row group
	left    int64 // rows whose page is not read yet
	dict    bool  // the dictionary was read
	started bool  // a data page was read

	packed, data []byte // buffers of the current page: compressed and not
}

// Open begins the chunk of a column that lies in bytes [start, end) of the file. It reuses the buffers of the chunk before.
func (c *Chunk) Open(file io.ReaderAt, column *Column, start, end, rows int64) {
	*c = Chunk{file: file, column: column, at: start, end: end, rows: rows, left: rows, packed: c.packed, data: c.data}
}

// pageHeader has the fields of Parquet's PageHeader that are needed.
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

// page is one page, decompressed; data is valid until the next page is read.
type page struct {
	dictionary bool
	values     int
	encoding   parquet.Encoding
	data       []byte
}

// next reads the next page.
func (c *Chunk) next() (page, error) {
	if c.left == 0 {
		return page{}, fmt.Errorf("%w: fewer values than the footer says", errPage)
	}
	h, size, err := c.header()
	if err != nil {
		return page{}, err
	}
	if err := c.check(h, size); err != nil {
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

// header reads the page header at c.at; size is its length in bytes.
func (c *Chunk) header() (h pageHeader, size int64, err error) {
	// Nearly every header fits into 256 bytes.
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

// check fails unless a page whose header has so many bytes is one of the column.
func (c *Chunk) check(h pageHeader, size int64) error {
	encoding := parquet.Encoding(h.encoding)
	switch {
	case h.typ != pageData && h.typ != pageDictionary:
		return fmt.Errorf("%w: type %d", errPage, h.typ)
	case h.typ == pageDictionary && (c.dict || c.started):
		return fmt.Errorf("%w: a second dictionary", errPage)
	case h.values < 0 || h.values > c.rows || h.typ == pageData && (h.values == 0 || h.values > c.left):
		return fmt.Errorf("%w: %d values, of %d rows that are left", errPage, h.values, c.left)
	case !c.column.allows(h.typ, encoding, c.dict):
		return fmt.Errorf("%w: %s in encoding %v, which memprof does not write", errPage, c.column.Name, encoding)
	case h.compressed < 0 || h.compressed > c.end-c.at-size:
		return fmt.Errorf("%w: %d bytes, more than are left of the column", errPage, h.compressed)
	case h.uncompressed < 0 || h.uncompressed > c.column.pageBytes(h.values) || h.uncompressed > h.compressed*zstdRatio:
		return fmt.Errorf("%w: %d bytes for %d values", errPage, h.uncompressed, h.values)
	}
	return nil
}

// readPages fills dst with the next rows of a column. left is how many values of the current page are
// not decoded yet; nextPage sets it, and leaves it 0 after a dictionary.
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

// resized returns a slice of n bytes, in the memory of b if that is large enough.
func resized(b []byte, n int64) []byte {
	if int64(cap(b)) >= n {
		return b[:n]
	}
	return make([]byte, n)
}
