// Package columns reads the columns of a Parquet file that may be damaged or hostile. A count, a size
// or an offset in the file is checked against the file's bytes, against the declared columns and
// against fixed limits before anything is allocated or read by it. It takes only what the
// writer of the declared columns produces: required columns, zstd, the encodings below.
//
// [ReadFooter] and the methods of [Footer] check a footer, so that the Parquet library may parse it
// afterwards. [Numbers] and [Texts] decode column chunks without the library.
package columns

import (
	"fmt"

	"github.com/apache/arrow-go/v18/parquet"
)

// Error is an error of the file, not of reading it: bytes that no writer of the declared columns produces.
type Error struct {
	Truncated bool // the file is shorter than its footer says
	Detail    string
}

func (e *Error) Error() string { return e.Detail }

func damaged(format string, args ...any) error { return &Error{Detail: fmt.Sprintf(format, args...)} }

// Column declares a column of the file.
type Column struct {
	Name     string
	Type     parquet.Type
	Encoding Encoding
	// PageBytes is the most bytes that the data of a page with so many values take before
	// compression. If nil, it is what numbers of 8 bytes need.
	PageBytes func(values int64) int64
}

// Encoding is how a column's pages may be encoded.
type Encoding uint8

const (
	Dictionary Encoding = iota // a dictionary and indices, or plain where the library falls back to it
	Delta                      // DELTA_BINARY_PACKED
	Plain
)

// pageBytes is the most bytes of a page.
func (c *Column) pageBytes(values int64) int64 {
	if c.PageBytes != nil {
		return c.PageBytes(values)
	}
	return 16*values + 4096 // whole blocks of a delta-packed page, indices of a dictionary
}

// allows says whether a page of this type and encoding may belong to the column. hasDictionary
// says whether a dictionary page came before.
func (c *Column) allows(pageType int64, e parquet.Encoding, hasDictionary bool) bool {
	switch c.Encoding {
	case Delta:
		return pageType == pageData && e == parquet.Encodings.DeltaBinaryPacked
	case Plain:
		return pageType == pageData && e == parquet.Encodings.Plain
	}
	if pageType == pageDictionary {
		return e == parquet.Encodings.Plain || e == parquet.Encodings.PlainDict
	}
	if e == parquet.Encodings.RLEDict || e == parquet.Encodings.PlainDict {
		return hasDictionary
	}
	return e == parquet.Encodings.Plain
}
