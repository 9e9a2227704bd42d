package ledger

import "github.com/tidwall/btree"

// RangeTree is a RangeSet that may have any number of ranges: every change and question takes
// logarithmic time. The zero RangeTree is empty.
type RangeTree struct {
	ends btree.Map[int64, int64] // by start
}

func (t *RangeTree) Len() int { return t.ends.Len() }

// Before is the last range that starts at or before addr.
func (t *RangeTree) Before(addr int64) (r Range, ok bool) {
	t.ends.Descend(addr, func(from, to int64) bool {
		r, ok = Range{from, to}, true
		return false
	})
	return r, ok
}

// After is the first range that ends behind addr.
func (t *RangeTree) After(addr int64) (r Range, ok bool) {
	if r, ok = t.Before(addr); ok && r.To > addr {
		return r, true
	}
	ok = false
	t.ends.Ascend(addr, func(from, to int64) bool {
		r, ok = Range{from, to}, true
		return false
	})
	return r, ok
}

// Overlapping is the first range that has an address of r.
func (t *RangeTree) Overlapping(r Range) (Range, bool) {
	if found, ok := t.After(r.From); ok && found.From < r.To {
		return found, true
	}
	return Range{}, false
}

// Add adds a range of which nothing is in the set, joined with what ends where it starts
// (left) and what starts where it ends (right) if asked to.
func (t *RangeTree) Add(r Range, left, right bool) {
	if left {
		if low, ok := t.Before(r.From); ok && low.To == r.From {
			r.From = low.From
		}
	}
	if right {
		if to, ok := t.ends.Get(r.To); ok {
			t.ends.Delete(r.To)
			r.To = to
		}
	}
	t.ends.Set(r.From, r.To)
}

// Remove takes out what is in the set of r.
func (t *RangeTree) Remove(r Range) {
	for {
		old, ok := t.Overlapping(r)
		if !ok {
			return
		}
		t.ends.Delete(old.From)
		if old.From < r.From {
			t.ends.Set(old.From, r.From)
		}
		if old.To > r.To {
			t.ends.Set(r.To, old.To)
		}
	}
}

// JoinAt joins the range that ends at addr with the one that starts there.
func (t *RangeTree) JoinAt(addr int64) {
	to, ok := t.ends.Get(addr)
	if !ok {
		return
	}
	if low, ok := t.Before(addr - 1); ok && low.To == addr {
		t.ends.Delete(addr)
		t.ends.Set(low.From, to)
	}
}

// Ranges are all of the set, in ascending order.
func (t *RangeTree) Ranges() RangeSet {
	out := make(RangeSet, 0, t.Len())
	t.ends.Scan(func(from, to int64) bool {
		out = append(out, Range{from, to})
		return true
	})
	return out
}
