package bfc

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

const (
	defaultMaxSlack = 128 << 20
	// allOver is a number of frees that is never reached.
	allOver = math.MaxUint64
	// maxSize is the largest multiple of the granule below 2^64.
	maxSize = math.MaxUint64 &^ (Granule - 1)
)

var (
	// ErrNotInUse says that no block starts at an address.
	ErrNotInUse = errors.New("no chunk in use starts there")
	// ErrNotFree says that a range cannot be unmapped.
	ErrNotFree = errors.New("not aligned, mapped bytes of one free chunk")
	// ErrNotUnmapped says that a range cannot be mapped again.
	ErrNotUnmapped = errors.New("not aligned, unmapped bytes, or beyond the limit")
)

// Block is what a request gets: a chunk in use.
type Block struct {
	Addr      uint64 // a multiple of Granule
	Size      uint64 // bytes of the chunk, a multiple of Granule, at least Requested
	Requested uint64 // bytes asked for
	ID        int64  // counts successful requests from 1
}

// Stats are counters. Sizes are bytes of chunks, not of requests.
type Stats struct {
	NumAllocs      uint64 `json:"num_allocs"` // successful requests
	BytesInUse     uint64 `json:"bytes_in_use"`
	PeakBytesInUse uint64 `json:"peak_bytes_in_use"`
	LargestAlloc   uint64 `json:"largest_alloc"`
	Reserved       uint64 `json:"reserved"` // mapped
	PeakReserved   uint64 `json:"peak_reserved"`
}

// Allocator is one allocator of the package comment. It is not safe for concurrent use.
type Allocator struct {
	options     Options
	memory      Memory
	granularity uint64
	maxSlack    uint64

	chunks   []chunk // by index; slot 0 is never a chunk, so that index 0 says "none"
	recycled int32   // the first unused slot, or none
	free     freeSet
	live     liveTable
	numbered bool     // blocks are not in it: see Number
	newest   int32    // the chunk that was handed out last
	regions  []region // by address

	unmapped   rangeSet
	missing    []byteRange // scratch of mapRange, kept between calls
	paged      []int32     // scratch of eachIdle
	nextRegion uint64
	lastGrown  int32  // wall of the region that was granted or lengthened last; none once it is released
	ended      uint32 // how many iterations have ended: the number of the one under way
	frees      uint64 // blocks that were freed or lost their slack
	over       uint64 // work that was queued before so many of these is over; see Over
	pager      *pager // nil but with growth Pages
	shortage   bool   // see Shortage

	lastID int64
	stats  Stats
}

// New returns an empty allocator over memory, of which it calls only Granularity. It fails for a
// FragmentationFraction that is not a number, for growth Whole without a limit, and for a granularity
// that is not a power of two of at least Granule.
func New(options Options, memory Memory) (*Allocator, error) {
	granularity := memory.Granularity()
	if granularity < Granule || granularity&(granularity-1) != 0 {
		return nil, fmt.Errorf("bfc: granularity %d is not a power of two of at least %d", granularity, Granule)
	}
	if math.IsNaN(options.FragmentationFraction) {
		return nil, errors.New("bfc: fragmentation fraction is not a number")
	}
	a := &Allocator{options: options, memory: memory, granularity: granularity, maxSlack: maxSlack(options), over: allOver}
	var err error
	if a.nextRegion, err = firstRegion(options); err != nil {
		return nil, err
	}
	a.chunks = make([]chunk, 1)
	a.free.nodes = make([]freeNode, 1)
	if options.Growth == Pages {
		a.pager = &pager{}
	}
	return a, nil
}

// Expect reserves memory for so many blocks. From then on the allocator knows blocks by [Allocator.Number] alone, and not by address.
func (a *Allocator) Expect(blocks int) {
	a.chunks, a.free.nodes = slices.Grow(a.chunks, blocks), slices.Grow(a.free.nodes, blocks)
	a.numbered = true
}

// maxSlack is how many bytes left over make a request split a chunk, whatever its size.
func maxSlack(options Options) uint64 {
	switch {
	case options.Split == SplitAlways:
		return Granule
	case options.FragmentationFraction > 0:
		return truncate(options.FragmentationFraction * float64(options.Limit))
	}
	return defaultMaxSlack
}

// truncate returns the integer part of x, which is not negative; at most 2^64-1.
func truncate(x float64) uint64 {
	if x >= 1<<64 {
		return math.MaxUint64
	}
	return uint64(x)
}

// Alloc hands out a block of at least size bytes. It fails for size 0, for sizes above 2^64-256,
// and where there is no memory. A failure may leave regions and the size of the next one grown, and
// free pages unmapped; nothing else has changed.
func (a *Allocator) Alloc(size uint64) (Block, bool) {
	if size == 0 || size > maxSize {
		return Block{}, false
	}
	rounded := (size + Granule - 1) &^ (Granule - 1)
	index := a.find(rounded)
	if index == none {
		return Block{}, false
	}
	return a.handOut(index, size), true
}

// find returns the chunk of a request's block, in no free set, by best fit or else by growth; or none.
func (a *Allocator) find(rounded uint64) int32 {
	if index := a.searchAndCut(rounded); index != none {
		return index
	}
	return a.makeRoom(rounded)
}

func (a *Allocator) searchAndCut(rounded uint64) int32 {
	index := a.search(rounded)
	if index == none {
		return none
	}
	return a.cut(index, rounded)
}

// search returns the free chunk that a request gets, after mapping the part that is handed out; or
// none.
func (a *Allocator) search(rounded uint64) int32 {
	index := a.free.first(rounded, 0)
	if index == none || a.unmapped.empty() {
		return index
	}
	return a.searchMapped(index, rounded)
}

// makeRoom serves a request for which no chunk is large enough: it grows, then releases idle
// regions and grows again.
func (a *Allocator) makeRoom(rounded uint64) int32 {
	if index := a.extendAndCut(rounded); index != none {
		return index
	}
	if !a.options.GarbageCollection || !a.worthCollecting(rounded) {
		return none
	}
	a.CollectGarbage()
	return a.extendAndCut(rounded)
}

func (a *Allocator) extendAndCut(rounded uint64) int32 {
	if a.shortage {
		return a.squeeze(rounded)
	}
	return a.extend(rounded)
}

// handedOut returns how many bytes of a free chunk of size bytes a request gets.
func (a *Allocator) handedOut(size, rounded uint64) uint64 {
	rest := size - rounded
	if a.shortage || rest >= a.maxSlack || rest >= rounded && a.options.Split == SplitClassic {
		return rounded
	}
	return size
}

// cut takes the part that a request gets out of a free chunk, and returns the chunk of that part.
func (a *Allocator) cut(index int32, rounded uint64) int32 {
	c := &a.chunks[index]
	return a.carve(index, c.addr, a.handedOut(c.size, rounded))
}

// carve takes [addr, addr+size) out of a free chunk that has all of it, and returns the chunk of
// just that range, which is in no free set. The rest on either side stays free.
func (a *Allocator) carve(index int32, addr, size uint64) int32 {
	c := &a.chunks[index]
	low, high := addr-c.addr, c.addr+c.size-addr-size
	a.free.remove(index)
	if low == 0 && high == 0 {
		return index
	}
	taken := none
	if low == 0 {
		taken = a.splitFront(index, size)
	} else {
		taken = a.splitBack(index, size+high)
		if high > 0 {
			a.insertFree(a.splitBack(taken, high))
		}
	}
	a.insertFree(index)
	return taken
}

func (a *Allocator) insertFree(index int32) {
	c := &a.chunks[index]
	a.free.insert(index, c.size, c.addr)
}

// handOut makes a chunk that is in no free set a block.
func (a *Allocator) handOut(index int32, requested uint64) Block {
	c := &a.chunks[index]
	a.lastID++
	c.requested, c.id = requested, a.lastID
	if a.newest = index; !a.numbered {
		a.live.insert(c.addr, index)
	}
	a.touch(index)

	a.stats.NumAllocs++
	a.stats.BytesInUse += c.size
	a.stats.PeakBytesInUse = max(a.stats.PeakBytesInUse, a.stats.BytesInUse)
	a.stats.LargestAlloc = max(a.stats.LargestAlloc, c.size)
	return Block{Addr: c.addr, Size: c.size, Requested: requested, ID: c.id}
}

// splitFront makes a new chunk of the first size bytes of a chunk that is in no free set.
func (a *Allocator) splitFront(index int32, size uint64) int32 {
	front := a.takeSlot()
	low, high := &a.chunks[front], &a.chunks[index]
	*low = chunk{addr: high.addr, size: size, left: high.left, id: freeID, prev: high.prev, next: index}
	a.chunks[low.prev].next = front
	high.addr, high.size, high.prev = high.addr+size, high.size-size, front
	return front
}

// splitBack makes a new chunk of the last size bytes of a chunk that is in no free set.
func (a *Allocator) splitBack(index int32, size uint64) int32 {
	back := a.takeSlot()
	low, high := &a.chunks[index], &a.chunks[back]
	*high = chunk{addr: low.addr + low.size - size, size: size, left: low.left, id: freeID, prev: index, next: low.next}
	a.chunks[high.next].prev = back
	low.size, low.next = low.size-size, back
	return back
}

// Free ends the block at addr, whose chunk merges with its free neighbours. It returns the block as
// Alloc did, or ErrNotInUse.
func (a *Allocator) Free(addr uint64) (Block, error) {
	slot, index := a.live.find(a.chunks, addr)
	if index == none {
		return Block{}, fmt.Errorf("bfc: free of %#x: %w", addr, ErrNotInUse)
	}
	a.live.remove(slot)
	return a.FreeNumber(index), nil
}

// Number returns the number of the block that was handed out last, which is valid until its free. Unlike an address it needs no search.
func (a *Allocator) Number() int32 { return a.newest }

// FreeNumber frees the block of a number, after [Allocator.Expect].
func (a *Allocator) FreeNumber(index int32) Block {
	c := &a.chunks[index]
	block := Block{Addr: c.addr, Size: c.size, Requested: c.requested, ID: c.id}
	a.stats.BytesInUse -= c.size
	a.frees++
	c.requested, c.id, c.left = 0, freeID, a.frees
	a.leave(index)
	a.merge(index)
	return block
}

// merge joins a free chunk that is in no free set with its free neighbours, and puts the result into
// the free set.
func (a *Allocator) merge(index int32) {
	previous, next := a.chunks[index].prev, a.chunks[index].next
	before, behind := a.chunks[previous].id == freeID, a.chunks[next].id == freeID
	if before {
		a.free.remove(previous)
	}
	if behind {
		a.free.remove(next)
	}
	if behind {
		a.absorbNext(index)
	}
	if before {
		a.absorbNext(previous)
		index = previous
	}
	a.insertFree(index)
}

// absorbNext adds the next chunk, which is in no free set, to a chunk.
func (a *Allocator) absorbNext(index int32) {
	c := &a.chunks[index]
	gone := c.next
	c.left = max(c.left, a.chunks[gone].left)
	c.size += a.chunks[gone].size
	c.next = a.chunks[gone].next
	a.chunks[c.next].prev = index
	a.recycle(gone)
}

func (a *Allocator) takeSlot() int32 {
	if index := a.recycled; index != none {
		a.recycled = a.chunks[index].next
		return index
	}
	a.chunks = append(a.chunks, chunk{})
	a.free.addSlot()
	return int32(len(a.chunks) - 1)
}

func (a *Allocator) recycle(index int32) {
	a.chunks[index] = chunk{next: a.recycled}
	a.recycled = index
}

// Find returns the block that starts at addr.
func (a *Allocator) Find(addr uint64) (Block, bool) {
	_, index := a.live.find(a.chunks, addr)
	if index == none {
		return Block{}, false
	}
	c := &a.chunks[index]
	return Block{Addr: c.addr, Size: c.size, Requested: c.requested, ID: c.id}, true
}
