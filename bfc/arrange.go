package bfc

import (
	"cmp"
	"math"
	"slices"
)

// positions are some of the circle of two iterations, from included, to not; none where they are
// equal. The circle is of two since a block that is asked for before its like of the iteration
// before is freed cannot have the same place.
type positions struct{ from, to uint32 }

func (p positions) meet(q positions) bool { return p.from < q.to && q.from < p.to }

// spans are the positions at which a block is live whose request is in the first (0) or the second
// (1) iteration of the circle; none for one that ends later.
func (l *lifetime) spans(length, iteration uint32) [2]positions {
	start := iteration * length
	switch {
	case l.end == endsLater:
		return [2]positions{}
	case l.end == endsSame:
		return [2]positions{{start + l.from, start + l.to}}
	case iteration == 0:
		return [2]positions{{l.from, length + l.to}}
	}
	return [2]positions{{start + l.from, start + length}, {0, l.to}}
}

// spot is a block of an arrangement, or an obstacle, which is always live.
type spot struct {
	from, to uint64 // addresses
	spans    [2]positions
	next     int32 // in the order of addresses; -1 at the end
}

// overlaps says whether two spots have an address in common while both are live.
func (s *spot) overlaps(t *spot) bool { return s.from < t.to && t.from < s.to && s.meets(&t.spans) }

func (s *spot) meets(spans *[2]positions) bool {
	return s.spans[0].meet(spans[0]) || s.spans[0].meet(spans[1]) || s.spans[1].meet(spans[0]) || s.spans[1].meet(spans[1])
}

// arrangement is spots, in the order of addresses by next, of which no two overlap. The first
// begins at address 0, and the last ends at the last address.
type arrangement struct{ spots []spot }

// newArrangement is one of obstacles, in the order of addresses.
func newArrangement(obstacles []byteRange) *arrangement {
	a := &arrangement{}
	for i, o := range obstacles {
		a.spots = append(a.spots, spot{o.from, o.to, [2]positions{{0, math.MaxUint32}}, int32(i + 1)})
	}
	a.spots[len(a.spots)-1].next = -1
	return a
}

// add puts spots where they are.
func (a *arrangement) add(spots []spot) {
	a.spots = append(a.spots, spots...)
	order := make([]int32, len(a.spots))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(i, j int32) int {
		return cmp.Or(cmp.Compare(a.spots[i].from, a.spots[j].from), cmp.Compare(i, j))
	})
	for i, at := range order[1:] {
		a.spots[order[i]].next = at
	}
	a.spots[order[len(order)-1]].next = -1
}

// place puts a block at the lowest address where it overlaps nothing, and returns that; noPlace
// if there is none, or if the block is never live.
func (a *arrangement) place(size uint64, spans [2]positions) uint64 {
	if spans[0].from == spans[0].to {
		return noPlace
	}
	at, before := uint64(0), int32(0)
	for i := int32(0); i >= 0; i = a.spots[i].next {
		s := &a.spots[i]
		if s.from >= at && s.from-at >= size {
			break
		}
		if s.to > at && s.meets(&spans) {
			at = s.to
		}
		if s.from <= at {
			before = i
		}
	}
	if at == noPlace {
		return noPlace
	}
	a.spots = append(a.spots, spot{at, at + size, spans, a.spots[before].next})
	a.spots[before].next = int32(len(a.spots) - 1)
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
