package trace

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
)

// What a part may have at most. A [Writer] stays far below; a footer that says more is damaged,
// and is refused before anything is allocated by it.
const (
	maxFooterBytes = 16 << 20
	maxGroupRows   = 4 << 20 // rows of one row group
)

// footer is what is taken of a part's footer before the Parquet library sees it.
type footer struct {
	version  string // of the schema, by the metadata
	isTrace  bool   // there is one
	elements int    // of the schema, with the root
	children int64  // of the root
	leaves   bool   // no other element has children
	rows     int64
	groups   int64 // rows of all row groups
}

// checkFooter walks the footer of the part in f, of size bytes, and fails where the Parquet
// library would be led to allocate or read what the file does not hold: by counts of the schema,
// sizes and offsets of column chunks, numbers of rows. Parquet files that are no parts are
// ErrNotTrace, parts of a newer schema ErrNewerSchema, all else that is wrong is ErrDamaged.
func checkFooter(path string, f io.ReaderAt, size int64) error {
	damaged := func(detail string) error {
		return &PathError{Path: path, Err: ErrDamaged, Detail: detail, Remedy: "copy the part again"}
	}
	text, err := readFooter(path, f, size)
	if err != nil {
		return err
	}
	r := &thriftReader{data: text}
	var out footer
	if err := out.read(r, size-8-int64(len(text)), false); err != nil {
		return damaged(err.Error())
	}
	if !out.isTrace {
		return notTrace(path, "no "+keySchema+" in its metadata")
	}
	if version, err := strconv.Atoi(out.version); err == nil && version > SchemaVersion {
		return newerSchema(path, version)
	}
	if out.elements != numColumns+1 || out.children != numColumns || !out.leaves {
		return notTrace(path, fmt.Sprintf("its schema has %d elements, %d of them in the root, not %d columns", out.elements, out.children, numColumns))
	}
	// Only now is it known to be ours, so that the row groups must be.
	r = &thriftReader{data: text}
	out = footer{}
	if err := out.read(r, size-8-int64(len(text)), true); err != nil {
		return damaged(err.Error())
	}
	if out.rows != out.groups {
		return damaged(fmt.Sprintf("its footer says %d rows, its row groups %d", out.rows, out.groups))
	}
	return nil
}

func notTrace(path, detail string) error {
	return &PathError{Path: path, Err: ErrNotTrace, Detail: detail, Remedy: "give the directory of a run, or one of its .parquet parts"}
}

// readFooter gives the bytes of the footer.
func readFooter(path string, f io.ReaderAt, size int64) ([]byte, error) {
	var tail [8]byte
	if _, err := f.ReadAt(tail[:], size-8); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	n := int64(binary.LittleEndian.Uint32(tail[:]))
	if n > size-12 {
		return nil, truncatedPart(path, fmt.Sprintf("%d bytes, of which the footer would be %d", size, n))
	}
	if n > maxFooterBytes {
		return nil, &PathError{Path: path, Err: ErrDamaged, Detail: fmt.Sprintf("a footer of %d bytes, more than %d", n, maxFooterBytes), Remedy: "copy the part again"}
	}
	text := make([]byte, n)
	if _, err := f.ReadAt(text, size-8-n); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return text, nil
}

// read walks FileMetaData. Column chunks must lie before the byte at end. Row groups are looked
// into only if ours is set.
func (f *footer) read(r *thriftReader, end int64, ours bool) (err error) {
	f.leaves = true
	r.fields(func(id int16, typ byte) bool {
		switch {
		case id == 2 && typ == thriftList:
			f.elements = r.each(func(i int) { f.element(r, i) })
		case id == 3 && typ == thriftI64:
			f.rows = r.integer()
		case id == 4 && typ == thriftList && ours:
			r.each(func(i int) {
				rows, groupErr := readRowGroup(r, end)
				if err == nil && groupErr != nil {
					err = fmt.Errorf("row group %d: %w", i, groupErr)
				}
				f.groups += rows
			})
		case id == 5 && typ == thriftList:
			r.each(func(int) { f.keyValue(r) })
		case id == 8 || id == 9:
			err = errors.New("it is encrypted")
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
func (f *footer) element(r *thriftReader, i int) {
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
		f.leaves = false
	}
}

func (f *footer) keyValue(r *thriftReader) {
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
	if string(key) == keySchema {
		f.version, f.isTrace = string(value), true
	}
}

// readRowGroup gives the rows of a RowGroup.
func readRowGroup(r *thriftReader, end int64) (rows int64, err error) {
	chunks := 0
	values := [numColumns]int64{}
	r.fields(func(id int16, typ byte) bool {
		switch {
		case id == 1 && typ == thriftList:
			chunks = r.each(func(i int) {
				c := readColumnChunk(r)
				chunkErr := errors.New("more columns than the schema has")
				if i < numColumns {
					chunkErr = c.check(i, end)
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
	if chunks != numColumns {
		return 0, fmt.Errorf("%d columns, not %d", chunks, numColumns)
	}
	if rows < 0 || rows > maxGroupRows {
		return 0, fmt.Errorf("%d rows, not 0 to %d", rows, maxGroupRows)
	}
	for i, n := range values {
		if n != rows {
			return 0, fmt.Errorf("column %s has %d values in %d rows", columns[i].name, n, rows)
		}
	}
	return rows, nil
}

// chunkPlace is what a ColumnChunk says of where its pages are and how they are stored.
type chunkPlace struct {
	typ, codec, values int64
	data, dictionary   int64 // offsets in the file; dictionary 0 if there is none
	compressed         int64 // bytes of all its pages with their headers
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

// start is where the first page is.
func (c *chunkPlace) start() int64 {
	if c.dictionary > 0 && c.dictionary < c.data {
		return c.dictionary
	}
	return c.data
}

// check says what is wrong with the chunk of a column whose pages must lie before end.
func (c *chunkPlace) check(column int, end int64) error {
	switch {
	case !c.known || c.encrypted:
		return errors.New("its metadata is missing or encrypted")
	case parquet.Type(c.typ) != columns[column].typ:
		return fmt.Errorf("type %d, not %d", c.typ, columns[column].typ)
	case compress.Compression(c.codec) != compress.Codecs.Zstd:
		return fmt.Errorf("compression %d, not zstd", c.codec)
	case c.start() < 4 || c.compressed < 0 || c.start() > end || c.compressed > end-c.start():
		return fmt.Errorf("%d bytes at %d, beyond the %d before the footer", c.compressed, c.start(), end)
	}
	return nil
}
