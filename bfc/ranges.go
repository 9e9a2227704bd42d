package bfc

import (
	"slices"
	"sort"
)

// Range is the bytes [Addr, Addr+Bytes).
type Range struct{ Addr, Bytes uint64 }

// byteRange is the bytes [from, to).
type byteRange struct{ from, to uint64 }

func (r byteRange) bytes() uint64 { return r.to - r.from }

// rangeSet is a set of bytes, kept as its maximal ranges, addresses ascending. The zero value is
// empty.
type rangeSet struct {
	ranges []byteRange
	bytes  uint64 // in all of them
}

func (s *rangeSet) empty() bool { return len(s.ranges) == 0 }

// from returns the index of the first range that ends behind addr.
func (s *rangeSet) from(addr uint64) int {
	return sort.Search(len(s.ranges), func(i int) bool { return s.ranges[i].to > addr })
}

// add adds a range, no byte of which is in the set.
func (s *rangeSet) add(r byteRange) {
	s.bytes += r.bytes()
	at := s.from(r.from)
	end := at
	if at > 0 && s.ranges[at-1].to == r.from {
		at--
		r.from = s.ranges[at].from
	}
	if end < len(s.ranges) && s.ranges[end].from == r.to {
		r.to = s.ranges[end].to
		end++
	}
	s.ranges = slices.Replace(s.ranges, at, end, r)
}

// remove removes the bytes of a range that are in the set.
func (s *rangeSet) remove(r byteRange) {
	at := s.from(r.from)
	end := at
	var kept [2]byteRange
	rest := kept[:0]
	for ; end < len(s.ranges) && s.ranges[end].from < r.to; end++ {
		old := s.ranges[end]
		s.bytes -= min(old.to, r.to) - max(old.from, r.from)
		if old.from < r.from {
			rest = append(rest, byteRange{old.from, r.from})
		}
		if old.to > r.to {
			rest = append(rest, byteRange{r.to, old.to})
		}
	}
	s.ranges = slices.Replace(s.ranges, at, end, rest...)
}

// cut appends to out the parts of the set's ranges that lie in [from, to).
func (s *rangeSet) cut(out []byteRange, from, to uint64) []byteRange {
	for at := s.from(from); at < len(s.ranges) && s.ranges[at].from < to; at++ {
		out = append(out, byteRange{max(from, s.ranges[at].from), min(to, s.ranges[at].to)})
	}
	return out
}

// within returns how many bytes of [from, to) are in the set.
func (s *rangeSet) within(from, to uint64) uint64 {
	bytes := uint64(0)
	for at := s.from(from); at < len(s.ranges) && s.ranges[at].from < to; at++ {
		bytes += min(to, s.ranges[at].to) - max(from, s.ranges[at].from)
	}
	return bytes
}

// roundUp returns x rounded up to a multiple of unit, a power of two; where that passes 2^64, the last
// multiple below it.
func roundUp(x, unit uint64) uint64 {
	if x > -unit {
		return -unit
	}
	return (x + unit - 1) &^ (unit - 1)
}
