package bfc

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
)

// positions are the positions [from, to) on the circle of two iterations; none where they are equal.
// Behind the end of the circle they go on at its beginning. The circle has two iterations, since a
// block that is requested before its like of the iteration before is freed needs another place.
type positions struct{ from, to uint32 }

func (p positions) none() bool { return p.from == p.to }

// span returns the positions at which a block is live that is requested in the first (0) or the second
// (1) iteration of the circle; none for a block that ends later.
func (l *lifetime) span(length, iteration uint32) positions {
	start := iteration * length
	switch l.end {
	case endsSame:
		return positions{start + l.from, start + l.to}
	case endsNext:
		return positions{start + l.from, start + length + l.to}
	}
	return positions{}
}

// leaver is a block of the iteration before the plan, live at the positions [0, until).
type leaver struct {
	byteRange
	until uint32
}

// meets says whether the block shares an address with a block at r while both are live.
func (l *leaver) meets(r byteRange, p positions) bool {
	return p.from < l.until && r.from < l.to && l.from < r.to
}

// arrangement is blocks on a circle of positions. No two of them share an address while both are live,
// and at most one begins to be live at a position.
type arrangement struct {
	obstacles []byteRange // live at all positions; addresses ascending, the last ends at noPlace
	leaving   []leaver    // also avoided by what is placed
	circle    uint32      // number of positions
	// ends is a binary tree of maxima, from index 1. Its leaves, from index leaves on, are the
	// positions: where the block ends that begins there, 0 if none does. So a search for the blocks
	// that are live at some positions skips those that have ended.
	ends   []uint32
	leaves uint32
	places []byteRange // by position, of the blocks that begin there
	met    []byteRange // scratch: the blocks that are live together with the one being placed
	spare  []byteRange // scratch of sortMet, as long as met
}

func newArrangement(obstacles []byteRange, leaving []leaver, circle uint32) *arrangement {
	leaves := uint32(1) << bits.Len32(circle)
	return &arrangement{
		obstacles: obstacles, leaving: leaving,
		circle: circle, leaves: leaves, ends: make([]uint32, 2*leaves), places: make([]byteRange, circle),
	}
}

// put adds a block at a range that is known to be free of others.
func (a *arrangement) put(r byteRange, p positions) {
	a.places[p.from] = r
	for node := a.leaves + p.from; node > 0 && a.ends[node] < p.to; node /= 2 {
		a.ends[node] = p.to
	}
}

// visit adds to met the blocks below a node of the tree that begin before p.to and end behind p.from.
// The node has width positions from first on.
func (a *arrangement) visit(node, first, width uint32, p positions) {
	switch {
	case first >= p.to || a.ends[node] <= p.from:
	case width == 1:
		a.met = append(a.met, a.places[first])
	default:
		width /= 2
		a.visit(2*node, first, width, p)
		a.visit(2*node+1, first+width, width, p)
	}
}

// meet sets met to the blocks that are live at some of the positions, addresses ascending. A block may
// be there more than once: the circle is searched as a line, at the positions, at the positions one
// circle later for blocks that go on around its end, and where the positions do so, at its beginning.
func (a *arrangement) meet(p positions) {
	a.met = a.met[:0]
	a.visit(1, 0, a.leaves, p)
	a.visit(1, 0, a.leaves, positions{p.from + a.circle, p.to + a.circle})
	if p.to > a.circle {
		a.visit(1, 0, a.leaves, positions{0, p.to - a.circle})
	}
	for i := range a.leaving {
		if l := &a.leaving[i]; p.from < l.until {
			a.met = append(a.met, l.byteRange)
		}
	}
	a.sortMet()
}

// sortMet sorts met by address. Many blocks are sorted by radix, digit by digit of their distance from
// the lowest address, since making a plan spends most of its time here.
func (a *arrangement) sortMet() {
	const digit, few = 11, 64
	if len(a.met) < few {
		slices.SortFunc(a.met, func(r, q byteRange) int { return cmp.Compare(r.from, q.from) })
		return
	}
	first, last := uint64(math.MaxUint64), uint64(0)
	for _, r := range a.met {
		first, last = min(first, r.from), max(last, r.from)
	}
	a.spare = slices.Grow(a.spare[:0], len(a.met))[:len(a.met)]
	for shift := granuleBits; (last-first)>>shift > 0; shift += digit {
		var next [1 << digit]uint32 // where one of the digit goes
		for _, r := range a.met {
			next[(r.from-first)>>shift&(1<<digit-1)]++
		}
		sum := uint32(0)
		for i, count := range next {
			next[i] = sum
			sum += count
		}
		for _, r := range a.met {
			at := &next[(r.from-first)>>shift&(1<<digit-1)]
			a.spare[*at] = r
			*at++
		}
		a.met, a.spare = a.spare, a.met
	}
}

// place adds a block at the lowest address where it shares none with another while both are live, and
// returns the address; noPlace if there is none, or if the block is live at no position.
func (a *arrangement) place(size uint64, p positions) uint64 {
	if p.none() {
		return noPlace
	}
	a.meet(p)
	// Merge the two sorted lists; at is the end of all ranges so far. The first gap that is large
	// enough is the place.
	at, met, obstacles := uint64(0), a.met, a.obstacles
	for at != noPlace { // the last obstacle ends there
		var next byteRange
		if len(met) > 0 && met[0].from < obstacles[0].from {
			next, met = met[0], met[1:]
		} else {
			next, obstacles = obstacles[0], obstacles[1:]
		}
		if next.from >= at && next.from-at >= size {
			break
		}
		at = max(at, next.to)
	}
	if at != noPlace {
		a.put(byteRange{at, at + size}, p)
	}
	return at
}

// bySize returns the indices of lifetimes in the order in which their blocks are placed: the largest
// first, equal ones in order. Offline planners of inference engines place greedily in the same way.
func bySize(lifetimes []lifetime) []int {
	order := make([]int, len(lifetimes))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int {
		return cmp.Or(cmp.Compare(lifetimes[j].size, lifetimes[i].size), cmp.Compare(i, j))
	})
	return order
}
