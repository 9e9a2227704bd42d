package snapshot

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
)

// A pickle is a program for a stack machine. This decoder knows the opcodes that make plain
// values and refuses all that name, build or call anything: a snapshot is data.
//
// Entries of a trace are handed over as they come and forgotten, so memory does not grow with
// their number; everything else is kept. Every byte that is kept counts towards a budget.

// errCode is the error of an opcode that would import or call something.
var errCode = errors.New("the pickle wants code to be run, which a snapshot of torch never does")

type valueKind uint8

const (
	kindNone valueKind = iota
	kindBool
	kindInt
	kindFloat
	kindText  // n is an index of texts
	kindList  // of lists
	kindDict  // of dicts, with its generation above bit 32
	kindTuple // of tuples
)

type value struct {
	kind valueKind
	n    uint64
}

func (v value) integer() int64 { return int64(v.n) }

// dict is a dictionary's keys and values in turn. A slot is used again, under the next
// generation, once its dictionary was handed over.
type dict struct {
	items      []value
	generation uint32
	frame      int32 // its number as a stack frame, from 1; 0 while it is not known
}

type list struct {
	items []value
	stack int64 // as a stack of frames, what it was numbered; 0 while it was not
}

type decoder struct {
	in     io.Reader
	buffer []byte // read and not decoded
	start  int    // of what is left in buffer
	offset int64  // of buffer[start] in the pickle
	opcode int64  // offset of the one at hand

	stack  []value
	marks  []int   // heights of the stack
	memo   []value // by number; kindNone with n = 1 where there is nothing
	texts  []string
	known  map[string]uint64 // texts by content
	lists  []list
	dicts  []dict
	spare  []uint64 // slots of dicts
	tuples [][]value
	budget int64 // bytes that may still be kept

	// entry is given a dictionary that has an action, and the place of its list in the list
	// around it.
	entry func(d *decoder, items []value, device int) error
}

const (
	bufferSize  = 1 << 20
	longestText = 1 << 24
	memoEmpty   = 1
)

// widths are the bytes behind an opcode that say its number, length or place.
var widths = [256]uint8{
	'K': 1, 'M': 2, 'J': 4, 'G': 8, // numbers
	0x8c: 1, 'U': 1, 'C': 1, 'X': 4, 'T': 4, 'B': 4, 0x8d: 8, 0x8e: 8, // texts
	'q': 1, 'r': 4, 'h': 1, 'j': 4, // the memo
}

func newDecoder(in io.Reader, budget int64) *decoder {
	return &decoder{in: in, buffer: make([]byte, 0, bufferSize), known: map[string]uint64{}, budget: budget}
}

func (d *decoder) fail(format string, args ...any) error {
	return fmt.Errorf("at byte %d: %w", d.opcode, fmt.Errorf(format, args...))
}

// keep takes bytes from the budget.
func (d *decoder) keep(bytes int64) error {
	if d.budget -= bytes; d.budget < 0 {
		return d.fail("the snapshot needs more memory than it may have")
	}
	return nil
}

// next is the next n bytes, valid until the next call.
func (d *decoder) next(n int) ([]byte, error) {
	if len(d.buffer)-d.start < n {
		if err := d.fill(n); err != nil {
			return nil, err
		}
	}
	bytes := d.buffer[d.start : d.start+n]
	d.start += n
	d.offset += int64(n)
	return bytes, nil
}

func (d *decoder) fill(n int) error {
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

func (d *decoder) push(kind valueKind, n uint64) error {
	if len(d.stack) == cap(d.stack) {
		if err := d.keep(16 * int64(len(d.stack)+1)); err != nil {
			return err
		}
	}
	d.stack = append(d.stack, value{kind, n})
	return nil
}

// decode runs the pickle and returns what it leaves.
func (d *decoder) decode() (value, error) {
	for {
		d.opcode = d.offset
		op, err := d.next(1)
		if err != nil {
			return value{}, err
		}
		if op[0] == '.' {
			if len(d.stack) != 1 || len(d.marks) != 0 {
				return value{}, d.fail("the pickle leaves %d values", len(d.stack))
			}
			return d.stack[0], nil
		}
		if err := d.step(op[0]); err != nil {
			return value{}, err
		}
	}
}

func (d *decoder) step(op byte) error {
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
		if err := d.keep(8); err != nil {
			return err
		}
		d.marks = append(d.marks, len(d.stack))
		return nil
	case 'N', 0x88, 0x89, 'K', 'M', 'J', 0x8a, 0x8b, 'G':
		return d.number(op)
	case 0x8c, 'X', 0x8d, 'U', 'T', 'C', 'B', 0x8e:
		return d.text(op)
	case ']':
		d.lists = append(d.lists, list{})
		return errors.Join(d.keep(40), d.push(kindList, uint64(len(d.lists)-1)))
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
		return d.push(top.kind, top.n)
	case 'c', 0x93, 'R', 'b', 'i', 'o', 0x81, 0x92, 0x82, 0x83, 0x84, 'P', 'Q':
		return d.fail("opcode 0x%02x: %w", op, errCode)
	}
	return d.fail("opcode 0x%02x is not one of a snapshot", op)
}

// number pushes what is no text and no container.
func (d *decoder) number(op byte) error {
	switch op {
	case 'N':
		return d.push(kindNone, 0)
	case 0x88, 0x89:
		return d.push(kindBool, uint64(0x89-op))
	case 0x8a, 0x8b:
		return d.long(op)
	}
	b, err := d.next(int(widths[op]))
	if err != nil {
		return err
	}
	switch op {
	case 'K':
		return d.push(kindInt, uint64(b[0]))
	case 'M':
		return d.push(kindInt, uint64(binary.LittleEndian.Uint16(b)))
	case 'J':
		return d.push(kindInt, uint64(int64(int32(binary.LittleEndian.Uint32(b)))))
	}
	return d.push(kindFloat, binary.BigEndian.Uint64(b))
}

// long pushes an integer of up to 8 bytes, or of 9 where the last only keeps it positive.
func (d *decoder) long(op byte) error {
	count, err := d.next(1 + 3*int(op-0x8a))
	if err != nil {
		return err
	}
	n := int(count[0])
	if op == 0x8b {
		n = int(min(binary.LittleEndian.Uint32(count), 1<<20))
	}
	b, err := d.next(n)
	if err != nil {
		return err
	}
	var word [8]byte
	if n > 0 && b[n-1] >= 0x80 {
		binary.LittleEndian.PutUint64(word[:], math.MaxUint64)
	}
	if n > 9 || n == 9 && b[8] != 0 {
		return d.fail("an integer of %d bytes", n)
	}
	copy(word[:], b)
	return d.push(kindInt, binary.LittleEndian.Uint64(word[:]))
}

func (d *decoder) text(op byte) error {
	b, err := d.next(int(widths[op]))
	if err != nil {
		return err
	}
	var word [8]byte
	copy(word[:], b)
	n := binary.LittleEndian.Uint64(word[:])
	if n > longestText {
		return d.fail("a text of %d bytes", n)
	}
	if b, err = d.next(int(n)); err != nil {
		return err
	}
	at, known := d.known[string(b)]
	if !known {
		if err := d.keep(int64(n) + 64); err != nil {
			return err
		}
		at = uint64(len(d.texts))
		text := string(b)
		d.texts = append(d.texts, text)
		d.known[text] = at
	}
	return d.push(kindText, at)
}

func (d *decoder) newDict() error {
	if n := len(d.spare); n > 0 {
		slot := d.spare[n-1]
		d.spare = d.spare[:n-1]
		return d.push(kindDict, slot|uint64(d.dicts[slot].generation)<<32)
	}
	if err := d.keep(40); err != nil {
		return err
	}
	d.dicts = append(d.dicts, dict{})
	return d.push(kindDict, uint64(len(d.dicts)-1))
}

// dict is the dictionary of a value; nil of one that was handed over, or of no dictionary.
func (d *decoder) dict(v value) *dict {
	if v.kind != kindDict {
		return nil
	}
	found := &d.dicts[uint32(v.n)]
	if uint64(found.generation) != v.n>>32 {
		return nil
	}
	return found
}

func (d *decoder) tuple(op byte) error {
	n := 0
	switch op {
	case 't':
		from, err := d.mark()
		if err != nil {
			return err
		}
		n = len(d.stack) - from
	case 0x85, 0x86, 0x87:
		n = int(op) - 0x84
	}
	if n > d.height() {
		return d.fail("a tuple of %d values, with %d on the stack", n, d.height())
	}
	if err := d.keep(24 + 16*int64(n)); err != nil {
		return err
	}
	at := len(d.stack) - n
	d.tuples = append(d.tuples, slices.Clone(d.stack[at:]))
	d.stack = d.stack[:at]
	return d.push(kindTuple, uint64(len(d.tuples)-1))
}

// mark ends the newest mark and returns the height that it was set at.
func (d *decoder) mark() (int, error) {
	if len(d.marks) == 0 {
		return 0, d.fail("no mark is set")
	}
	at := d.marks[len(d.marks)-1]
	d.marks = d.marks[:len(d.marks)-1]
	return at, nil
}

// height is how many values lie above the newest mark.
func (d *decoder) height() int {
	if len(d.marks) == 0 {
		return len(d.stack)
	}
	return len(d.stack) - d.marks[len(d.marks)-1]
}

func (d *decoder) top() (value, error) {
	if d.height() == 0 {
		return value{}, d.fail("nothing is on the stack")
	}
	return d.stack[len(d.stack)-1], nil
}

func (d *decoder) pop() (value, error) {
	top, err := d.top()
	if err == nil {
		d.stack = d.stack[:len(d.stack)-1]
	}
	return top, err
}

// content is where the values for a container begin, the container being right below.
func (d *decoder) content(many bool, single int) (from int, err error) {
	if many {
		if from, err = d.mark(); err != nil {
			return 0, err
		}
	} else if from = len(d.stack) - single; d.height() <= single {
		return 0, d.fail("nothing to add to")
	}
	if from < 1 {
		return 0, d.fail("nothing to add to")
	}
	return from, nil
}

func (d *decoder) append(op byte) error {
	from, err := d.content(op == 'e', 1)
	if err != nil {
		return err
	}
	if d.stack[from-1].kind != kindList {
		return d.fail("values for a list, and no list")
	}
	l := &d.lists[d.stack[from-1].n]
	for _, v := range d.stack[from:] {
		if found := d.dict(v); found != nil && d.entry != nil && d.field(found, "action").kind == kindText {
			if err := d.entry(d, found.items, d.place(from-1)); err != nil {
				return d.fail("%w", err)
			}
			found.items = found.items[:0]
			found.generation++
			d.spare = append(d.spare, uint64(uint32(v.n)))
			continue
		}
		if err := d.keep(16); err != nil {
			return err
		}
		l.items = append(l.items, v)
	}
	d.stack = d.stack[:from]
	return nil
}

// place is which element of the list around it the list at a height of the stack will be.
func (d *decoder) place(at int) int {
	from := 0
	if n := len(d.marks); n > 0 {
		from = d.marks[n-1]
	}
	if from > 0 && d.stack[from-1].kind == kindList {
		return len(d.lists[d.stack[from-1].n].items) + at - from
	}
	if at > 0 && d.stack[at-1].kind == kindList {
		return len(d.lists[d.stack[at-1].n].items)
	}
	return 0
}

func (d *decoder) setItems(op byte) error {
	from, err := d.content(op == 'u', 2)
	if err != nil {
		return err
	}
	found := d.dict(d.stack[from-1])
	if found == nil || (len(d.stack)-from)%2 != 0 {
		return d.fail("pairs for a dictionary, and no dictionary")
	}
	if grown := len(found.items) + len(d.stack) - from; grown > cap(found.items) {
		if err := d.keep(16 * int64(grown)); err != nil {
			return err
		}
	}
	found.items = append(found.items, d.stack[from:]...)
	found.frame = 0
	d.stack = d.stack[:from]
	return nil
}

func (d *decoder) remember(op byte) error {
	b, err := d.next(int(widths[op]))
	if err != nil {
		return err
	}
	var word [8]byte
	copy(word[:], b)
	n := binary.LittleEndian.Uint64(word[:])
	if op == 'h' || op == 'j' {
		if n >= uint64(len(d.memo)) || d.memo[n] == (value{kindNone, memoEmpty}) {
			return d.fail("value %d was not kept", n)
		}
		return d.push(d.memo[n].kind, d.memo[n].n)
	}
	if op == 0x94 {
		n = uint64(len(d.memo))
	}
	top, err := d.top()
	if err != nil {
		return err
	}
	if grown := int64(n) - int64(len(d.memo)) + 1; grown > 0 {
		if err := d.keep(16 * grown); err != nil {
			return err
		}
		for uint64(len(d.memo)) <= n {
			d.memo = append(d.memo, value{kindNone, memoEmpty})
		}
	}
	d.memo[n] = top
	return nil
}

// field is the value of a key, none where there is no such key.
func (d *decoder) field(found *dict, key string) value {
	for i := 0; found != nil && i+1 < len(found.items); i += 2 {
		if k := found.items[i]; k.kind == kindText && d.texts[k.n] == key {
			return found.items[i+1]
		}
	}
	return value{}
}

// textOf is a text, or "".
func (d *decoder) textOf(v value) string {
	if v.kind != kindText {
		return ""
	}
	return d.texts[v.n]
}

// itemsOf are the items of a list or a tuple.
func (d *decoder) itemsOf(v value) []value {
	switch v.kind {
	case kindList:
		return d.lists[v.n].items
	case kindTuple:
		return d.tuples[v.n]
	}
	return nil
}
