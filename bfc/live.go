package bfc

import "math/bits"

// liveTable finds the index of a chunk in use by its address: open addressing with linear
// probing, and removal that shifts back what had been displaced, so that it never needs
// cleaning. A slot is 8 bytes; host memory is proportional to the chunks in use, whatever
// the size of the device. The zero value is empty.
type liveTable struct {
	slots []liveSlot // a power of two of them, at most 3/4 in use
	shift uint       // home of a tag = tag >> shift
	count int
}

type liveSlot struct {
	tag   uint32 // upper half of the address's hash: its home, and a first comparison
	chunk int32  // index; none: the slot is empty
}

const minLiveSlots = 64

// tagOf spreads addresses, which differ in few bits, by Fibonacci hashing.
func tagOf(addr uint64) uint32 {
	return uint32((addr >> granuleBits) * 0x9e3779b97f4a7c15 >> 32)
}

// insert adds a chunk whose address is not in the table.
func (t *liveTable) insert(addr uint64, chunk int32) {
	if t.count >= len(t.slots)/4*3 {
		t.grow()
	}
	t.count++
	t.put(liveSlot{tagOf(addr), chunk})
}

func (t *liveTable) put(slot liveSlot) {
	mask := uint32(len(t.slots) - 1)
	at := slot.tag >> t.shift
	for t.slots[at&mask].chunk != none {
		at++
	}
	t.slots[at&mask] = slot
}

func (t *liveTable) grow() {
	old := t.slots
	t.slots = make([]liveSlot, max(minLiveSlots, 2*len(old)))
	t.shift = 32 - uint(bits.TrailingZeros(uint(len(t.slots))))
	for _, slot := range old {
		if slot.chunk != none {
			t.put(slot)
		}
	}
}

// find returns the slot and the index of the chunk in use at addr; index none if there is none.
func (t *liveTable) find(chunks []chunk, addr uint64) (slot uint32, chunk int32) {
	if len(t.slots) == 0 {
		return 0, none
	}
	mask := uint32(len(t.slots) - 1)
	tag := tagOf(addr)
	for at := tag >> t.shift & mask; ; at = (at + 1) & mask {
		slot := t.slots[at]
		if slot.chunk == none {
			return at, none
		}
		if slot.tag == tag && chunks[slot.chunk].addr == addr {
			return at, slot.chunk
		}
	}
}

// remove empties a slot, and moves entries behind it that it had displaced nearer to their home.
func (t *liveTable) remove(slot uint32) {
	mask := uint32(len(t.slots) - 1)
	hole := slot
	for at := (hole + 1) & mask; ; at = (at + 1) & mask {
		next := t.slots[at&mask]
		if next.chunk == none {
			break
		}
		// next may move to the hole if its home is not between the hole and itself.
		home := next.tag >> t.shift
		if (at-home)&mask >= (at-hole)&mask {
			t.slots[hole&mask] = next
			hole = at
		}
	}
	t.slots[hole&mask] = liveSlot{}
	t.count--
}
