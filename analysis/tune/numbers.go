package tune

import (
	"iter"
	"math/bits"
	"slices"
)

// numbers is a set of numbers from 0.
type numbers []uint64

// put adds or removes a number.
func (s *numbers) put(at int, in bool) {
	for len(*s) <= at/64 {
		*s = append(*s, 0)
	}
	(*s)[at/64] &^= 1 << (at % 64)
	if in {
		(*s)[at/64] |= 1 << (at % 64)
	}
}

// descending visits the numbers, the greatest first. Those that were visited may be removed meanwhile.
func (s numbers) descending() iter.Seq[int] {
	return func(yield func(int) bool) {
		for word := len(s) - 1; word >= 0; word-- {
			for rest := s[word]; rest != 0; {
				bit := bits.Len64(rest) - 1
				rest &^= 1 << bit
				if s[word]>>bit&1 == 1 && !yield(word*64+bit) {
					return
				}
			}
		}
	}
}

// number gives a heap its number when it serves its first request.
func (h *heap) number() {
	if h.born > 0 {
		return
	}
	p := h.replay
	p.born = append(p.born, h)
	h.born = len(p.born)
	if !h.shape.pool {
		p.unshrunk = append(p.unshrunk, h)
	}
}

// changed keeps what a replay knows of its heaps when blocks or pages of one have changed: so a request that lacks memory visits
// only those, of thousands, that may have some for it.
func (h *heap) changed() {
	if h.born == 0 {
		return
	}
	p := h.replay
	inUse, reserved := h.reserved, h.reserved
	if h.gives() {
		inUse = h.bfc.Touched()
	}
	if h.paused {
		inUse, reserved = 0, 0
	}
	h.on.touched += inUse - h.inUse
	h.inUse = inUse
	p.mayUnmap.put(h.born-1, !h.paused && !h.pinned)
	p.movable.put(h.born-1, h.gives() && reserved > inUse)
}

// end forgets a heap whose arena has ended.
func (h *heap) end() {
	p := h.replay
	if h.born == 0 {
		return
	}
	h.on.touched -= h.inUse
	p.mayUnmap.put(h.born-1, false)
	p.movable.put(h.born-1, false)
	p.born[h.born-1] = nil
	p.unshrunk = slices.DeleteFunc(p.unshrunk, func(other *heap) bool { return other == h })
}
