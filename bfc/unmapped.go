package bfc

import (
	"fmt"
	"slices"
)

// byteRange is [from, to).
type byteRange struct{ from, to uint64 }

func (r byteRange) bytes() uint64 { return r.to - r.from }

// rangeSet is a set of bytes, as its maximal ranges in the order of addresses. The zero
// value is empty.
type rangeSet struct {
	ranges []byteRange
	bytes  uint64 // in all of them
}

func (s *rangeSet) empty() bool { return len(s.ranges) == 0 }

// from is the index of the first range that ends after addr.
func (s *rangeSet) from(addr uint64) int {
	at, _ := slices.BinarySearchFunc(s.ranges, addr, func(r byteRange, addr uint64) int {
		if r.to <= addr {
			return -1
		}
		return 1
	})
	return at
}

// add adds a range of which no byte is in the set.
func (s *rangeSet) add(r byteRange) {
	s.bytes += r.bytes()
	at := s.from(r.from)
	end := at
	if at > 0 && s.ranges[at-1].to == r.from {
		at--
		r.from = s.ranges[at].from
	}
	if end < len(s.ranges) && s.ranges[end].from == r.to {
		r.to = s.ranges[end].to
		end++
	}
	s.ranges = slices.Replace(s.ranges, at, end, r)
}

// remove takes the bytes of a range out of the set, those that are in it.
func (s *rangeSet) remove(r byteRange) {
	at := s.from(r.from)
	end := at
	var kept [2]byteRange
	rest := kept[:0]
	for ; end < len(s.ranges) && s.ranges[end].from < r.to; end++ {
		old := s.ranges[end]
		s.bytes -= min(old.to, r.to) - max(old.from, r.from)
		if old.from < r.from {
			rest = append(rest, byteRange{old.from, r.from})
		}
		if old.to > r.to {
			rest = append(rest, byteRange{r.to, old.to})
		}
	}
	s.ranges = slices.Replace(s.ranges, at, end, rest...)
}

// cut appends to out the parts of the set's ranges that lie in [from, to).
func (s *rangeSet) cut(out []byteRange, from, to uint64) []byteRange {
	for at := s.from(from); at < len(s.ranges) && s.ranges[at].from < to; at++ {
		out = append(out, byteRange{max(from, s.ranges[at].from), min(to, s.ranges[at].to)})
	}
	return out
}

// within is how many bytes of [from, to) are in the set.
func (s *rangeSet) within(from, to uint64) uint64 {
	bytes := uint64(0)
	for at := s.from(from); at < len(s.ranges) && s.ranges[at].from < to; at++ {
		bytes += min(to, s.ranges[at].to) - max(from, s.ranges[at].from)
	}
	return bytes
}

// Unmap notes that the physical memory of [addr, addr+bytes) was given back: whoever calls
// it does that. The range is of whole granules of the memory's granularity, mapped, and
// inside one free chunk; for any other it returns ErrNotFree and nothing has changed.
// Placement goes on as if nothing had been given back; what is handed out is mapped again.
func (a *Allocator) Unmap(addr, bytes uint64) error {
	r := byteRange{addr, addr + bytes}
	if !a.unmappable(r) {
		return fmt.Errorf("bfc: unmap of %d bytes at %#x: %w", bytes, addr, ErrNotFree)
	}
	a.unmapped.add(r)
	a.stats.Reserved -= bytes
	return nil
}

// Remap notes that the owner has mapped [addr, addr+bytes) again, ahead of need. The range is
// of whole granules, and all of it had been given back; for any other, and beyond the limit, it
// returns ErrNotUnmapped and nothing has changed.
func (a *Allocator) Remap(addr, bytes uint64) error {
	r := byteRange{addr, addr + bytes}
	if !a.isUnmapped(r) || bytes > a.room() {
		return fmt.Errorf("bfc: remap of %d bytes at %#x: %w", bytes, addr, ErrNotUnmapped)
	}
	a.unmapped.remove(r)
	a.stats.Reserved += bytes
	a.stats.PeakReserved = max(a.stats.PeakReserved, a.stats.Reserved)
	return nil
}

// unmappable says whether r is of whole granules, all mapped and in one free chunk.
func (a *Allocator) unmappable(r byteRange) bool {
	return a.isPages(r) && a.freeAround(r) != none && a.unmapped.within(r.from, r.to) == 0
}

// isUnmapped says whether r is of whole granules that were all given back.
func (a *Allocator) isUnmapped(r byteRange) bool {
	return a.isPages(r) && a.unmapped.within(r.from, r.to) == r.bytes()
}

// isPages says whether r is of whole granules, and not empty.
func (a *Allocator) isPages(r byteRange) bool {
	return r.to > r.from && (r.from|r.to)&(a.granularity-1) == 0
}

// freeAround finds the free chunk that has all of r. It looks at free chunks of that size
// and larger only, which are few where r is worth to be unmapped.
func (a *Allocator) freeAround(r byteRange) int32 {
	for index := a.free.first(r.bytes(), 0); index != none; index = a.free.after(index) {
		if c := &a.chunks[index]; c.addr <= r.from && r.to <= c.addr+c.size {
			return index
		}
	}
	return none
}

// searchMapped maps what is missing of the best fit, or else finds the first candidate of
// which nothing is missing.
func (a *Allocator) searchMapped(best int32, rounded uint64) int32 {
	if a.mapFor(best, a.reach(best, rounded)) {
		return best
	}
	for index := a.free.after(best); index != none; index = a.free.after(index) {
		if r := a.reach(index, rounded); a.unmapped.within(r.from, r.to) == 0 {
			return index
		}
	}
	return none
}

// mapFor maps what is missing of r, which a request gets of a free chunk. Needed takes as much
// elsewhere first, where uses are noted.
func (a *Allocator) mapFor(index int32, r byteRange) bool {
	if lack := a.unmapped.within(r.from, r.to); lack > 0 && a.options.Growth == Needed && a.notes() {
		a.unmapElsewhere(lack, index)
	}
	return a.mapRange(r)
}

// reach is what a request would get of a free chunk, widened to the granularity.
func (a *Allocator) reach(index int32, rounded uint64) byteRange {
	c := &a.chunks[index]
	return byteRange{
		c.addr &^ (a.granularity - 1),
		roundUp(c.addr+a.handedOut(c.size, rounded), a.granularity),
	}
}

// mapRange maps what is missing of r, all or nothing.
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
	a.stats.PeakReserved = max(a.stats.PeakReserved, a.stats.Reserved)
	return true
}
