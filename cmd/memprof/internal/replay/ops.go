// Package replay is what `memprof lab replay --ops` does: it reads hand-written sequences of allocator operations, runs them in the
// model of the allocator, and keeps and prints their results.
//
// A file is lines of UTF-8 text, ended by LF or CRLF:
//
//	alloc NAME SIZE    request SIZE bytes; the block is called NAME
//	free NAME          free the block of that name
//	gc                 release all idle regions
//	iteration          end an iteration, and trim as the allocator's options say
//	# comment          to the end of the line; after an operation too, if a blank is before it
//
// Words are divided by blanks, and lines without any are skipped. A name is any word that
// can be printed. A size is a whole number from 0 to 2^64-1, or one with a unit as flags take it: K, M and G
// are 2^10, 2^20 and 2^30 bytes, and it may have a fraction (2.5M). A request that is refused is a result, not an
// error.
//
// A name is taken while its block is in use, and free again when the block was freed or
// was refused. To free a name whose request was refused does nothing, once. All else about
// names is an error: a second block of the name of one in use, the free of what never was,
// or was freed already. Errors name file and line.
//
// # Model of the memory
//
// The allocator is specified by package bfc, and `memprof lab replay` gives it a bfc.Device as its memory.
// Another allocator prints the same results if its memory does this:
//
//	--memory vmm       It coalesces. A page is --granularity bytes, 2 MiB by default. Each grant
//	                   begins where the one before it ends, so that there is one region. When gc has
//	                   released it, the next grant has its addresses again.
//	--memory separate  It does not coalesce. A page is 256 bytes. Each grant is a region of its own,
//	                   whose address is higher than all before; none is granted twice.
//	--physical         The bytes that are mapped at a time: Grow, after it has rounded up to pages, and
//	                   Map refuse what passes it, and Free is what is left of it. Without the flag it
//	                   is unlimited, and Free is 2^64-1.
//
// It refuses nothing else, but for addresses that run out at 2^64; TryUnmap it always grants. A request
// or a gc calls the allocator once. An iteration calls EndIteration and then Trim, which does nothing with
// trim never. Results have the index of a region, addresses ascending, at the time of the operation.
package replay

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/memprof/memprof/analysis/plain"
)

// Verb is what an operation does.
type Verb string

const (
	Alloc     Verb = "alloc"
	Free      Verb = "free"
	GC        Verb = "gc"
	Iteration Verb = "iteration"
)

// Op is one line of a file.
type Op struct {
	Line int // from 1
	Verb Verb
	Name string // of Alloc and Free
	Size uint64 // of Alloc, in bytes
}

// Error says what is wrong with a line.
type Error struct {
	File string
	Line int // from 1
	Err  error
}

func (e *Error) Error() string { return fmt.Sprintf("%s:%d: %v", e.File, e.Line, e.Err) }

func (e *Error) Unwrap() error { return e.Err }

// maxLine is the longest line in bytes, not counting a comment.
const maxLine = 64 << 10

// Reader reads the operations of a file.
type Reader struct {
	file  string
	lines *bufio.Reader
	line  int
}

// NewReader reads from r; file is what errors call it.
func NewReader(r io.Reader, file string) *Reader {
	return &Reader{file: file, lines: bufio.NewReaderSize(r, maxLine)}
}

// Read returns the next operation, or io.EOF. Other errors are an *Error, or of reading.
func (r *Reader) Read() (Op, error) {
	for {
		words, err := r.words()
		if err != nil {
			return Op{}, err
		}
		if len(words) == 0 {
			continue
		}
		op, err := parse(words)
		if err != nil {
			return Op{}, r.errorAt(r.line, err)
		}
		op.Line = r.line
		return op, nil
	}
}

func (r *Reader) errorAt(line int, err error) error {
	return &Error{File: r.file, Line: line, Err: err}
}

// words returns the words of the next line, without comments.
func (r *Reader) words() ([]string, error) {
	text, err := r.lines.ReadSlice('\n')
	if len(text) == 0 && err == io.EOF {
		return nil, io.EOF
	}
	r.line++
	if r.line == 1 {
		text = bytes.TrimPrefix(text, []byte("\ufeff"))
	}
	var words []string
	commented := false
	for word := range bytes.FieldsSeq(text) {
		if word[0] == '#' {
			commented = true
			break
		}
		words = append(words, string(word))
		if len(words) > 3 {
			break // too many for any operation
		}
	}
	switch {
	case err == nil, err == io.EOF:
		return words, nil
	case errors.Is(err, bufio.ErrBufferFull) && commented:
		return words, r.skipLine()
	case errors.Is(err, bufio.ErrBufferFull):
		return nil, r.errorAt(r.line, fmt.Errorf("line is longer than %d bytes", maxLine))
	}
	return nil, fmt.Errorf("reading %s: %w", r.file, err)
}

// skipLine passes over the rest of a long line.
func (r *Reader) skipLine() error {
	for {
		switch _, err := r.lines.ReadSlice('\n'); {
		case err == nil, err == io.EOF:
			return nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return fmt.Errorf("reading %s: %w", r.file, err)
		}
	}
}

var usages = map[Verb]string{Alloc: "alloc NAME SIZE", Free: "free NAME", GC: "gc", Iteration: "iteration"}

func parse(words []string) (Op, error) {
	op := Op{Verb: Verb(words[0])}
	usage, ok := usages[op.Verb]
	if !ok {
		return Op{}, fmt.Errorf("unknown operation %q: use `alloc NAME SIZE`, `free NAME`, `gc` or `iteration`", words[0])
	}
	if len(words) != 1+strings.Count(usage, " ") {
		return Op{}, fmt.Errorf("an operation of %s: use `%s`", count(words), usage)
	}
	if op.Verb == GC || op.Verb == Iteration {
		return op, nil
	}
	op.Name = words[1]
	unprintable := func(r rune) bool { return !unicode.IsGraphic(r) }
	if !utf8.ValidString(op.Name) || strings.ContainsFunc(op.Name, unprintable) {
		return Op{}, fmt.Errorf("name %q cannot be printed", op.Name)
	}
	if op.Verb == Free {
		return op, nil
	}
	var err error
	op.Size, err = parseSize(words[2])
	return op, err
}

func count(words []string) string {
	switch n := len(words); n {
	case 1:
		return "1 word"
	case 2, 3:
		return fmt.Sprintf("%d words", n)
	}
	return "more than 3 words"
}

// parseSize returns the bytes of a size, which needs no unit here.
func parseSize(text string) (uint64, error) {
	if number, err := strconv.ParseUint(text, 10, 64); err == nil {
		return number, nil
	}
	bytes, err := plain.ParseSize(text)
	return uint64(bytes), err
}
