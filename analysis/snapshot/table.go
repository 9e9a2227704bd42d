package snapshot

import "slices"

// table has values by address: a B+ tree of two levels, whose leaves have numbers of slots only, so that a search stays in
// few cache lines. It remembers the place that it found last: of the two or three calls for an entry of a trace, which
// are about one address, only the first one searches.
type table[V any] struct {
	firsts []uint64 // the first address of each leaf, by which leaves are found; 0 for the first leaf
	leaves []*leaf
	count  int
	last   place
	slots  []V
	spare  []int32
}

const leafSize = 128

// leaf has addresses in ascending order, and the slot of each.
type leaf struct {
	count int
	addrs [leafSize]uint64
	slots [leafSize]int32
}

// place is an index into a leaf; -1 where all addresses of the table are greater than the one that was sought.
type place struct{ leaf, at int }

func (t *table[V]) len() int { return t.count }

// find returns the place of the last address up to addr. The table is not empty.
func (t *table[V]) find(addr uint64) place {
	if p := t.last; p.leaf < len(t.leaves) && t.is(p, addr) {
		return p
	}
	n := lastUpTo(t.firsts, addr)
	l := t.leaves[n]
	t.last = place{n, lastUpTo(l.addrs[:l.count], addr)}
	return t.last
}

// lastUpTo returns the index of the last address up to addr, -1 if there is none.
func lastUpTo(addrs []uint64, addr uint64) int {
	from, to := 0, len(addrs) // the first greater one is in [from, to]
	for from < to {
		if middle := int(uint(from+to) / 2); addrs[middle] <= addr {
			from = middle + 1
		} else {
			to = middle
		}
	}
	return from - 1
}

// is says whether find would return a place of a leaf that there is.
func (t *table[V]) is(p place, addr uint64) bool {
	l := t.leaves[p.leaf]
	switch {
	case p.at < 0 || p.at >= l.count || l.addrs[p.at] > addr:
		return false
	case p.at+1 < l.count:
		return l.addrs[p.at+1] > addr
	}
	return p.leaf+1 == len(t.leaves) || t.firsts[p.leaf+1] > addr
}

func (t *table[V]) value(p place) (addr uint64, v *V) {
	l := t.leaves[p.leaf]
	return l.addrs[p.at], &t.slots[l.slots[p.at]]
}

// upTo returns the last address up to addr that has a value, and the value; nil if there is none. The value is valid
// until the next set or delete.
func (t *table[V]) upTo(addr uint64) (found uint64, v *V) {
	if t.count == 0 {
		return 0, nil
	}
	if p := t.find(addr); p.at >= 0 {
		return t.value(p)
	}
	return 0, nil // all are greater
}

// from is upTo of the first address that is addr or greater.
func (t *table[V]) from(addr uint64) (found uint64, v *V) {
	if found, v = t.upTo(addr); v != nil && found == addr || t.count == 0 {
		return found, v
	}
	p := t.last
	if p.at++; p.at == t.leaves[p.leaf].count {
		p = place{p.leaf + 1, 0}
	}
	if p.leaf == len(t.leaves) {
		return 0, nil
	}
	return t.value(p)
}

// get is upTo of that address alone.
func (t *table[V]) get(addr uint64) *V {
	if found, v := t.upTo(addr); v != nil && found == addr {
		return v
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
	if t.count == 0 {
		t.leaves, t.firsts, t.last = []*leaf{new(leaf)}, []uint64{0}, place{0, -1}
	}
	p := t.last
	if t.leaves[p.leaf].count == leafSize {
		p = t.split(p)
	}
	l, at := t.leaves[p.leaf], p.at+1
	copy(l.addrs[at+1:l.count+1], l.addrs[at:l.count])
	copy(l.slots[at+1:l.count+1], l.slots[at:l.count])
	l.addrs[at], l.slots[at] = addr, slot
	l.count++
	t.count++
	t.last = place{p.leaf, at}
}

// split makes two leaves of one, and returns where its place is then.
func (t *table[V]) split(p place) place {
	l, right := t.leaves[p.leaf], new(leaf)
	const half = leafSize / 2
	right.count = copy(right.addrs[:], l.addrs[half:])
	copy(right.slots[:], l.slots[half:])
	l.count = half
	t.leaves = slices.Insert(t.leaves, p.leaf+1, right)
	t.firsts = slices.Insert(t.firsts, p.leaf+1, right.addrs[0])
	if p.at >= half {
		return place{p.leaf + 1, p.at - half}
	}
	return p
}

// delete removes an address and its value.
func (t *table[V]) delete(addr uint64) {
	if t.get(addr) == nil {
		return
	}
	p := t.last
	l := t.leaves[p.leaf]
	t.spare = append(t.spare, l.slots[p.at])
	copy(l.addrs[p.at:], l.addrs[p.at+1:l.count])
	copy(l.slots[p.at:], l.slots[p.at+1:l.count])
	l.count--
	t.count--
	t.last.at--
	switch {
	case l.count == 0:
		t.remove(p.leaf)
	case p.at == 0 && p.leaf > 0:
		t.firsts[p.leaf] = l.addrs[0]
	}
	// Leaves that were emptied in part are joined, so that there are never many more than addresses need.
	t.join(p.leaf)
	t.join(p.leaf - 1)
}

func (t *table[V]) remove(n int) {
	t.leaves, t.firsts, t.last = slices.Delete(t.leaves, n, n+1), slices.Delete(t.firsts, n, n+1), place{0, -1}
	if len(t.firsts) > 0 {
		t.firsts[0] = 0
	}
}

// join makes one leaf of a leaf and the next, if both fit into half of one.
func (t *table[V]) join(n int) {
	if n < 0 || n+1 >= len(t.leaves) || t.leaves[n].count+t.leaves[n+1].count > leafSize/2 {
		return
	}
	l, right := t.leaves[n], t.leaves[n+1]
	copy(l.addrs[l.count:], right.addrs[:right.count])
	copy(l.slots[l.count:], right.slots[:right.count])
	l.count += right.count
	t.remove(n + 1)
}
