package ledger

import "slices"

// untouched is the memory of an arena that was never handed out since it was mapped: a B-tree of ranges by address, each
// entry with the bytes of its subtree, so that every change and question takes logarithmic time however small the ranges
// are. Most allocations ask it, and a search in a B-tree reads few cache lines.
type untouched struct{ root untouchedNode }

// untouchedNode has at most mostEntries, by address; all have a node below, or none has.
type untouchedNode []untouchedEntry

const mostEntries = 32

// untouchedEntry is a range, or a node below.
type untouchedEntry struct {
	from  int64 // of a node: that of its first range
	bytes int64 // of a node: those of all its ranges
	seq   int64 // of a range: that of the map
	below *untouchedNode
}

// entry is what a node above has of n.
func (n untouchedNode) entry() untouchedEntry {
	e := untouchedEntry{from: n[0].from, below: &n}
	for i := range n {
		e.bytes += n[i].bytes
	}
	return e
}

// at is the index of the last entry that starts at or before addr, else 0.
func (n untouchedNode) at(addr int64) int {
	i := 1
	for i < len(n) && n[i].from <= addr {
		i++
	}
	return i - 1
}

// add adds r, of which nothing is there, mapped by the event seq.
func (u *untouched) add(r Range, seq int64) {
	if upper := u.root.add(untouchedEntry{from: r.From, bytes: r.Bytes(), seq: seq}); upper != nil {
		u.root = untouchedNode{u.root.entry(), upper.entry()}
	}
}

// add adds a range. If the node had no room, it returns its upper half, which is not in n any more.
func (n *untouchedNode) add(r untouchedEntry) (upper untouchedNode) {
	i := n.at(r.from)
	if len(*n) > 0 && (*n)[i].below != nil {
		e := &(*n)[i]
		e.from, e.bytes = min(e.from, r.from), e.bytes+r.bytes
		if upper = e.below.add(r); upper == nil {
			return nil
		}
		r = upper.entry()
		e.bytes -= r.bytes
	}
	if i < len(*n) && (*n)[i].from < r.from {
		i++
	}
	*n = slices.Insert(*n, i, r)
	if len(*n) <= mostEntries {
		return nil
	}
	upper = slices.Clone((*n)[mostEntries/2:])
	*n = slices.Delete(*n, mostEntries/2, len(*n))
	return upper
}

// remove takes out a range that is there.
func (n *untouchedNode) remove(r untouchedEntry) {
	i := n.at(r.from)
	if e := &(*n)[i]; e.below != nil {
		if e.below.remove(r); len(*e.below) > 0 {
			e.from, e.bytes = (*e.below)[0].from, e.bytes-r.bytes
			return
		}
	}
	*n = slices.Delete(*n, i, i+1)
}

// take takes out what is there of r, and passes on each part.
func (u *untouched) take(r Range, part func(Range, int64)) {
	for old, ok := u.root.first(r); ok; old, ok = u.root.first(r) {
		u.root.remove(old)
		to := old.from + old.bytes
		if old.from < r.From {
			u.add(Range{old.from, r.From}, old.seq)
		}
		if to > r.To {
			u.add(Range{r.To, to}, old.seq)
		}
		part(Range{max(old.from, r.From), min(to, r.To)}, old.seq)
	}
}

// first is the first range that has something of r.
func (n untouchedNode) first(r Range) (found untouchedEntry, ok bool) {
	for i := n.at(r.From); i < len(n) && n[i].from < r.To; i++ { // two entries at most
		if e := &n[i]; e.below != nil {
			if found, ok = e.below.first(r); ok {
				return found, true
			}
		} else if e.from+e.bytes > r.From {
			return *e, true
		}
	}
	return untouchedEntry{}, false
}

// any says whether something is there of r.
func (u *untouched) any(r Range) bool {
	for n := u.root; len(n) > 0; {
		i := n.at(r.From)
		e := &n[i]
		switch {
		case i+1 < len(n) && n[i+1].from < r.To:
			return true
		case e.below == nil || e.from >= r.From:
			return e.from < r.To && e.from+e.bytes > r.From
		}
		n = *e.below
	}
	return false
}

// in are the bytes that are there of r.
func (u *untouched) in(r Range) int64 { return u.root.under(r.To) - u.root.under(r.From) }

// under are the bytes that are there below addr.
func (n untouchedNode) under(addr int64) (bytes int64) {
	for len(n) > 0 {
		i := n.at(addr)
		for _, e := range n[:i] {
			bytes += e.bytes
		}
		if n[i].below == nil {
			return bytes + min(max(0, addr-n[i].from), n[i].bytes)
		}
		n = *n[i].below
	}
	return bytes
}

func (n untouchedNode) each(f func(Range, int64)) {
	for _, e := range n {
		if e.below == nil {
			f(Range{e.from, e.from + e.bytes}, e.seq)
		} else {
			e.below.each(f)
		}
	}
}
