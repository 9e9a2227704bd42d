package ledger

import "math/bits"

// addressTable finds the segment that starts at an address: open addressing, linear
// probing, deletion by shifting back, so that it never fills with tombstones and never
// allocates but to double.
type addressTable struct {
	slots []tableSlot // a power of two of them; at most half are in use
	shift uint        // 64 - log2(len(slots))
	used  int
}

type tableSlot struct {
	key   uint64 // address + 1; 0 is an empty slot
	value int32
}

const none int32 = -1

func newAddressTable() addressTable {
	return addressTable{slots: make([]tableSlot, 1024), shift: 64 - 10}
}

func (t *addressTable) home(key uint64) int {
	return int(key * 0x9e3779b97f4a7c15 >> (t.shift & 63))
}

// find is the value at addr, or none.
func (t *addressTable) find(addr int64) int32 {
	key := uint64(addr) + 1
	slots := t.slots
	mask := len(slots) - 1
	for i := t.home(key) & mask; ; i = (i + 1) & mask {
		switch slots[i].key {
		case key:
			return slots[i].value
		case 0:
			return none
		}
	}
}

// insert adds an address that is not in the table.
func (t *addressTable) insert(addr int64, value int32) {
	if 2*(t.used+1) > len(t.slots) {
		t.double()
	}
	t.used++
	t.place(tableSlot{uint64(addr) + 1, value})
}

func (t *addressTable) place(s tableSlot) {
	mask := len(t.slots) - 1
	i := t.home(s.key) & mask
	for t.slots[i].key != 0 {
		i = (i + 1) & mask
	}
	t.slots[i] = s
}

func (t *addressTable) double() {
	old := t.slots
	t.slots = make([]tableSlot, 2*len(old))
	t.shift = uint(64 - bits.TrailingZeros(uint(len(t.slots))))
	for _, s := range old {
		if s.key != 0 {
			t.place(s)
		}
	}
}

// remove takes an address out that is in the table.
func (t *addressTable) remove(addr int64) {
	key := uint64(addr) + 1
	mask := len(t.slots) - 1
	hole := t.home(key) & mask
	for t.slots[hole].key != key {
		hole = (hole + 1) & mask
	}
	t.used--
	for i := (hole + 1) & mask; t.slots[i].key != 0; i = (i + 1) & mask {
		// The entry at i may move to the hole unless its home lies behind the hole.
		if home := t.home(t.slots[i].key) & mask; (i-home)&mask >= (i-hole)&mask {
			t.slots[hole] = t.slots[i]
			hole = i
		}
	}
	t.slots[hole] = tableSlot{}
}
