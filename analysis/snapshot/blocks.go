package snapshot

import "github.com/tidwall/btree"

// blockTable has blocks by address. Its tree has numbers of slots only, so that a search stays in few cache lines.
type blockTable struct {
	tree  btree.Map[uint64, int32]
	slots []used
	spare []int32
}

// get returns the block that begins at an address, or nil. It is valid until the next set or delete.
func (t *blockTable) get(addr uint64) *used {
	if slot, ok := t.tree.Get(addr); ok {
		return &t.slots[slot]
	}
	return nil
}

// set adds a block, in place of one at the same address.
func (t *blockTable) set(b *used) {
	slot := int32(len(t.slots))
	if n := len(t.spare); n > 0 {
		slot, t.spare = t.spare[n-1], t.spare[:n-1]
		t.slots[slot] = *b
	} else {
		t.slots = append(t.slots, *b)
	}
	if replaced, was := t.tree.Set(b.addr, slot); was {
		t.spare = append(t.spare, replaced)
	}
}

func (t *blockTable) delete(addr uint64) {
	if slot, ok := t.tree.Delete(addr); ok {
		t.spare = append(t.spare, slot)
	}
}

// upTo returns the last block that begins at an address or before it, or nil.
func (t *blockTable) upTo(addr uint64) (b *used) {
	t.tree.Descend(addr, func(_ uint64, slot int32) bool {
		b = &t.slots[slot]
		return false
	})
	return b
}

// from returns the first block that begins at an address or behind it, or nil.
func (t *blockTable) from(addr uint64) (b *used) {
	t.tree.Ascend(addr, func(_ uint64, slot int32) bool {
		b = &t.slots[slot]
		return false
	})
	return b
}
