package columns

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
)

const (
	maxFooterBytes = 16 << 20
	maxGroupRows   = 4 << 20 // rows of one row group
)

// Footer is a Parquet file's footer (FileMetaData) as read by this package. Its methods check it; the
// Parquet library may only parse a footer that has passed all of them.
type Footer struct {
	text      []byte
	chunksEnd int64 // byte of the file before which all column chunks lie

	metadata map[string]string
	elements int   // of the schema, the root included
	children int64 // of the root
	flat     bool  // no other element has children
}

// ReadFooter reads the footer of a file of `size` bytes, at least 12, that ends with Parquet's magic
// bytes. The error is an
// [*Error] or that of reading the file.
func ReadFooter(f io.ReaderAt, size int64) (*Footer, error) {
	var tail [8]byte
	if _, err := f.ReadAt(tail[:], size-8); err != nil {
		return nil, err
	}
	n := int64(binary.LittleEndian.Uint32(tail[:]))
	if n > size-12 {
		return nil, &Error{true, fmt.Sprintf("%d bytes, and %d in its footer alone", size, n)}
	}
	if n > maxFooterBytes {
		return nil, damaged("a footer of %d bytes, more than %d", n, maxFooterBytes)
	}
	footer := &Footer{text: make([]byte, n), chunksEnd: size - 8 - n, metadata: map[string]string{}}
	if _, err := f.ReadAt(footer.text, size-8-n); err != nil {
		return nil, err
	}
	return footer, footer.readSchema()
}

// Metadata is the value of a key in the file's key-value metadata.
func (f *Footer) Metadata(key string) (value string, ok bool) {
	value, ok = f.metadata[key]
	return value, ok
}

// CheckSchema fails unless the schema is a root with n columns and nothing else.
func (f *Footer) CheckSchema(n int) error {
	if f.elements != n+1 || f.children != int64(n) || !f.flat {
		return damaged("its schema has %d elements, %d of them in the root, not %d columns", f.elements, f.children, n)
	}
	return nil
}

// CheckRowGroups fails unless the chunks of each row group are those of the declared columns and lie
// within the file, and all counts of rows and values agree.
func (f *Footer) CheckRowGroups(columns []Column) error {
	r := &thriftReader{data: f.text}
	var rows, inGroups int64
	var err error
	r.fields(func(id int16, typ byte) bool {
		switch {
		case id == 3 && typ == thriftI64:
			rows = r.integer()
		case id == 4 && typ == thriftList:
			r.each(func(i int) {
				n, groupErr := readRowGroup(r, columns, f.chunksEnd)
				if err == nil && groupErr != nil {
					err = damaged("row group %d: %v", i, groupErr)
				}
				inGroups += n
			})
		default:
			return false
		}
		return true
	})
	switch {
	case r.err != nil:
		return r.err
	case err != nil:
		return err
	case rows != inGroups:
		return damaged("its footer says %d rows, its row groups %d", rows, inGroups)
	}
	return nil
}

// readSchema reads the schema and the key-value metadata.
func (f *Footer) readSchema() (err error) {
	r := &thriftReader{data: f.text}
	f.flat = true
	r.fields(func(id int16, typ byte) bool {
		switch {
		case id == 2 && typ == thriftList:
			f.elements = r.each(func(i int) { f.element(r, i) })
		case id == 5 && typ == thriftList:
			r.each(func(int) { f.keyValue(r) })
		case id == 8 || id == 9:
			err = damaged("it is encrypted")
			return false
		default:
			return false
		}
		return true
	})
	if r.err != nil {
		return r.err
	}
	return err
}

// element reads a SchemaElement.
func (f *Footer) element(r *thriftReader, i int) {
	children := int64(0)
	r.fields(func(id int16, typ byte) bool {
		if id != 5 || typ != thriftI32 {
			return false
		}
		children = r.integer()
		return true
	})
	switch {
	case i == 0:
		f.children = children
	case children != 0:
		f.flat = false
	}
}

func (f *Footer) keyValue(r *thriftReader) {
	var key, value []byte
	r.fields(func(id int16, typ byte) bool {
		switch {
		case id == 1 && typ == thriftBinary:
			key = r.bytes()
		case id == 2 && typ == thriftBinary:
			value = r.bytes()
		default:
			return false
		}
		return true
	})
	f.metadata[string(key)] = string(value)
}

// readRowGroup reads a RowGroup and returns its rows. Its column chunks must lie before byte `end` of the file.
func readRowGroup(r *thriftReader, columns []Column, end int64) (rows int64, err error) {
	chunks := 0
	values := make([]int64, len(columns))
	r.fields(func(id int16, typ byte) bool {
		switch {
		case id == 1 && typ == thriftList:
			chunks = r.each(func(i int) {
				c := readColumnChunk(r)
				chunkErr := errors.New("more columns than the schema has")
				if i < len(columns) {
					chunkErr = c.check(&columns[i], end)
					values[i] = c.values
				}
				if err == nil && chunkErr != nil {
					err = fmt.Errorf("column %d: %w", i, chunkErr)
				}
			})
		case id == 3 && typ == thriftI64:
			rows = r.integer()
		default:
			return false
		}
		return true
	})
	if err != nil {
		return 0, err
	}
	if chunks != len(columns) {
		return 0, fmt.Errorf("%d columns, not %d", chunks, len(columns))
	}
	if rows < 0 || rows > maxGroupRows {
		return 0, fmt.Errorf("%d rows, not 0 to %d", rows, maxGroupRows)
	}
	for i, n := range values {
		if n != rows {
			return 0, fmt.Errorf("column %s has %d values in %d rows", columns[i].Name, n, rows)
		}
	}
	return rows, nil
}

// chunkPlace has the fields of a ColumnChunk that say where its pages are and how they are stored.
type chunkPlace struct {
	typ, codec, values int64
	data, dictionary   int64 // offsets in the file; dictionary 0 if there is none
	compressed         int64 // bytes of its pages, headers included
	encrypted, known   bool
}

func readColumnChunk(r *thriftReader) (c chunkPlace) {
	r.fields(func(id int16, typ byte) bool {
		switch {
		case id == 3 && typ == thriftStruct:
			c.known = true
			c.readMetaData(r)
			return true
		case id == 8 || id == 9:
			c.encrypted = true
		}
		return false
	})
	return c
}

func (c *chunkPlace) readMetaData(r *thriftReader) {
	c.typ, c.codec = -1, -1
	r.fields(func(id int16, typ byte) bool {
		if typ != thriftI32 && typ != thriftI64 {
			return false
		}
		switch id {
		case 1:
			c.typ = r.integer()
		case 4:
			c.codec = r.integer()
		case 5:
			c.values = r.integer()
		case 7:
			c.compressed = r.integer()
		case 9:
			c.data = r.integer()
		case 11:
			c.dictionary = r.integer()
		default:
			return false
		}
		return true
	})
}

// start is the offset of the first page.
func (c *chunkPlace) start() int64 {
	if c.dictionary > 0 && c.dictionary < c.data {
		return c.dictionary
	}
	return c.data
}

// check fails unless this is a chunk of the column whose pages lie before byte `end` of the file.
func (c *chunkPlace) check(column *Column, end int64) error {
	switch {
	case !c.known || c.encrypted:
		return errors.New("its metadata is missing or encrypted")
	case parquet.Type(c.typ) != column.Type:
		return fmt.Errorf("type %d, not %d", c.typ, column.Type)
	case compress.Compression(c.codec) != compress.Codecs.Zstd:
		return fmt.Errorf("compression %d, not zstd", c.codec)
	case c.start() < 4 || c.compressed < 0 || c.start() > end || c.compressed > end-c.start():
		return fmt.Errorf("%d bytes at %d, beyond the %d before the footer", c.compressed, c.start(), end)
	}
	return nil
}
