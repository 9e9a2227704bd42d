package trace

import (
	"cmp"
	"slices"
	"sort"
)

// mappings are maps or aliases, cut to what is left of them: disjoint, by address.
type mappings []Event

func compareAddresses(a, b *Event) int { return cmp.Compare(a.Addr, b.Addr) }

// firstEndingAfter is the index of the first mapping that ends after addr.
func (m mappings) firstEndingAfter(addr int64) int {
	return sort.Search(len(m), func(i int) bool { return m[i].Addr+m[i].Provided > addr })
}

// insert adds a mapping where none is. One of no bytes is none.
func (m *mappings) insert(e *Event) bool {
	if e.Provided <= 0 {
		return false
	}
	*m = slices.Insert(*m, m.firstEndingAfter(e.Addr), *e)
	return true
}

// cut removes a range of addresses. It calls removed, unless nil, with each mapping that lies in it
// and how many of its bytes do.
func (m *mappings) cut(addr, bytes int64, removed func(e *Event, bytes int64)) {
	if bytes <= 0 {
		return
	}
	end := addr + bytes
	first := m.firstEndingAfter(addr)
	last := first
	var rest []Event
	for ; last < len(*m) && (*m)[last].Addr < end; last++ {
		e := (*m)[last]
		from, to := max(addr, e.Addr), min(end, e.Addr+e.Provided)
		if removed != nil {
			removed(&e, to-from)
		}
		if e.Addr < from {
			left := e
			left.Provided = from - e.Addr
			rest = append(rest, left)
		}
		if to < e.Addr+e.Provided {
			right := e
			right.Addr, right.Provided = to, e.Addr+e.Provided-to
			if e.Kind == KindAlias { // requested is the offset in the store
				right.Requested += to - e.Addr
			}
			rest = append(rest, right)
		}
	}
	*m = slices.Replace(*m, first, last, rest...)
}

// any says whether anything of an arena is mapped.
func (m mappings) any(arena int32) bool {
	return slices.ContainsFunc(m, func(e Event) bool { return e.Arena == arena })
}
