package analysis

import "slices"

// addressRange is [from, to).
type addressRange struct{ from, to int64 }

func (r addressRange) bytes() int64 { return r.to - r.from }

// rangeSet is a set of addresses as disjoint ranges in ascending order. Ranges that touch
// are joined only where add is told so: regions that do not coalesce stay apart.
type rangeSet []addressRange

// after is the index of the first range that ends behind addr.
func (s rangeSet) after(addr int64) int {
	at, _ := slices.BinarySearchFunc(s, addr, func(r addressRange, addr int64) int {
		if r.to <= addr {
			return -1
		}
		return 1
	})
	return at
}

// overlapping is the first range that has an address of r.
func (s rangeSet) overlapping(r addressRange) (addressRange, bool) {
	at := s.after(r.from)
	if at < len(s) && s[at].from < r.to {
		return s[at], true
	}
	return addressRange{}, false
}

// add adds a range of which nothing is in the set, joined with what ends where it starts
// (left) and what starts where it ends (right) if told so.
func (s *rangeSet) add(r addressRange, left, right bool) {
	at := s.after(r.from)
	end := at
	if left && at > 0 && (*s)[at-1].to == r.from {
		at--
		r.from = (*s)[at].from
	}
	if right && end < len(*s) && (*s)[end].from == r.to {
		r.to = (*s)[end].to
		end++
	}
	*s = slices.Replace(*s, at, end, r)
}

// remove takes out what is in the set of r.
func (s *rangeSet) remove(r addressRange) {
	at := s.after(r.from)
	end := at
	var kept [2]addressRange
	rest := kept[:0]
	for ; end < len(*s) && (*s)[end].from < r.to; end++ {
		old := (*s)[end]
		if old.from < r.from {
			rest = append(rest, addressRange{old.from, r.from})
		}
		if old.to > r.to {
			rest = append(rest, addressRange{r.to, old.to})
		}
	}
	*s = slices.Replace(*s, at, end, rest...)
}

// joinAt joins the range that ends at addr with the one that starts there.
func (s *rangeSet) joinAt(addr int64) {
	at := s.after(addr)
	if at > 0 && at < len(*s) && (*s)[at].from == addr && (*s)[at-1].to == addr {
		(*s)[at-1].to = (*s)[at].to
		*s = slices.Delete(*s, at, at+1)
	}
}
