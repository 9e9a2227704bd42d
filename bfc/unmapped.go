package bfc

import (
	"fmt"
	"slices"
)

// Mapped returns the maximal ranges of mapped bytes within a region, addresses ascending.
func (a *Allocator) Mapped() []Range {
	var out []Range
	for i := range a.regions {
		at, end := a.regions[i].addr, a.regions[i].end()
		for _, gap := range a.unmapped.cut(nil, at, end) {
			if at < gap.from {
				out = append(out, Range{at, gap.from - at})
			}
			at = gap.to
		}
		if at < end {
			out = append(out, Range{at, end - at})
		}
	}
	return out
}

// Unmap notes that the caller has unmapped [addr, addr+bytes): whole pages, mapped, and within one
// free chunk. For any other range it returns ErrNotFree, and nothing has changed. Placement does not
// look at unmapped pages; they are mapped again before they are handed out.
func (a *Allocator) Unmap(addr, bytes uint64) error {
	r := byteRange{addr, addr + bytes}
	if !a.unmappable(r) {
		return fmt.Errorf("bfc: unmap of %d bytes at %#x: %w", bytes, addr, ErrNotFree)
	}
	a.unmapped.add(r)
	a.unbacked(r)
	a.stats.Reserved -= bytes
	return nil
}

// Remap notes that the caller has mapped [addr, addr+bytes) for no request: whole pages, all
// unmapped. For any other range, and beyond the limit, it returns ErrNotUnmapped, and nothing has
// changed.
func (a *Allocator) Remap(addr, bytes uint64) error {
	r := byteRange{addr, addr + bytes}
	if !a.isUnmapped(r) || bytes > a.room() {
		return fmt.Errorf("bfc: remap of %d bytes at %#x: %w", bytes, addr, ErrNotUnmapped)
	}
	a.unmapped.remove(r)
	a.backed(r)
	a.stats.Reserved += bytes
	a.stats.PeakReserved = max(a.stats.PeakReserved, a.stats.Reserved)
	return nil
}

// unmappable says whether r is whole pages, all mapped and within one free chunk.
func (a *Allocator) unmappable(r byteRange) bool {
	return a.isPages(r) && a.freeAround(r) != none && a.unmapped.within(r.from, r.to) == 0
}

// isUnmapped says whether r is whole pages, all unmapped.
func (a *Allocator) isUnmapped(r byteRange) bool {
	return a.isPages(r) && a.unmapped.within(r.from, r.to) == r.bytes()
}

// isPages says whether r is whole pages, at least one.
func (a *Allocator) isPages(r byteRange) bool {
	return r.to > r.from && (r.from|r.to)&(a.granularity-1) == 0
}

// freeAround returns the free chunk that has all of r; or none. It looks at free chunks of that size
// and larger, which are few where r is pages.
func (a *Allocator) freeAround(r byteRange) int32 {
	for index := a.free.first(r.bytes(), 0); index != none; index = a.free.after(index) {
		if c := &a.chunks[index]; c.addr <= r.from && r.to <= c.addr+c.size {
			return index
		}
	}
	return none
}

// searchMapped returns best, or with growth Pages a larger chunk that moves fewer pages, after mapping the part that a
// request gets of it; or, where the memory refuses or addresses are retired, the first larger chunk whose part is mapped; or none.
func (a *Allocator) searchMapped(best int32, rounded uint64) int32 {
	index := a.mostReady(best, rounded)
	if index != none && a.mapFor(a.reach(index, rounded)) {
		return index
	}
	if r := a.reach(best, rounded); index != best && !a.hasRetired(r) && a.mapFor(r) {
		return best
	}
	for index := a.free.after(best); index != none; index = a.free.after(index) {
		if r := a.reach(index, rounded); a.unmapped.within(r.from, r.to) == 0 {
			return index
		}
	}
	return none
}

// mapFor maps the unmapped part of r, which a request gets of a free chunk.
func (a *Allocator) mapFor(r byteRange) bool {
	if a.pager != nil {
		return a.mapPages(r)
	}
	return a.mapRange(r)
}

// reach returns the range that a request would get of a free chunk, widened to whole pages.
func (a *Allocator) reach(index int32, rounded uint64) byteRange {
	c := &a.chunks[index]
	return byteRange{
		c.addr &^ (a.granularity - 1),
		roundUp(c.addr+a.handedOut(c.size, rounded), a.granularity),
	}
}

// mapRange maps the unmapped part of r, all of it or nothing.
func (a *Allocator) mapRange(r byteRange) bool {
	a.missing = a.unmapped.cut(a.missing[:0], r.from, r.to)
	reserved := a.stats.Reserved
	for i, m := range a.missing {
		if m.bytes() > a.room() || !a.memory.Map(m.from, m.bytes()) {
			for _, done := range slices.Backward(a.missing[:i]) {
				a.memory.Unmap(done.from, done.bytes())
			}
			a.stats.Reserved = reserved
			return false
		}
		a.stats.Reserved += m.bytes()
	}
	for _, m := range a.missing {
		a.unmapped.remove(m)
	}
	a.backed(a.missing...)
	a.stats.PeakReserved = max(a.stats.PeakReserved, a.stats.Reserved)
	return true
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
