package tune

import (
	"slices"
	"sort"

	"github.com/memprof/memprof/bfc"
)

// handles are the handles that are mapped in a heap, since only whole handles can be unmapped. Those of
// a page each are not kept.
type handles struct {
	page  uint64 // bytes
	size  uint64 // bytes of a full handle, a multiple of the page
	fine  bool   // smaller ones are mapped where there is little room, larger ones by large maps
	pages bool   // they move one by one
	large []span // handles larger than a page, by address
}

// inRoom is how many of the handles that are mapped next there is room for, at least; inMap, how many handles a
// map has, at most, unless they would be of more than largestForMap bytes. A map of largeMap bytes has none of less than leastForLarge,
// but for pages that move one by one. The hook has the same.
const (
	inRoom        = 2048
	inMap         = 4096
	largestForMap = 32 << 20
	largeMap      = 1 << 30
	leastForLarge = 16 << 20
)

// next returns the bytes of the handles of a map of so many bytes, where room bytes can be mapped.
func (h *handles) next(bytes, room uint64, shortage bool) uint64 {
	size := h.size
	if shortage {
		size = h.page
	}
	for h.fine && !shortage && size < largestForMap && size <= bytes/inMap {
		size *= 2
	}
	for h.fine && size > h.page && size > room/inRoom {
		size /= 2
	}
	if h.fine && !h.pages && bytes >= largeMap {
		size = max(size, leastForLarge)
	}
	return size
}

// span is the bytes [from, to).
type span struct{ from, to uint64 }

// find returns the index of the first large handle that ends behind addr.
func (h *handles) find(addr uint64) int {
	return sort.Search(len(h.large), func(i int) bool { return h.large[i].to > addr })
}

// add adds a range that was mapped, cut into handles of size bytes from its start.
func (h *handles) add(addr, bytes, size uint64) {
	if size <= h.page {
		return
	}
	var pieces []span
	for from, end := addr, addr+bytes; from < end; from += size {
		if to := min(end, from+size); to-from > h.page {
			pieces = append(pieces, span{from, to})
		}
	}
	h.large = slices.Insert(h.large, h.find(addr), pieces...)
}

// remove removes a range of whole handles that was unmapped.
func (h *handles) remove(addr, bytes uint64) {
	if len(h.large) > 0 {
		h.large = slices.Delete(h.large, h.find(addr), h.find(addr+bytes))
	}
}

// within returns the whole handles within a mapped range, which are adjacent.
func (h *handles) within(addr, bytes uint64) (from, to uint64) {
	from, to = addr, addr+bytes
	if at := h.find(from); at < len(h.large) && h.large[at].from < from {
		from = h.large[at].to
	}
	if at := h.find(to); at < len(h.large) && h.large[at].from < to {
		to = h.large[at].from
	}
	return from, max(from, to)
}

// last returns the last whole handles within a mapped range: as few as have wanted bytes, or all.
func (h *handles) last(addr, bytes, wanted uint64) (from, size uint64) {
	first, end := h.within(addr, bytes)
	from = end
	for from > first && end-from < wanted {
		if at := h.find(from - 1); at < len(h.large) && h.large[at].from < from {
			from = h.large[at].from
			continue
		}
		behind := first // the page handles before from begin here
		if at := h.find(from - 1); at > 0 {
			behind = max(first, h.large[at-1].to)
		}
		pages := (wanted - (end - from) + h.page - 1) / h.page * h.page
		from -= min(pages, from-behind)
	}
	return from, end - from
}

// largestHandle is the most that a resume maps in one handle.
const largestHandle = 8 << 30

// remake replaces all handles by those that a resume maps: blocks that are larger than a handle have one each, or several of largestHandle.
// The mapped ranges and the whole pages of blocks are by address.
func (h *handles) remake(mapped []bfc.Range, blocks []span, shortage bool) {
	size := h.size
	if shortage {
		size = h.page
	}
	h.large = h.large[:0]
	blocks = slices.DeleteFunc(blocks, func(b span) bool { return b.to <= b.from+size })
	for _, r := range mapped {
		end := r.Addr + r.Bytes
		for from, to := r.Addr, uint64(0); from < end; from = to {
			for len(blocks) > 0 && blocks[0].from < from {
				blocks = blocks[1:]
			}
			piece := size
			switch {
			case len(blocks) == 0 || blocks[0].from >= end:
				to = end
			case blocks[0].from > from:
				to = blocks[0].from
			case blocks[0].to <= end:
				to, piece = blocks[0].to, min(blocks[0].to-from, largestHandle)
			default:
				to = end
			}
			h.add(from, to-from, piece)
		}
	}
}
