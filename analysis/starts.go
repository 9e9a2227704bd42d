package analysis

import "github.com/tidwall/btree"

// startIndex finds the segment of an arena that contains an address. It is not kept up with every
// change, as few allocators need it: what has started is noted, and put in order at the next search.
type startIndex struct {
	used  bool // there was a search: from here on starts are noted
	known btree.Set[int64]
	fresh []int64 // not yet in known; what is in either may have ended
}

// added notes a start. When more were noted than an arena of so many segments is worth, all is
// forgotten: the next search begins anew.
func (x *startIndex) added(addr int64, segments int) {
	x.fresh = append(x.fresh, addr)
	if len(x.fresh)+x.known.Len() > 4*segments+1024 {
		*x = startIndex{}
	}
}

// below is what `find` has for the greatest start that is not above addr and has not ended.
func (x *startIndex) below(addr int64, find func(start int64) int32) int32 {
	for _, start := range x.fresh {
		x.known.Insert(start)
	}
	x.fresh = x.fresh[:0]
	for {
		start, ok := int64(0), false
		x.known.Descend(addr, func(key int64) bool {
			start, ok = key, true
			return false
		})
		if !ok {
			return none
		}
		if i := find(start); i != none {
			return i
		}
		x.known.Delete(start)
	}
}
