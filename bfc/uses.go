package bfc

import (
	"cmp"
	"slices"
)

// EndIteration ends the iteration under way.
func (a *Allocator) EndIteration() {
	a.ended++
	a.endPages()
}

// inExcess says whether the last ended iteration has not touched a page of a free chunk, which is clear.
func (a *Allocator) inExcess(r *region, addr uint64) bool {
	at := a.pageOf(r, addr)
	return at < uint64(len(r.pages)) && r.pages[at].used < a.ended && r.pages[at].left <= a.over
}

// Excess returns the ranges of pages that are free, mapped, clear and not touched by the iteration that ended last,
// addresses ascending; none without TrimIteration, and before an iteration has ended.
func (a *Allocator) Excess() (out []Range) {
	if a.options.Trim.When != TrimIteration {
		return nil
	}
	a.eachIdle(func(r *region, part byteRange) {
		run := part.from
		for at := part.from; at < part.to; at += a.granularity {
			if !a.inExcess(r, at) {
				out = appendRange(out, run, at)
				run = at + a.granularity
			}
		}
		out = appendRange(out, run, part.to)
	})
	return out
}

// InExcess says whether [addr, addr+bytes) is whole pages within a range of Excess. It looks at these
// pages only, so that verify can check each slice that an owner unmaps.
func (a *Allocator) InExcess(addr, bytes uint64) bool {
	r := byteRange{addr, addr + bytes}
	if a.options.Trim.When != TrimIteration || !a.unmappable(r) {
		return false
	}
	index, _, _ := a.Locate(r.from)
	for at := r.from; at < r.to; at += a.granularity {
		if !a.inExcess(&a.regions[index], at) {
			return false
		}
	}
	return true
}

// Idle returns the ranges of pages that are free and mapped, addresses ascending.
func (a *Allocator) Idle() (out []Range) {
	a.eachIdle(func(_ *region, part byteRange) { out = appendRange(out, part.from, part.to) })
	return out
}

// eachIdle visits the whole pages of free chunks that are mapped, addresses ascending, in ranges, of which some
// may be empty. It looks at free chunks of at least a page, however many smaller ones there are, and at unmapped ranges.
func (a *Allocator) eachIdle(visit func(r *region, part byteRange)) {
	a.paged = a.paged[:0]
	for index := a.free.first(a.granularity, 0); index != none; index = a.free.after(index) {
		a.paged = append(a.paged, index)
	}
	slices.SortFunc(a.paged, func(x, y int32) int { return cmp.Compare(a.chunks[x].addr, a.chunks[y].addr) })
	in := 0 // the region of a chunk
	for _, index := range a.paged {
		c := &a.chunks[index]
		for a.regions[in].end() <= c.addr {
			in++
		}
		at, to := a.wholePages(c)
		for next := a.unmapped.from(at); at < to; next++ {
			gap := byteRange{to, to}
			if next < len(a.unmapped.ranges) {
				gap.from = min(to, max(at, a.unmapped.ranges[next].from))
				gap.to = min(to, a.unmapped.ranges[next].to)
			}
			visit(&a.regions[in], byteRange{at, gap.from})
			at = gap.to
		}
	}
}

func appendRange(out []Range, from, to uint64) []Range {
	if to > from {
		out = append(out, Range{from, to - from})
	}
	return out
}

// wholePages returns the range of the pages that lie in a chunk as a whole; where there are none, to
// is not above from.
func (a *Allocator) wholePages(c *chunk) (from, to uint64) {
	return roundUp(c.addr, a.granularity), (c.addr + c.size) &^ (a.granularity - 1)
}

// Trim unmaps Excess and returns the bytes that it unmapped. An unmap that the memory refuses is left out.
func (a *Allocator) Trim() (unmapped uint64) {
	for _, r := range a.Excess() {
		unmapped += a.unmapRange(r)
	}
	return unmapped
}

// UnmapFree unmaps free pages, last first, until it is at least bytes, and returns how many bytes
// that is. An owner calls it when its job is idle or others need memory.
func (a *Allocator) UnmapFree(bytes uint64) uint64 {
	unmapped := uint64(0)
	for _, r := range slices.Backward(a.Idle()) {
		if unmapped >= bytes {
			break
		}
		part := min(r.Bytes, roundUp(bytes-unmapped, a.granularity))
		unmapped += a.unmapRange(Range{r.Addr + r.Bytes - part, part})
	}
	return unmapped
}
