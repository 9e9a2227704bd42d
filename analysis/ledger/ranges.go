package ledger

import (
	"slices"
	"sort"
)

// Range is [from, to).
type Range struct{ From, To int64 }

func (r Range) Bytes() int64 { return r.To - r.From }

// RangeSet is a set of addresses as disjoint ranges in ascending order. Ranges that touch
// are joined only if the caller of add says so: regions that do not coalesce stay apart.
type RangeSet []Range

// After is the index of the first range that ends behind addr.
func (s RangeSet) After(addr int64) int {
	return sort.Search(len(s), func(i int) bool { return s[i].To > addr })
}

// Overlapping is the first range that has an address of r.
func (s RangeSet) Overlapping(r Range) (Range, bool) {
	at := s.After(r.From)
	if at < len(s) && s[at].From < r.To {
		return s[at], true
	}
	return Range{}, false
}

// Add adds a range of which nothing is in the set, joined with what ends where it starts
// (left) and what starts where it ends (right) if the caller says so.
func (s *RangeSet) Add(r Range, left, right bool) {
	at := s.After(r.From)
	end := at
	if left && at > 0 && (*s)[at-1].To == r.From {
		at--
		r.From = (*s)[at].From
	}
	if right && end < len(*s) && (*s)[end].From == r.To {
		r.To = (*s)[end].To
		end++
	}
	*s = slices.Replace(*s, at, end, r)
}

// Remove takes out what is in the set of r.
func (s *RangeSet) Remove(r Range) {
	at := s.After(r.From)
	end := at
	var kept [2]Range
	rest := kept[:0]
	for ; end < len(*s) && (*s)[end].From < r.To; end++ {
		old := (*s)[end]
		if old.From < r.From {
			rest = append(rest, Range{old.From, r.From})
		}
		if old.To > r.To {
			rest = append(rest, Range{r.To, old.To})
		}
	}
	*s = slices.Replace(*s, at, end, rest...)
}

// JoinAt joins the range that ends at addr with the one that starts there.
func (s *RangeSet) JoinAt(addr int64) {
	at := s.After(addr)
	if at > 0 && at < len(*s) && (*s)[at].From == addr && (*s)[at-1].To == addr {
		(*s)[at-1].To = (*s)[at].To
		*s = slices.Delete(*s, at, at+1)
	}
}

// Cover adds what of r is not in the set, joined with what touches it.
func (s *RangeSet) Cover(r Range) {
	s.Remove(r)
	s.Add(r, true, true)
}
