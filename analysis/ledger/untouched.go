package ledger

import "math/rand/v2"

// untouched is the memory of an arena that was never handed out since it was mapped: a treap of ranges by address, each
// node with the bytes of its subtree, so that every change and question takes logarithmic time however small its
// pieces are.
type untouched struct{ root *untouchedRange }

type untouchedRange struct {
	Range
	seq         int64 // of the map
	sum         int64 // bytes of the subtree
	priority    uint32
	left, right *untouchedRange
}

func (n *untouchedRange) bytes() int64 {
	if n == nil {
		return 0
	}
	return n.sum
}

func (n *untouchedRange) recount() { n.sum = n.left.bytes() + n.Bytes() + n.right.bytes() }

// add adds r, of which nothing is there, mapped by the event seq.
func (u *untouched) add(r Range, seq int64) {
	below, above := split(u.root, r.From)
	u.root = join(join(below, &untouchedRange{Range: r, seq: seq, sum: r.Bytes(), priority: rand.Uint32()}), above)
}

// take takes out what is there of r, and passes on each piece.
func (u *untouched) take(r Range, piece func(Range, int64)) {
	u.cut(r.From)
	u.cut(r.To)
	below, rest := split(u.root, r.From)
	of, above := split(rest, r.To)
	u.root = join(below, above)
	of.each(piece)
}

// cut makes the range that addr lies inside of two.
func (u *untouched) cut(addr int64) {
	n := u.root
	for n != nil && (addr <= n.From || n.To <= addr) {
		n = n.next(addr)
	}
	if n == nil {
		return
	}
	upper := Range{addr, n.To}
	for above := u.root; ; above = above.next(addr) {
		if above.sum -= upper.Bytes(); above == n {
			break
		}
	}
	n.To = addr
	u.add(upper, n.seq)
}

// next is where addr, which is not inside of n, is looked for.
func (n *untouchedRange) next(addr int64) *untouchedRange {
	if addr <= n.From {
		return n.left
	}
	return n.right
}

// any says whether something is there of r.
func (u *untouched) any(r Range) bool {
	for n := u.root; n != nil; {
		switch {
		case r.To <= n.From:
			n = n.left
		case n.To <= r.From:
			n = n.right
		default:
			return true
		}
	}
	return false
}

// in are the bytes that are there of r.
func (u *untouched) in(r Range) int64 { return u.below(r.To) - u.below(r.From) }

func (u *untouched) below(addr int64) (bytes int64) {
	for n := u.root; n != nil; {
		if addr <= n.From {
			n = n.left
			continue
		}
		bytes += n.left.bytes() + min(addr, n.To) - n.From
		n = n.right
	}
	return bytes
}

func (n *untouchedRange) each(f func(Range, int64)) {
	if n != nil {
		n.left.each(f)
		f(n.Range, n.seq)
		n.right.each(f)
	}
}

// split divides a tree into what lies below addr and the rest. No range reaches across.
func split(n *untouchedRange, addr int64) (below, above *untouchedRange) {
	switch {
	case n == nil:
		return nil, nil
	case n.To <= addr:
		n.right, above = split(n.right, addr)
		below = n
	default:
		below, n.left = split(n.left, addr)
		above = n
	}
	n.recount()
	return below, above
}

// join makes two trees one; all of below lies before above.
func join(below, above *untouchedRange) *untouchedRange {
	switch {
	case below == nil:
		return above
	case above == nil:
		return below
	case below.priority > above.priority:
		below.right = join(below.right, above)
		below.recount()
		return below
	}
	above.left = join(below, above.left)
	above.recount()
	return above
}
