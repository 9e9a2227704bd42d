package bfc

import "slices"

// keptIterations is for how many further iterations a page that was used in one is expected to be
// used again.
const keptIterations = 2

// maxNotedPages is for how many pages of a region uses are noted, in 1 GiB of notes. Pages beyond them
// are always expected to be used, also in the first iteration.
const maxNotedPages = 1 << 28

// notes says whether uses of pages are noted.
func (a *Allocator) notes() bool { return a.options.Trim.When != TrimNever }

// noteUse notes that the pages of [addr, addr+size), which lies in a region, are used in this iteration.
// Free calls it with each block. A hand-out need not: only pages of free chunks are looked at, and each
// block that was there has been freed since.
func (a *Allocator) noteUse(addr, size uint64) {
	if !a.notes() {
		return
	}
	at, _, _ := a.Locate(addr)
	r := &a.regions[at]
	first, last := a.pageOf(r, addr), a.pageOf(r, addr+size-1)
	for i := first; i <= last && i < uint64(len(r.uses)); i++ {
		r.uses[i] = a.ended + 1
	}
}

// pageOf returns the index of the page of an address in the uses of its region.
func (a *Allocator) pageOf(r *region, addr uint64) uint64 {
	return (addr - r.addr&^(a.granularity-1)) / a.granularity
}

// noteRegion makes room for the uses of a region that is new or has become longer.
func (a *Allocator) noteRegion(r *region) {
	if a.notes() {
		pages := min(a.pageOf(r, r.end()-1)+1, maxNotedPages)
		r.uses = slices.Grow(r.uses, int(pages)-len(r.uses))[:pages]
	}
}

// expected says whether a page is expected to be used: it was used in this iteration or one of the
// two before. In the first iteration only pages beyond maxNotedPages are.
func (a *Allocator) expected(r *region, addr uint64) bool {
	at := a.pageOf(r, addr)
	if at >= uint64(len(r.uses)) {
		return true
	}
	used := r.uses[at]
	return a.ended > 0 && used > a.forgotten && used+keptIterations > a.ended
}

// EndIteration ends the iteration under way. With PlacementPlanned it may make a plan.
func (a *Allocator) EndIteration() {
	a.ended++
	a.endPages()
	if a.planner != nil {
		a.endPlanned()
	}
}

// Ended returns how many iterations have ended.
func (a *Allocator) Ended() int { return int(a.ended) }

// Excess returns the ranges of pages that are free, mapped and not expected to be used, addresses
// ascending; none before two iterations have ended, since too few uses are noted.
func (a *Allocator) Excess() (out []Range) {
	if !a.notes() || a.ended < 2 {
		return nil
	}
	a.eachFree(func(r *region, part byteRange, mapped bool) {
		if mapped {
			out = a.appendRuns(out, r, part, false)
		}
	})
	return out
}

// Ahead returns the ranges of pages that are unmapped and expected to be used, addresses ascending;
// none in the first iteration of a plan.
func (a *Allocator) Ahead() (out []Range) {
	if !a.notes() || a.unmapped.empty() || a.planBegins() {
		return nil
	}
	a.eachFree(func(r *region, part byteRange, mapped bool) {
		if !mapped {
			out = a.appendRuns(out, r, part, true)
		}
	})
	return out
}

// InExcess says whether [addr, addr+bytes) is whole pages within a range of Excess. It looks at these
// pages only, so that verify can check each slice that an owner unmaps.
func (a *Allocator) InExcess(addr, bytes uint64) bool {
	r := byteRange{addr, addr + bytes}
	return a.notes() && a.ended >= 2 && a.unmappable(r) && a.allNoted(r, false)
}

// InAhead says whether [addr, addr+bytes) is whole pages within a range of Ahead.
func (a *Allocator) InAhead(addr, bytes uint64) bool {
	r := byteRange{addr, addr + bytes}
	return a.notes() && !a.planBegins() && a.isUnmapped(r) && a.allNoted(r, true)
}

// allNoted says whether r, which is free, lies in one region, and the answer of expected is the same
// for all of its pages: the one given.
func (a *Allocator) allNoted(r byteRange, expected bool) bool {
	index, _, ok := a.Locate(r.from)
	if !ok || r.to > a.regions[index].end() {
		return false
	}
	for at := r.from; at < r.to; at += a.granularity {
		if a.expected(&a.regions[index], at) != expected {
			return false
		}
	}
	return true
}

// Idle returns the ranges of pages that are free and mapped, addresses ascending.
func (a *Allocator) Idle() (out []Range) {
	a.eachFree(func(_ *region, part byteRange, mapped bool) {
		if mapped {
			out = appendRange(out, part.from, part.to)
		}
	})
	return out
}

// Range is the bytes [Addr, Addr+Bytes).
type Range struct{ Addr, Bytes uint64 }

// eachFree visits the whole pages of free chunks, addresses ascending, in ranges that are all mapped
// or all unmapped; a range may be empty. The time is proportional to
// the number of unmapped ranges, not to the size of chunks.
func (a *Allocator) eachFree(visit func(r *region, part byteRange, mapped bool)) {
	for i := range a.regions {
		r := &a.regions[i]
		for index := a.chunks[r.wall].next; index != r.wall; index = a.chunks[index].next {
			c := &a.chunks[index]
			if c.id != freeID {
				continue
			}
			at, to := a.wholePages(c)
			for next := a.unmapped.from(at); at < to; next++ {
				gap := byteRange{to, to}
				if next < len(a.unmapped.ranges) {
					gap.from = min(to, max(at, a.unmapped.ranges[next].from))
					gap.to = min(to, a.unmapped.ranges[next].to)
				}
				visit(r, byteRange{at, gap.from}, true)
				visit(r, byteRange{gap.from, gap.to}, false)
				at = gap.to
			}
		}
	}
}

// appendRuns appends the maximal ranges of pages of part for which expected returns what is given.
// part may be empty.
func (a *Allocator) appendRuns(out []Range, r *region, part byteRange, expected bool) []Range {
	run := part.from
	for at := part.from; at < part.to; at += a.granularity {
		if a.pageOf(r, at) >= uint64(len(r.uses)) { // from here on all are
			if expected {
				break
			}
			return appendRange(out, run, at)
		}
		if a.expected(r, at) != expected {
			out = appendRange(out, run, at)
			run = at + a.granularity
		}
	}
	return appendRange(out, run, part.to)
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

// aheadSlice is how many bytes are mapped ahead at a time; a page where that is more.
const aheadSlice = 16 << 20

// Trim unmaps Excess and then maps Ahead (MapAhead). It returns the bytes that it unmapped and mapped. An
// unmap that the memory refuses is left out.
func (a *Allocator) Trim() (unmapped, mapped uint64) {
	for _, r := range a.Excess() {
		unmapped += a.unmapRange(r)
	}
	return unmapped, a.MapAhead()
}

// MapAhead maps Ahead, in slices, addresses ascending, while Reserved stays within PeakReserved: mapping ahead
// must not make a peak. It returns the bytes that it mapped. A map that the limit or the memory refuses ends it.
func (a *Allocator) MapAhead() (mapped uint64) {
	for _, r := range a.Ahead() {
		for r.Bytes > 0 {
			slice := min(r.Bytes, a.belowPeak(), max(aheadSlice, a.granularity))
			if slice == 0 || slice > a.room() || !a.memory.Map(r.Addr, slice) || a.Remap(r.Addr, slice) != nil {
				return mapped
			}
			mapped += slice
			r.Addr, r.Bytes = r.Addr+slice, r.Bytes-slice
		}
	}
	return mapped
}

// belowPeak returns how many bytes of whole pages can be mapped before Reserved passes its peak.
func (a *Allocator) belowPeak() uint64 {
	return (a.stats.PeakReserved - a.stats.Reserved) &^ (a.granularity - 1)
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

// unmapRange unmaps a range of free pages, and returns its bytes; 0 where the memory refuses.
func (a *Allocator) unmapRange(r Range) uint64 {
	if !a.memory.TryUnmap(r.Addr, r.Bytes) {
		return 0
	}
	a.unmapped.add(byteRange{r.Addr, r.Addr + r.Bytes})
	a.unbacked(byteRange{r.Addr, r.Addr + r.Bytes})
	a.stats.Reserved -= r.Bytes
	return r.Bytes
}

// unmapElsewhere unmaps free pages, up to bytes, before as many are mapped elsewhere; none of the chunk
// keep. Pages that are expected to be used stay mapped; in the first iteration, and where no uses are
// noted, there are none.
func (a *Allocator) unmapElsewhere(bytes uint64, keep int32) {
	if !a.memory.Coalesces() {
		return
	}
	need := roundUp(bytes, a.granularity)
	for _, r := range slices.Backward(a.regions) {
		for index := a.chunks[r.wall].prev; index != r.wall && need > 0; index = a.chunks[index].prev {
			if c := &a.chunks[index]; c.id == freeID && index != keep {
				need -= a.unmapPagesOf(&r, c, need)
			}
		}
	}
}

// unmapPagesOf unmaps pages of one free chunk, last first, and returns their bytes.
func (a *Allocator) unmapPagesOf(r *region, c *chunk, need uint64) uint64 {
	unmapped := uint64(0)
	from, to := a.wholePages(c)
	for to > from && unmapped < need {
		start := a.lastToUnmap(r, from, &to)
		if start == to {
			break
		}
		part := min(to-start, need-unmapped)
		if bytes := a.unmapRange(Range{to - part, part}); bytes > 0 {
			unmapped += bytes
			to -= part
			continue
		}
		to = start
	}
	return unmapped
}

// lastToUnmap finds the last range in [from, *to) whose pages are mapped and may be unmapped. It lowers
// *to to the end of that range and returns its start; *to where there is none.
func (a *Allocator) lastToUnmap(r *region, from uint64, to *uint64) uint64 {
	may := func(addr uint64) bool { return !a.notes() || !a.expected(r, addr) || a.planBegins() }
	for *to > from {
		start := from
		if at := a.unmapped.from(*to - 1); at < len(a.unmapped.ranges) && a.unmapped.ranges[at].from < *to {
			*to = max(from, a.unmapped.ranges[at].from)
			continue
		} else if at > 0 {
			start = max(from, a.unmapped.ranges[at-1].to)
		}
		if !may(*to - a.granularity) {
			*to -= a.granularity
			continue
		}
		if !a.notes() {
			return start
		}
		first := *to - a.granularity
		for first > start && may(first-a.granularity) {
			first -= a.granularity
		}
		return first
	}
	return *to
}
