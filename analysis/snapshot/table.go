package snapshot

import "github.com/tidwall/btree"

// table has values by address. A value that it returns is valid until the next set or delete.
type table[V any] struct {
	at    btree.Map[uint64, int32] // slots
	slots []V
	spare []int32
}

func (t *table[V]) len() int { return t.at.Len() }

// upTo returns the last address up to addr that has a value, and the value; nil if there is none.
func (t *table[V]) upTo(addr uint64) (found uint64, v *V) {
	t.at.Descend(addr, func(at uint64, slot int32) bool {
		found, v = at, &t.slots[slot]
		return false
	})
	return found, v
}

// from is upTo of the first address that is addr or greater.
func (t *table[V]) from(addr uint64) (found uint64, v *V) {
	t.at.Ascend(addr, func(at uint64, slot int32) bool {
		found, v = at, &t.slots[slot]
		return false
	})
	return found, v
}

// between returns the starts of the ranges that overlap [from, to); end returns where a range ends.
func (t *table[V]) between(from, to uint64, end func(*V) uint64) (starts []uint64) {
	if start, v := t.upTo(from); v != nil && end(v) > from {
		starts = append(starts, start)
	}
	for start, v := t.from(from + 1); v != nil && start < to; start, v = t.from(start + 1) {
		starts = append(starts, start)
	}
	return starts
}

// get is upTo of that address alone.
func (t *table[V]) get(addr uint64) *V {
	if slot, there := t.at.Get(addr); there {
		return &t.slots[slot]
	}
	return nil
}

// set gives an address a value, in place of one that it has.
func (t *table[V]) set(addr uint64, v V) {
	if old := t.get(addr); old != nil {
		*old = v
		return
	}
	slot := int32(len(t.slots))
	if n := len(t.spare); n > 0 {
		slot, t.spare = t.spare[n-1], t.spare[:n-1]
		t.slots[slot] = v
	} else {
		t.slots = append(t.slots, v)
	}
	t.at.Set(addr, slot)
}

// delete removes an address and its value.
func (t *table[V]) delete(addr uint64) {
	if slot, there := t.at.Delete(addr); there {
		t.spare = append(t.spare, slot)
	}
}
