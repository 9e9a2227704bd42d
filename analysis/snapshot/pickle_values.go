package snapshot

import (
	"encoding/binary"
	"math"
	"slices"
)

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
	n := littleEndian(b)
	if n > longestText {
		return d.fail("a text of %d bytes", n)
	}
	if b, err = d.next(int(n)); err != nil {
		return err
	}
	recent := &d.recent[n%uint64(len(d.recent))]
	if d.texts[*recent] == string(b) {
		return d.push(kindText, *recent)
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
	*recent = at
	return d.push(kindText, at)
}

// openList returns the items of a list, for more of them. A list that became a stack begins anew.
func (d *decoder) openList(number uint64) *[]value {
	word := d.lists.at(number)
	if *word&listOpen != 0 {
		return &d.open[*word&^listOpen]
	}
	slot := uint64(len(d.open))
	if n := len(d.closed); n > 0 {
		slot, d.closed = d.closed[n-1], d.closed[:n-1]
	} else {
		d.open = append(d.open, nil)
		d.budget -= 32
	}
	*word = listOpen | slot
	return &d.open[slot]
}

// closeList forgets the items of a list and keeps the number of its stack.
func (d *decoder) closeList(number uint64, stack int64) {
	slot := *d.lists.at(number) &^ listOpen
	if cap(d.open[slot]) <= mostSpare {
		d.open[slot] = d.open[slot][:0]
	} else {
		d.open[slot] = nil
	}
	d.closed = append(d.closed, slot)
	*d.lists.at(number) = uint64(stack)
}

// mostSpare bounds the items of a list that is used again.
const mostSpare = 256

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
	at := len(d.stack) - n
	number, err := d.tupleOf(d.stack[at:])
	if err != nil {
		return err
	}
	d.stack = d.stack[:at]
	return d.push(kindTuple, number)
}

// tupleOf is the number of a tuple. Equal pairs of integers, as each entry may have for its pool,
// are kept once.
func (d *decoder) tupleOf(items []value) (uint64, error) {
	isPair := len(items) == 2 && items[0].kind == kindInt && items[1].kind == kindInt
	if isPair {
		if number, known := d.pairs[[2]value(items)]; known {
			return number, nil
		}
	}
	if err := d.keep(100 + 16*int64(len(items))); err != nil {
		return 0, err
	}
	number := uint64(len(d.tuples))
	d.tuples = append(d.tuples, slices.Clone(items))
	if isPair {
		d.pairs[[2]value(items)] = number
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
