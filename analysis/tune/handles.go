package tune

import "slices"

// handles are the handles that are mapped in a heap, since only whole handles can be unmapped. A heap
// whose handles are one page each does not need this; its size is 0.
type handles struct {
	size  uint64 // bytes of a full handle, a multiple of the page
	fine  bool   // smaller ones are mapped where there is little room
	spans []span // by address
}

// inRoom is how many of the handles that are mapped next there is room for, at least; the hook has the same.
const inRoom = 2048

// next returns the bytes of the handles that are mapped next, where room bytes can be mapped.
func (h *handles) next(page, room uint64, shortage bool) uint64 {
	size := h.size
	if shortage {
		size = page
	}
	for h.fine && size > page && size > room/inRoom {
		size /= 2
	}
	return size
}

// span is the bytes [from, to).
type span struct{ from, to uint64 }

// find returns the index of the first span that ends behind addr.
func (h *handles) find(addr uint64) int {
	at, _ := slices.BinarySearchFunc(h.spans, addr, func(s span, addr uint64) int {
		if s.to <= addr {
			return -1
		}
		return 1
	})
	return at
}

// add adds a range that was mapped, cut into handles of size bytes from its start.
func (h *handles) add(addr, bytes, size uint64) {
	if h.size == 0 {
		return
	}
	var pieces []span
	for from, end := addr, addr+bytes; from < end; from += size {
		pieces = append(pieces, span{from, min(end, from+size)})
	}
	h.spans = slices.Insert(h.spans, h.find(addr), pieces...)
}

// remove removes a range of whole handles that was unmapped.
func (h *handles) remove(addr, bytes uint64) {
	if h.size > 0 {
		h.spans = slices.Delete(h.spans, h.find(addr), h.find(addr+bytes))
	}
}

// last returns the last whole handles within a mapped range: as few as have wanted bytes, or all.
func (h *handles) last(addr, bytes, wanted uint64) (from, size uint64) {
	first, end := h.find(addr), h.find(addr)
	if first < len(h.spans) && h.spans[first].from < addr {
		first++
	}
	for end = first; end < len(h.spans) && h.spans[end].to <= addr+bytes; end++ {
	}
	for end > first && size < wanted {
		end--
		from = h.spans[end].from
		size += h.spans[end].to - from
	}
	return from, size
}
