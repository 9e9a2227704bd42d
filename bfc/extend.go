package bfc

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"
)

const (
	firstRegionSize = 2 << 20
	// backoff is the share of a refused growth that is requested next. It is a float32, as in the
	// reference, and so are products with it.
	backoff float32 = 0.9
)

// firstRegion returns the size of the first region in bytes.
func firstRegion(options Options) (uint64, error) {
	limit := roundUp(options.Limit, Granule)
	switch options.Growth {
	case Double, Needed, Pages:
		return min(firstRegionSize, limit), nil
	case Whole:
		if options.Limit == NoLimit {
			return 0, errors.New("bfc: growth whole takes the whole limit at once and needs one")
		}
		return limit, nil
	}
	return 0, fmt.Errorf("bfc: unknown growth %d", int(options.Growth))
}

// room returns how many bytes may still be mapped under the limit.
func (a *Allocator) room() uint64 {
	if a.stats.Reserved >= a.options.Limit {
		return 0
	}
	return a.options.Limit - a.stats.Reserved
}

// extend grows for a request, and returns the chunk of its block, in no free set; or none.
func (a *Allocator) extend(rounded uint64) int32 {
	if a.options.Growth == Double || a.options.Growth == Whole {
		if !a.extendByRegion(rounded) {
			return none
		}
		return a.searchAndCut(rounded)
	}
	return a.lengthen(rounded)
}

// lengthen grows by what a request lacks behind a free tail.
func (a *Allocator) lengthen(rounded uint64) int32 {
	tail := a.freeTail(rounded)
	if tail == none {
		return a.lengthenWhole(rounded)
	}
	if !a.extendFor(rounded-a.chunks[tail].size, tail) {
		return none
	}
	if index := a.searchAndCut(rounded); index != none {
		return index
	}
	// The grant is not adjacent to the tail, or the tail's unmapped part could not be mapped.
	return a.lengthenWhole(rounded)
}

// lengthenWhole grows by a whole request. With growth Pages the block is at the start of the grant, which may have joined a free
// chunk that did not serve: it would be found again.
func (a *Allocator) lengthenWhole(rounded uint64) int32 {
	before, end := a.lastGrown, a.chunks[a.lastGrown].addr
	if !a.extendFor(rounded, none) {
		return none
	}
	if a.pager == nil {
		return a.searchAndCut(rounded)
	}
	last := a.chunks[a.lastGrown].prev
	c := &a.chunks[last]
	addr := c.addr
	if a.lastGrown == before {
		addr = end
	}
	return a.carve(last, addr, a.handedOut(c.addr+c.size-addr, rounded))
}

// extendFor grows by what a request lacks behind a free tail.
func (a *Allocator) extendFor(lack uint64, tail int32) bool {
	if a.pager != nil {
		return a.extendByPages(lack, tail)
	}
	return a.extendBy(lack)
}

// extendByRegion grows by the next region: growth Double and Whole.
func (a *Allocator) extendByRegion(rounded uint64) bool {
	available := a.room() &^ (Granule - 1)
	if rounded > available {
		return false
	}
	doubled := false
	for rounded > a.nextRegion {
		a.doubleNextRegion()
		doubled = true
	}
	bytes := a.keepHeadroom(min(a.nextRegion, available), rounded)
	bytes, ok := a.fitPadding(bytes, rounded)
	if !ok {
		return false
	}
	for !a.grow(bytes) {
		if bytes = lessThan(bytes); bytes < rounded {
			return false
		}
	}
	if !doubled {
		a.doubleNextRegion()
	}
	return true
}

func (a *Allocator) doubleNextRegion() {
	if a.nextRegion > maxSize/2 {
		a.nextRegion = maxSize
		return
	}
	a.nextRegion *= 2
}

// keepHeadroom returns bytes, a growth for a request of rounded, cut so that the headroom stays free on
// the device; but not below rounded.
func (a *Allocator) keepHeadroom(bytes, rounded uint64) uint64 {
	if a.options.Headroom == 0 || bytes <= rounded {
		return bytes
	}
	left := uint64(0)
	if free := a.memory.Free(); free > a.options.Headroom {
		left = (free - a.options.Headroom) &^ (a.granularity - 1)
	}
	return max(rounded, min(bytes, left))
}

// fitPadding returns bytes, cut so that they stay within the limit when the memory rounds them up to
// pages. It is false where less than rounded is left.
func (a *Allocator) fitPadding(bytes, rounded uint64) (uint64, bool) {
	room := a.room()
	fits := room &^ (a.granularity - 1)
	if bytes <= fits {
		return bytes, true // a multiple of the page lies between bytes and room
	}
	return fits, fits >= rounded
}

// lessThan returns how many bytes to request after bytes were refused.
func lessThan(bytes uint64) uint64 {
	less := (uint64(float32(bytes)*backoff) + Granule - 1) &^ (Granule - 1)
	if less >= bytes {
		return bytes - Granule
	}
	return less
}

// freeTail returns the free chunk that a grant would join: growth Needed and Pages; or none. A tail that
// is large enough for the request counts as none: the search did not use it, since the memory refused
// to map its unmapped part. So does one with a retired address, and one that the grant would not lie behind.
func (a *Allocator) freeTail(rounded uint64) int32 {
	if a.lastGrown == none || !a.memory.Coalesces() {
		return none
	}
	index := a.chunks[a.lastGrown].prev
	tail := &a.chunks[index]
	if tail.id != freeID || tail.size >= rounded || !a.memory.Adjoins(rounded-tail.size) || a.hasRetired(a.pagesOf(tail.addr, tail.size)) {
		return none
	}
	return index
}

// extendBy grows by lack bytes: growth Needed and Pages.
func (a *Allocator) extendBy(lack uint64) bool {
	if lack > a.room()&^(Granule-1) {
		return false
	}
	bytes, ok := a.fitPadding(lack, lack)
	return ok && a.grow(bytes)
}

// grow requests bytes from the memory and adds the grant to the regions.
func (a *Allocator) grow(bytes uint64) bool {
	addr, granted, ok := a.memory.Grow(bytes)
	if !ok {
		return false
	}
	at := sort.Search(len(a.regions), func(i int) bool { return a.regions[i].addr >= addr })
	if !a.validGrant(addr, granted, bytes, at) {
		return false
	}
	a.stats.Reserved += granted
	a.stats.PeakReserved = max(a.stats.PeakReserved, a.stats.Reserved)
	if at > 0 && a.memory.Coalesces() && a.regions[at-1].end() == addr {
		a.join(&a.regions[at-1], granted)
		return true
	}
	a.addRegion(at, addr, granted)
	return true
}

// validGrant says whether a grant keeps to the contract of Memory. A memory that replays a damaged
// recording may grant anything; what is not valid counts as a refusal.
func (a *Allocator) validGrant(addr, granted, asked uint64, at int) bool {
	switch {
	case granted < asked, (addr|granted)%Granule != 0, addr > math.MaxUint64-granted:
		return false
	case at > 0 && a.regions[at-1].end() > addr:
		return false
	case at < len(a.regions) && addr+granted > a.regions[at].addr:
		return false
	}
	return granted <= a.room()
}

// addRegion makes a grant the region at index at: one free chunk and the wall.
func (a *Allocator) addRegion(at int, addr, bytes uint64) {
	wall, all := a.takeSlot(), a.takeSlot()
	a.chunks[wall] = chunk{addr: addr + bytes, id: wallID, prev: all, next: all}
	a.chunks[all] = chunk{addr: addr, size: bytes, id: freeID, prev: wall, next: wall}
	a.insertFree(all)
	a.regions = slices.Insert(a.regions, at, region{addr: addr, size: bytes, wall: wall})
	a.notePages(&a.regions[at], bytes)
	a.lastGrown = wall
}

// join adds a grant to the end of a region.
func (a *Allocator) join(r *region, bytes uint64) {
	added := a.takeSlot()
	wall := &a.chunks[r.wall]
	a.chunks[added] = chunk{addr: r.end(), size: bytes, id: freeID, prev: wall.prev, next: r.wall}
	a.chunks[wall.prev].next = added
	wall.prev = added
	wall.addr += bytes
	r.size += bytes
	a.notePages(r, bytes)
	a.lastGrown = r.wall
	a.merge(added)
}

// NextRegion returns the size of the next region in bytes, for a request that is no larger.
func (a *Allocator) NextRegion() uint64 { return a.nextRegion }

// Locate returns the index, addresses ascending, of the region that has addr, and the offset in it. ok
// is false if there is none.
func (a *Allocator) Locate(addr uint64) (index int, offset uint64, ok bool) {
	at, found := slices.BinarySearchFunc(a.regions, addr, func(r region, addr uint64) int {
		switch {
		case r.end() <= addr:
			return -1
		case r.addr > addr:
			return 1
		}
		return 0
	})
	if !found {
		return 0, 0, false
	}
	return at, addr - a.regions[at].addr, true
}
