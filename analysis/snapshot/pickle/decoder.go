// Package pickle decodes Python's pickles of plain values, of protocol 2 to 5, as torch's snapshots are.
//
// A pickle is a program for a stack machine. This decoder knows the opcodes that make plain
// values and refuses all that name, build or call anything: a snapshot is data.
//
// Entries, which are dictionaries in a list, are handed over as they come and forgotten, so memory does not grow with
// their number; everything else is kept. Every byte that is kept counts towards a budget.
package pickle

import (
	"errors"
	"fmt"
	"io"
	"slices"
)

// ErrCode is the error of an opcode that would import or call something.
var ErrCode = errors.New("the pickle asks for code to be run, which was refused: it is no snapshot of torch's")

// Kind is the type of a value.
type Kind uint8

const (
	KindNone Kind = iota
	KindBool
	KindInt
	KindFloat
	KindText  // N is an index of Texts
	KindList  // of lists
	KindDict  // of dicts, with its generation above bit 32
	KindTuple // of tuples
)

// Value is what a pickle has on its stack and in containers. The zero value is None.
type Value struct {
	Kind Kind
	N    uint64 // the value itself, or the number of the text or container
}

// Integer is the value of an integer that may be negative.
func (v Value) Integer() int64 { return int64(v.N) }

// Dict is a dictionary: its keys and values in turn. A slot is used again, under the next
// generation, once its dictionary was handed over.
type Dict struct {
	items      []Value
	generation uint32
	Note       int32 // the caller's; 0 until it sets one, and again once items are added
	entry      bool  // it has a text under the key of entries
}

// listOpen marks the number of a list as an index of open. Without it, the number is the one that replaced its items.
const listOpen = 1 << 63

// Decoder is the state of one pickle's program.
type Decoder struct {
	in     io.Reader
	buffer []byte // read, and from start on not decoded
	start  int
	before int64 // bytes of the pickle before buffer
	opcode int64 // offset of the one at hand

	stack  []Value
	marks  []int // heights of the stack
	memo   memo
	texts  []string            // those that the caller knows first
	known  map[string]uint64   // texts by content
	recent [32]uint64          // a text of each length, modulo 32
	pairs  map[[2]Value]uint64 // tuples of two integers
	lists  numbers
	open   [][]Value // the items of lists
	closed []uint64  // of open, to be used again
	dicts  []Dict
	spare  []uint64 // slots of dicts
	tuples [][]Value

	// Budget is how many bytes may still be kept.
	Budget int64
	// Entry, if set, is given the keys and values of a dictionary with a text under the first known text, and the place of its list
	// in the list around it. Entries of a list in no other one are forgotten: torch 2.13's host_traces.
	Entry func(items []Value, list int) error
}

const (
	bufferSize  = 1 << 20
	longestText = 1 << 24
	mostItems   = 512 // keys and values of a dictionary; torch writes some dozens

	markBytes = 32 // of memory that a mark takes while its slice grows, until it ends

	entryKey = 0 // the number of the key of entries

	mostGenerations = 1<<(memoKind-32) - 1 // of a dictionary's slot
)

// widths are the bytes behind an opcode that say its number, length or place.
var widths = [256]uint8{
	'K': 1, 'M': 2, 'J': 4, 'G': 8, // numbers
	0x8c: 1, 'U': 1, 'C': 1, 'X': 4, 'T': 4, 'B': 4, 0x8d: 8, 0x8e: 8, // texts
	'q': 1, 'r': 4, 'h': 1, 'j': 4, // the memo
}

// NewDecoder returns a decoder that keeps so many bytes at most. The texts that the caller knows, one at least, have the numbers of their
// places. The first of them is the key that makes a dictionary an entry.
func NewDecoder(in io.Reader, budget int64, known []string) *Decoder {
	d := &Decoder{
		in: in, buffer: make([]byte, 0, bufferSize), texts: slices.Clip(known), known: map[string]uint64{},
		pairs: map[[2]Value]uint64{}, Budget: budget,
	}
	for at, text := range known {
		d.known[text] = uint64(at)
	}
	return d
}

func (d *Decoder) fail(format string, args ...any) error {
	return fmt.Errorf("at byte %d: %w", d.opcode, fmt.Errorf(format, args...))
}

// Texts are all that the pickle has, by number.
func (d *Decoder) Texts() []string { return d.texts }

// Keep takes bytes from the budget: those that the caller keeps, too.
func (d *Decoder) Keep(bytes int64) error {
	if d.Budget -= bytes; d.Budget < 0 {
		return d.fail("the snapshot needs more memory than it may have")
	}
	return nil
}

// next is the next n bytes, valid until the next call.
func (d *Decoder) next(n int) ([]byte, error) {
	if len(d.buffer)-d.start < n {
		if err := d.fill(n); err != nil {
			return nil, err
		}
	}
	bytes := d.buffer[d.start : d.start+n]
	d.start += n
	return bytes, nil
}

func (d *Decoder) fill(n int) error {
	d.before += int64(d.start)
	left := copy(d.buffer[:cap(d.buffer)], d.buffer[d.start:])
	if n > cap(d.buffer) {
		d.buffer = append(make([]byte, 0, n), d.buffer[:left]...)
	}
	d.buffer, d.start = d.buffer[:left], 0
	for len(d.buffer) < n {
		got, err := d.in.Read(d.buffer[len(d.buffer):cap(d.buffer)])
		d.buffer = d.buffer[:len(d.buffer)+got]
		if err == io.EOF && len(d.buffer) < n {
			return d.fail("the pickle is cut off")
		}
		if err != nil && err != io.EOF {
			return err
		}
	}
	return nil
}

func (d *Decoder) push(kind Kind, n uint64) error {
	if len(d.stack) == cap(d.stack) {
		if err := d.Keep(16 * int64(len(d.stack)+1)); err != nil {
			return err
		}
	}
	d.stack = append(d.stack, Value{kind, n})
	return nil
}

// Decode runs the pickle and returns what it leaves.
func (d *Decoder) Decode() (Value, error) {
	for {
		d.quick()
		d.opcode = d.before + int64(d.start)
		op, err := d.next(1)
		if err != nil {
			return Value{}, err
		}
		if op[0] == '.' {
			if len(d.stack) != 1 || len(d.marks) != 0 {
				return Value{}, d.fail("the pickle leaves %d values", len(d.stack))
			}
			return d.stack[0], nil
		}
		if err := d.step(op[0]); err != nil {
			return Value{}, err
		}
	}
}

func (d *Decoder) step(op byte) error {
	switch op {
	case 0x80: // PROTO
		version, err := d.next(1)
		if err == nil && version[0] > 5 {
			err = d.fail("protocol %d, known are 2 to 5", version[0])
		}
		return err
	case 0x95: // FRAME
		_, err := d.next(8)
		return err
	case '(':
		if err := d.Keep(markBytes); err != nil {
			return err
		}
		d.marks = append(d.marks, len(d.stack))
		return nil
	case 'N', 0x88, 0x89, 'K', 'M', 'J', 0x8a, 0x8b, 'G':
		return d.number(op)
	case 0x8c, 'X', 0x8d, 'U', 'T', 'C', 'B', 0x8e:
		return d.pushText(op)
	case ']':
		d.lists.grow(d.lists.count+1, 0)
		return errors.Join(d.Keep(8), d.push(KindList, d.lists.count-1))
	case '}':
		return d.newDict()
	case ')', 't', 0x85, 0x86, 0x87:
		return d.tuple(op)
	case 'a', 'e':
		return d.append(op)
	case 's', 'u':
		return d.setItems(op)
	case 'q', 'r', 0x94, 'h', 'j':
		return d.remember(op)
	case '0':
		_, err := d.pop()
		return err
	case '2':
		top, err := d.top()
		if err != nil {
			return err
		}
		return d.push(top.Kind, top.N)
	case 'c', 0x93, 'R', 'b', 'i', 'o', 0x81, 0x92, 0x82, 0x83, 0x84, 'P', 'Q':
		return d.fail("opcode 0x%02x: %w", op, ErrCode)
	}
	return d.fail("opcode 0x%02x is not one of a snapshot", op)
}
