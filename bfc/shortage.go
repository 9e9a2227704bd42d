package bfc

import "fmt"

// Shortage says that the device has no more memory than free chunks have mapped, now or from time to
// time. From now on a request gets no slack, growth is by what it lacks, and where the memory refuses to
// map the best fit a block goes where the fewest pages have to be mapped.
func (a *Allocator) Shortage() { a.shortage = true }

// InShortage says whether Shortage was called.
func (a *Allocator) InShortage() bool { return a.shortage }

// slack returns the bytes of a block behind its rounded request.
func (c *chunk) slack() uint64 { return c.size - roundUp(c.requested, Granule) }

// Shrink frees the slack of the block at addr, and returns what is left of the block. It fails for an
// address where no block begins, and for a block without slack.
func (a *Allocator) Shrink(addr uint64) (Block, error) {
	_, index := a.live.find(a.chunks, addr)
	if index == none || a.chunks[index].slack() == 0 {
		return Block{}, fmt.Errorf("bfc: shrink of %#x: %w with slack", addr, ErrNotInUse)
	}
	a.ShrinkNumber(index)
	c := &a.chunks[index]
	return Block{Addr: c.addr, Size: c.size, Requested: c.requested, ID: c.id}, nil
}

// ShrinkNumber frees the slack of the block of a number, after [Allocator.Expect], and returns its bytes.
func (a *Allocator) ShrinkNumber(index int32) (slack uint64) {
	if slack = a.chunks[index].slack(); slack == 0 {
		return 0
	}
	a.stats.BytesInUse -= slack
	rest := a.splitBack(index, slack)
	a.frees++
	a.chunks[rest].left = a.frees
	a.leave(rest)
	a.merge(rest)
	return slack
}

// squeeze serves a request in a shortage for which no chunk was found whose part is mapped or could be
// mapped: at the place where the fewest bytes are unmapped, in a free chunk or at the end of the region
// that grew last. It returns the chunk of the block, in no free set; or none.
func (a *Allocator) squeeze(rounded uint64) int32 {
	index, addr, lack := a.leastUnmapped(rounded)
	if index != none && lack <= a.growthLack(rounded) && a.mapFor(a.pagesOf(addr, rounded)) {
		return a.carve(index, addr, rounded)
	}
	return a.lengthen(rounded)
}

// leastUnmapped returns the place for a request, at the start or the end of a free chunk, with the fewest
// unmapped bytes, and these bytes. Of equal ones it is that in the first chunk by size and address, and
// there the start. none: no chunk is large enough.
func (a *Allocator) leastUnmapped(rounded uint64) (best int32, addr, lack uint64) {
	for index := a.free.first(rounded, 0); index != none; index = a.free.after(index) {
		c := &a.chunks[index]
		for _, at := range [2]uint64{c.addr, c.addr + c.size - rounded} {
			r := a.pagesOf(at, rounded)
			if a.hasRetired(r) {
				continue
			}
			if bytes := a.unmapped.within(r.from, r.to); best == none || bytes < lack {
				best, addr, lack = index, at, bytes
			}
		}
	}
	return best, addr, lack
}

// growthLack returns how many bytes a growth for a request has to map, with those of a free tail.
func (a *Allocator) growthLack(rounded uint64) uint64 {
	tail := a.freeTail(rounded)
	if tail == none {
		return roundUp(rounded, a.granularity)
	}
	c := &a.chunks[tail]
	return a.unmapped.within(c.addr, c.addr+c.size) + roundUp(rounded-c.size, a.granularity)
}

// pagesOf returns the pages that [addr, addr+bytes) touches.
func (a *Allocator) pagesOf(addr, bytes uint64) byteRange {
	return byteRange{addr &^ (a.granularity - 1), roundUp(addr+bytes, a.granularity)}
}
