package bfc

import "slices"

// keptIterations is for how many iterations after its last use a granule is expected to be
// used again.
const keptIterations = 2

// maxNotedPages is the most granules of a region of which uses are noted, a gigabyte of notes;
// those beyond are always expected to be used.
const maxNotedPages = 1 << 28

// notes says whether the uses of granules are noted.
func (a *Allocator) notes() bool { return a.options.Trim.When != TrimNever }

// noteUse notes that [addr, addr+size), a chunk, is in use in this iteration.
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

// pageOf is the index of an address in the uses of its region.
func (a *Allocator) pageOf(r *region, addr uint64) uint64 {
	return (addr - r.addr&^(a.granularity-1)) / a.granularity
}

// noteRegion makes room for the uses of a region that has come to its size.
func (a *Allocator) noteRegion(r *region) {
	if a.notes() {
		granules := min(a.pageOf(r, r.end()-1)+1, maxNotedPages)
		r.uses = slices.Grow(r.uses, int(granules)-len(r.uses))[:granules]
	}
}

// expected says whether a granule of a region will be used in this iteration or the next, as
// far as those before tell. The first iteration expects nothing.
func (a *Allocator) expected(r *region, addr uint64) bool {
	at := a.pageOf(r, addr)
	if at >= uint64(len(r.uses)) {
		return true
	}
	used := r.uses[at]
	return a.ended > 0 && used > a.forgotten && used+keptIterations > a.ended
}

// EndIteration notes that an iteration has ended.
func (a *Allocator) EndIteration() {
	a.ended++
	if a.planner != nil {
		a.endPlanned()
	}
}

// Ended is how many iterations have ended.
func (a *Allocator) Ended() int { return int(a.ended) }

// Excess appends to out the ranges of whole granules, in the order of addresses, that are free
// and mapped and that no iteration of the last ones used. Before two iterations have ended
// there is nothing to tell that by.
func (a *Allocator) Excess(out []Range) []Range {
	if !a.notes() || a.ended < 2 {
		return out
	}
	a.eachFree(func(r *region, part byteRange, mapped bool) {
		if mapped {
			out = a.appendRuns(out, r, part, false)
		}
	})
	return out
}

// Ahead appends to out the ranges that were given back though the coming iteration will use
// them; none in the first iteration of a plan.
func (a *Allocator) Ahead(out []Range) []Range {
	if !a.notes() || a.unmapped.empty() || a.planBegins() {
		return out
	}
	a.eachFree(func(r *region, part byteRange, mapped bool) {
		if !mapped {
			out = a.appendRuns(out, r, part, true)
		}
	})
	return out
}

// InExcess says whether [addr, addr+bytes) is of whole granules and lies in a range of Excess.
// It looks at these granules only, so that each of an owner's many slices can be judged.
func (a *Allocator) InExcess(addr, bytes uint64) bool {
	r := byteRange{addr, addr + bytes}
	return a.notes() && a.ended >= 2 && a.unmappable(r) && a.allNoted(r, false)
}

// InAhead says the same of a range of Ahead.
func (a *Allocator) InAhead(addr, bytes uint64) bool {
	r := byteRange{addr, addr + bytes}
	return a.notes() && !a.planBegins() && a.isUnmapped(r) && a.allNoted(r, true)
}

// allNoted says whether r, which is free, is of granules of one region that are all expected to
// be used, or all not.
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

// Idle appends to out all ranges of whole granules that are free and mapped.
func (a *Allocator) Idle(out []Range) []Range {
	a.eachFree(func(_ *region, part byteRange, mapped bool) {
		if mapped {
			out = appendRange(out, part.from, part.to)
		}
	})
	return out
}

// Range is [Addr, Addr+Bytes).
type Range struct{ Addr, Bytes uint64 }

// eachFree visits the whole granules of free chunks, in the order of addresses: ranges that
// are all mapped or all given back. However large a free chunk is, it is as many steps as
// ranges of it were given back.
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
				hole := byteRange{to, to}
				if next < len(a.unmapped.ranges) {
					hole.from = min(to, max(at, a.unmapped.ranges[next].from))
					hole.to = min(to, a.unmapped.ranges[next].to)
				}
				visit(r, byteRange{at, hole.from}, true)
				visit(r, byteRange{hole.from, hole.to}, false)
				at = hole.to
			}
		}
	}
}

// appendRuns appends the maximal runs of granules of part, which may be empty, that are
// expected to be used, or are not.
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

// wholePages is the range of the memory's granules that lie in a chunk; to is not above
// from if there are none.
func (a *Allocator) wholePages(c *chunk) (from, to uint64) {
	return roundUp(c.addr, a.granularity), (c.addr + c.size) &^ (a.granularity - 1)
}

// aheadSlice is how much is mapped ahead at a time, in bytes, or a granule where that is more.
const aheadSlice = 16 << 20

// Trim has the memory take Excess and then map Ahead, in slices from the lowest address up and only
// as far as Reserved stays within PeakReserved: a guess at the coming iteration never makes a peak
// that its requests would not. It returns the bytes of both; what the limit or the memory refuses is
// left as it is, and of what is Ahead all behind it.
func (a *Allocator) Trim() (given, mapped uint64) {
	for _, r := range a.Excess(nil) {
		given += a.unmapRange(r)
	}
	for _, r := range a.Ahead(nil) {
		for r.Bytes > 0 {
			slice := min(r.Bytes, a.belowPeak(), max(aheadSlice, a.granularity))
			if slice == 0 || slice > a.room() || !a.memory.Map(r.Addr, slice) || a.Remap(r.Addr, slice) != nil {
				return given, mapped
			}
			mapped += slice
			r.Addr, r.Bytes = r.Addr+slice, r.Bytes-slice
		}
	}
	return given, mapped
}

// belowPeak is how many bytes of whole granules can be mapped before Reserved passes its peak.
func (a *Allocator) belowPeak() uint64 {
	return (a.stats.PeakReserved - a.stats.Reserved) &^ (a.granularity - 1)
}

// UnmapFree has the memory take up to bytes of what is free, from the last address down, and
// returns how much that is: what an owner does when its job is idle or others need memory.
func (a *Allocator) UnmapFree(bytes uint64) uint64 {
	given := uint64(0)
	for _, r := range slices.Backward(a.Idle(nil)) {
		if given >= bytes {
			break
		}
		part := min(r.Bytes, roundUp(bytes-given, a.granularity))
		given += a.unmapRange(Range{r.Addr + r.Bytes - part, part})
	}
	return given
}

// unmapRange has the memory take a range of free granules.
func (a *Allocator) unmapRange(r Range) uint64 {
	if !a.memory.TryUnmap(r.Addr, r.Bytes) {
		return 0
	}
	a.unmapped.add(byteRange{r.Addr, r.Addr + r.Bytes})
	a.stats.Reserved -= r.Bytes
	return r.Bytes
}

// take has the memory take back granules of free chunks but keep, up to bytes in all, which
// are about to be mapped elsewhere. Granules that are expected to be used stay; in the first
// iteration, and where no uses are noted, none are.
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

// unmapPagesOf takes granules of one free chunk, from its end, and returns their bytes.
func (a *Allocator) unmapPagesOf(r *region, c *chunk, need uint64) uint64 {
	taken := uint64(0)
	from, to := a.wholePages(c)
	for to > from && taken < need {
		start := a.lastToUnmap(r, from, &to)
		if start == to {
			break
		}
		part := min(to-start, need-taken)
		if bytes := a.unmapRange(Range{to - part, part}); bytes > 0 {
			taken += bytes
			to -= part
			continue
		}
		to = start
	}
	return taken
}

// lastToUnmap finds the last range in [from, *to) that is mapped and not expected to be used: it
// lowers *to to its end and returns its start, or *to where there is none.
func (a *Allocator) lastToUnmap(r *region, from uint64, to *uint64) uint64 {
	wanted := func(addr uint64) bool { return !a.notes() || !a.expected(r, addr) || a.planBegins() }
	for *to > from {
		start := from
		if at := a.unmapped.from(*to - 1); at < len(a.unmapped.ranges) && a.unmapped.ranges[at].from < *to {
			*to = max(from, a.unmapped.ranges[at].from)
			continue
		} else if at > 0 {
			start = max(from, a.unmapped.ranges[at-1].to)
		}
		if !wanted(*to - a.granularity) {
			*to -= a.granularity
			continue
		}
		if !a.notes() {
			return start
		}
		first := *to - a.granularity
		for first > start && wanted(first-a.granularity) {
			first -= a.granularity
		}
		return first
	}
	return *to
}
