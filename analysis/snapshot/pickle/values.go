package pickle

import (
	"encoding/binary"
	"math"
	"slices"
)

// number pushes what is no text and no container.
func (d *Decoder) number(op byte) error {
	switch op {
	case 'N':
		return d.push(KindNone, 0)
	case 0x88, 0x89:
		return d.push(KindBool, uint64(0x89-op))
	case 0x8a, 0x8b:
		return d.long(op)
	}
	b, err := d.next(int(widths[op]))
	if err != nil {
		return err
	}
	switch op {
	case 'K':
		return d.push(KindInt, uint64(b[0]))
	case 'M':
		return d.push(KindInt, uint64(binary.LittleEndian.Uint16(b)))
	case 'J':
		return d.push(KindInt, uint64(int64(int32(binary.LittleEndian.Uint32(b)))))
	}
	return d.push(KindFloat, binary.BigEndian.Uint64(b))
}

// long pushes an integer of up to 8 bytes, or of 9 where the last only keeps it positive.
func (d *Decoder) long(op byte) error {
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
	return d.push(KindInt, binary.LittleEndian.Uint64(word[:]))
}

func (d *Decoder) pushText(op byte) error {
	b, err := d.next(int(widths[op]))
	if err != nil {
		return err
	}
	n := littleEndian(b)
	if n > longestText {
		return d.fail("a text of %d bytes", n)
	}
	if b, err = d.next(int(n)); err != nil {
		return err
	}
	recent := &d.recent[n%uint64(len(d.recent))]
	if d.texts[*recent] == string(b) {
		return d.push(KindText, *recent)
	}
	at, known := d.known[string(b)]
	if !known {
		if err := d.Keep(int64(n) + 64); err != nil {
			return err
		}
		at = uint64(len(d.texts))
		text := string(b)
		d.texts = append(d.texts, text)
		d.known[text] = at
	}
	*recent = at
	return d.push(KindText, at)
}

// openList returns the items of a list, for more of them. A list whose items were replaced begins anew.
func (d *Decoder) openList(number uint64) *[]Value {
	word := d.lists.at(number)
	if *word&listOpen != 0 {
		return &d.open[*word&^listOpen]
	}
	slot := uint64(len(d.open))
	if n := len(d.closed); n > 0 {
		slot, d.closed = d.closed[n-1], d.closed[:n-1]
	} else {
		d.open = append(d.open, nil)
		d.Budget -= 32
	}
	*word = listOpen | slot
	return &d.open[slot]
}

// List returns the items of a list; where open is false the number that replaced them, or 0 of a list that never had any.
func (d *Decoder) List(v Value) (items []Value, number int64, open bool) {
	word := *d.lists.at(v.N)
	if word&listOpen == 0 {
		return nil, int64(word), false
	}
	return d.open[word&^listOpen], 0, true
}

// Replace forgets the items that a list has, and keeps a number of the caller's in their place, which is not negative.
func (d *Decoder) Replace(list Value, number int64) {
	word := d.lists.at(list.N)
	slot := *word &^ listOpen
	d.Budget += 16 * int64(len(d.open[slot]))
	if cap(d.open[slot]) <= mostSpare {
		d.open[slot] = d.open[slot][:0]
	} else {
		d.open[slot] = nil
	}
	d.closed = append(d.closed, slot)
	*word = uint64(number)
}

// mostSpare bounds the items of a list that is used again.
const mostSpare = 256

func (d *Decoder) newDict() error {
	if n := len(d.spare); n > 0 {
		slot := d.spare[n-1]
		d.spare = d.spare[:n-1]
		return d.push(KindDict, slot|uint64(d.dicts[slot].generation)<<32)
	}
	if err := d.Keep(40); err != nil {
		return err
	}
	d.dicts = append(d.dicts, Dict{})
	return d.push(KindDict, uint64(len(d.dicts)-1))
}

// Dict is the dictionary of a value; nil of one that was handed over, or of no dictionary.
func (d *Decoder) Dict(v Value) *Dict {
	if v.Kind != KindDict {
		return nil
	}
	found := &d.dicts[uint32(v.N)]
	if uint64(found.generation) != v.N>>32 {
		return nil
	}
	return found
}

func (d *Decoder) tuple(op byte) error {
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
	at := len(d.stack) - n
	number, err := d.tupleOf(d.stack[at:])
	if err != nil {
		return err
	}
	d.stack = d.stack[:at]
	return d.push(KindTuple, number)
}

// tupleOf is the number of a tuple. Equal pairs of integers, as each entry may have for its pool,
// are kept once.
func (d *Decoder) tupleOf(items []Value) (uint64, error) {
	isPair := len(items) == 2 && items[0].Kind == KindInt && items[1].Kind == KindInt
	if isPair {
		if number, known := d.pairs[[2]Value(items)]; known {
			return number, nil
		}
	}
	if err := d.Keep(100 + 16*int64(len(items))); err != nil {
		return 0, err
	}
	number := uint64(len(d.tuples))
	d.tuples = append(d.tuples, slices.Clone(items))
	if isPair {
		d.pairs[[2]Value(items)] = number
	}
	return number, nil
}

// littleEndian is a number of 1, 2, 4 or 8 bytes.
func littleEndian(b []byte) (n uint64) {
	for i := len(b) - 1; i >= 0; i-- {
		n = n<<8 | uint64(b[i])
	}
	return n
}
