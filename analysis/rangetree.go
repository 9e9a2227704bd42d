package analysis

import "github.com/tidwall/btree"

// rangeTree is a rangeSet that may have any number of ranges: every change and question takes
// logarithmic time, and a copy none. The zero rangeTree is empty.
type rangeTree struct {
	ends btree.Map[int64, int64] // by start
}

func (t *rangeTree) len() int { return t.ends.Len() }

// before is the last range that starts at or before addr.
func (t *rangeTree) before(addr int64) (r addressRange, ok bool) {
	t.ends.Descend(addr, func(from, to int64) bool {
		r, ok = addressRange{from, to}, true
		return false
	})
	return r, ok
}

// after is the first range that ends behind addr.
func (t *rangeTree) after(addr int64) (r addressRange, ok bool) {
	if r, ok = t.before(addr); ok && r.to > addr {
		return r, true
	}
	ok = false
	t.ends.Ascend(addr, func(from, to int64) bool {
		r, ok = addressRange{from, to}, true
		return false
	})
	return r, ok
}

// overlapping is the first range that has an address of r.
func (t *rangeTree) overlapping(r addressRange) (addressRange, bool) {
	if found, ok := t.after(r.from); ok && found.from < r.to {
		return found, true
	}
	return addressRange{}, false
}

// add adds a range of which nothing is in the set, joined with what ends where it starts
// (left) and what starts where it ends (right) if asked to.
func (t *rangeTree) add(r addressRange, left, right bool) {
	if left {
		if low, ok := t.before(r.from); ok && low.to == r.from {
			r.from = low.from
		}
	}
	if right {
		if to, ok := t.ends.Get(r.to); ok {
			t.ends.Delete(r.to)
			r.to = to
		}
	}
	t.ends.Set(r.from, r.to)
}

// remove takes out what is in the set of r.
func (t *rangeTree) remove(r addressRange) {
	for {
		old, ok := t.overlapping(r)
		if !ok {
			return
		}
		t.ends.Delete(old.from)
		if old.from < r.from {
			t.ends.Set(old.from, r.from)
		}
		if old.to > r.to {
			t.ends.Set(r.to, old.to)
		}
	}
}

// joinAt joins the range that ends at addr with the one that starts there.
func (t *rangeTree) joinAt(addr int64) {
	to, ok := t.ends.Get(addr)
	if !ok {
		return
	}
	if low, ok := t.before(addr - 1); ok && low.to == addr {
		t.ends.Delete(addr)
		t.ends.Set(low.from, to)
	}
}

// snapshot is the set as it is now, whatever becomes of it.
func (t *rangeTree) snapshot() rangeTree { return rangeTree{*t.ends.Copy()} }

// ranges are all of the set, in ascending order.
func (t *rangeTree) ranges() rangeSet {
	out := make(rangeSet, 0, t.len())
	t.ends.Scan(func(from, to int64) bool {
		out = append(out, addressRange{from, to})
		return true
	})
	return out
}
