package bfc

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
)

// positions are some of the circle of two iterations, from included, to not; none where they are
// equal. Those that go on behind the end of the circle are the first ones again. The circle is of
// two since a block that is asked for before its like of the iteration before is freed cannot have
// the same place.
type positions struct{ from, to uint32 }

func (p positions) none() bool { return p.from == p.to }

// span is the positions at which a block is live whose request is in the first (0) or the second
// (1) iteration of the circle; none for one that ends later.
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

// leaver is a block that is live at the first positions of the circle, up to a position.
type leaver struct {
	byteRange
	until uint32
}

// meets says whether a block would have an address of it while it is live.
func (l *leaver) meets(r byteRange, p positions) bool {
	return p.from < l.until && r.from < l.to && l.from < r.to
}

// arrangement is blocks that do not meet: no two have an address in common while both are live.
// At most one begins to be live at a position.
type arrangement struct {
	obstacles []byteRange // always live; in the order of addresses from 0 to noPlace
	leaving   []leaver    // they meet nothing that is put anywhere
	circle    uint32      // positions
	// ends is a tree of maxima over the positions of the circle, the first of which is at leaves: where
	// the block that begins to be live there ends, and 0 if there is none.
	ends   []uint32
	leaves uint32
	places []byteRange // by position, of the blocks that begin there
	met    []byteRange // what the block that is being placed meets in time
	spare  []byteRange // as long as met
}

func newArrangement(obstacles []byteRange, leaving []leaver, circle uint32) *arrangement {
	leaves := uint32(1) << bits.Len32(circle)
	return &arrangement{
		obstacles: obstacles, leaving: leaving,
		circle: circle, leaves: leaves, ends: make([]uint32, 2*leaves), places: make([]byteRange, circle),
	}
}

// put puts a block where it is.
func (a *arrangement) put(r byteRange, p positions) {
	a.places[p.from] = r
	for node := a.leaves + p.from; node > 0 && a.ends[node] < p.to; node /= 2 {
		a.ends[node] = p.to
	}
}

// visit adds to met the blocks that begin before p ends, and end behind its beginning. Node is of
// width positions from first on.
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

// meet makes met the blocks that are live at some of the positions, in the order of addresses.
// Some may be there twice.
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

// sortMet puts what is met in the order of addresses: digit by digit of their distance from the
// first, since most of the time that a plan takes is spent here.
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

// place puts a block at the lowest address where it meets nothing, and returns that; noPlace if
// there is none, or if the block is never live.
func (a *arrangement) place(size uint64, p positions) uint64 {
	if p.none() {
		return noPlace
	}
	a.meet(p)
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

// bySize is the indices of lifetimes in the order in which their blocks are placed: greedily, the
// largest first, as the offline planners of inference engines do it.
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
