package bfc

import (
	"errors"
	"fmt"
	"math"
)

const (
	// Granule is the unit of chunks and of rounding, in bytes.
	Granule = 1 << granuleBits
	// NoLimit as Options.Limit is no limit at all.
	NoLimit = math.MaxUint64

	granuleBits     = 8
	defaultMaxSlack = 128 << 20
	// maxSize is the greatest size that is a multiple of the granule.
	maxSize = math.MaxUint64 &^ (Granule - 1)
)

var (
	// ErrNotInUse is of an address that is not the start of a chunk in use.
	ErrNotInUse = errors.New("no chunk in use starts there")
	// ErrNotFree is of a range that cannot be unmapped.
	ErrNotFree = errors.New("not aligned, mapped bytes of one free chunk")
	// ErrNotUnmapped is of a range that cannot be mapped ahead of need.
	ErrNotUnmapped = errors.New("not aligned bytes that were given back, or beyond the limit")
)

// Options are the parameters of the policy. The zero value has a limit of 0, under which
// every request fails.
type Options struct {
	// Limit is the most that is ever mapped, in bytes; NoLimit for none.
	Limit uint64
	// Headroom is what a growth beyond the request leaves free of the device, in bytes;
	// 0 never asks what is free.
	Headroom uint64
	// FragmentationFraction, if positive, makes the greatest excess this share of Limit
	// instead of 128 MiB, with SplitClassic.
	FragmentationFraction float64
	// Growth says how much is asked of the memory at a time.
	Growth Growth
	// Step is the unit of growth Step, in bytes; positive there.
	Step uint64
	// Split says when a chunk is split.
	Split Split
	// Trim says when the owner calls EndIteration, Trim and UnmapFree. The allocator notes
	// which granules each iteration uses unless that is never.
	Trim Trim
	// Placement says where a request that something fits goes.
	Placement Placement
	// GarbageCollection releases idle regions before a request fails.
	GarbageCollection bool
}

// Block is what a request got.
type Block struct {
	Addr      uint64 // a multiple of Granule
	Size      uint64 // bytes of the chunk, a multiple of Granule, at least Requested
	Requested uint64 // bytes asked for
	ID        int64  // counts successful requests from 1
}

// chunk is a piece of a region. Chunks of a region and its wall form a ring in the order
// of addresses. The wall is a chunk of no bytes at the region's end that counts as in use:
// it ends every merge, and saves all code a look whether there is a neighbour.
type chunk struct {
	addr, size uint64
	requested  uint64 // 0 while free
	id         int64  // of the block while in use; freeID, or wallID
	prev, next int32  // in the ring; next also links slots to be used again
}

const (
	freeID int64 = -1
	wallID int64 = 0
)

// region is what one grant, or several adjacent ones, brought.
type region struct {
	addr, size uint64
	wall       int32    // its next is the first chunk, its prev the last
	uses       []uint32 // by granule of the memory, if uses are noted: see uses.go
}

// Allocator is one heap under the policy of the package comment. It is not safe for
// concurrent use.
type Allocator struct {
	options     Options
	memory      Memory
	granularity uint64
	maxSlack    uint64

	chunks   []chunk // by index; 0 is not used
	recycled int32   // slots to be used again, linked by next
	free     freeSet
	live     liveTable
	regions  []region // by address

	unmapped   rangeSet
	missing    []byteRange // scratch of mapRange
	nextRegion uint64
	lastGrown  int32    // wall of the region grown last, or none once it was released
	ended      uint32   // iterations
	forgotten  uint32   // of so many, from the first on, no use makes another one expected
	planner    *planner // nil with PlacementBestFit

	lastID int64
	stats  Stats
}

// New returns an empty allocator over memory. It does not call memory but for its
// constants. Errors are of options: a fraction that is not a number, growth None without a
// limit, growth Step without a step; or of a granularity that is not a power of two of at least Granule.
func New(options Options, memory Memory) (*Allocator, error) {
	granularity := memory.Granularity()
	if granularity < Granule || granularity&(granularity-1) != 0 {
		return nil, fmt.Errorf("bfc: granularity %d is not a power of two of at least %d", granularity, Granule)
	}
	if math.IsNaN(options.FragmentationFraction) {
		return nil, errors.New("bfc: fragmentation fraction is not a number")
	}
	if options.Growth == Step && options.Step == 0 {
		return nil, errors.New("bfc: growth step needs a step")
	}
	a := &Allocator{options: options, memory: memory, granularity: granularity, maxSlack: maxSlack(options)}
	var err error
	if a.nextRegion, err = firstRegion(options); err != nil {
		return nil, err
	}
	a.chunks = make([]chunk, 1)
	a.free.nodes = make([]freeNode, 1)
	if options.Placement == PlacementPlanned {
		a.planner = newPlanner()
	}
	return a, nil
}

// maxSlack is the excess in bytes from which a chunk is split.
func maxSlack(options Options) uint64 {
	switch {
	case options.Split != SplitClassic:
		return uint64(options.Split)
	case options.FragmentationFraction > 0:
		return truncate(options.FragmentationFraction * float64(options.Limit))
	}
	return defaultMaxSlack
}

// truncate is the integral part of a product that is not negative, as far as 64 bits go.
func truncate(x float64) uint64 {
	if x >= 1<<64 {
		return math.MaxUint64
	}
	return uint64(x)
}

// Alloc hands out at least size bytes. It fails for size 0, for sizes that cannot be rounded
// up to the granule, and where there is no memory. A failure may leave regions, and the
// size of the next one, grown; nothing else has changed.
func (a *Allocator) Alloc(size uint64) (Block, bool) {
	if size == 0 || size > maxSize {
		return Block{}, false
	}
	rounded := (size + Granule - 1) &^ (Granule - 1)
	if a.planner != nil {
		return a.allocPlanned(rounded, size)
	}
	index := a.find(rounded)
	if index == none {
		return Block{}, false
	}
	return a.handOut(a.cut(index, rounded), size), true
}

// find is a free chunk for a request, by best fit or else by growth, or none.
func (a *Allocator) find(rounded uint64) int32 {
	if index := a.search(rounded); index != none {
		return index
	}
	return a.makeRoom(rounded)
}

// search finds the free chunk to take for a request, with what is to be handed out of it
// mapped, or none.
func (a *Allocator) search(rounded uint64) int32 {
	index := a.free.first(rounded, 0)
	if index == none || a.unmapped.empty() {
		return index
	}
	return a.searchMapped(index, rounded)
}

// makeRoom is for requests that nothing fits: it has the memory grow, and idle regions released.
func (a *Allocator) makeRoom(rounded uint64) int32 {
	if index := a.extendAndSearch(rounded); index != none {
		return index
	}
	if !a.options.GarbageCollection || !a.worthCollecting(rounded) {
		return none
	}
	a.CollectGarbage()
	return a.extendAndSearch(rounded)
}

// handedOut is how much of a free chunk of size bytes a request gets.
func (a *Allocator) handedOut(size, rounded uint64) uint64 {
	excess := size - rounded
	if excess >= a.maxSlack || excess >= rounded && a.options.Split == SplitClassic {
		return rounded
	}
	return size
}

// cut takes what a request gets of a free chunk out of it.
func (a *Allocator) cut(index int32, rounded uint64) int32 {
	c := &a.chunks[index]
	return a.carve(index, c.addr, a.handedOut(c.size, rounded))
}

// carve takes [addr, addr+size) out of a free chunk that has all of it, and returns the chunk
// of just that, in no bin. What is left on either side stays free; on one side only, it is the
// chunk that was.
func (a *Allocator) carve(index int32, addr, size uint64) int32 {
	c := &a.chunks[index]
	low, high := addr-c.addr, c.addr+c.size-addr-size
	a.free.remove(index)
	if low == 0 && high == 0 {
		a.removeEnd(index)
		return index
	}
	taken := none
	if low == 0 {
		taken = a.splitFront(index, size)
	} else {
		taken = a.splitBack(index, size+high)
		a.moveEnd(index)
		if high > 0 {
			rest := a.splitBack(taken, high)
			a.insertFree(rest)
			a.insertEnd(rest)
		}
	}
	a.insertFree(index)
	return taken
}

func (a *Allocator) insertFree(index int32) {
	c := &a.chunks[index]
	a.free.insert(index, c.size, c.addr)
}

// handOut makes a chunk that is in no bin one in use.
func (a *Allocator) handOut(index int32, requested uint64) Block {
	c := &a.chunks[index]
	a.lastID++
	c.requested, c.id = requested, a.lastID
	a.live.insert(c.addr, index)
	a.noteUse(c.addr, c.size)
	if a.planner != nil {
		a.planner.origins[index] = origin{}
	}

	a.stats.NumAllocs++
	a.stats.BytesInUse += c.size
	a.stats.PeakBytesInUse = max(a.stats.PeakBytesInUse, a.stats.BytesInUse)
	a.stats.LargestAlloc = max(a.stats.LargestAlloc, c.size)
	return Block{Addr: c.addr, Size: c.size, Requested: requested, ID: c.id}
}

// splitFront divides a chunk that is in no bin: a new one has its first size bytes.
func (a *Allocator) splitFront(index int32, size uint64) int32 {
	front := a.takeSlot()
	low, high := &a.chunks[front], &a.chunks[index]
	*low = chunk{addr: high.addr, size: size, id: freeID, prev: high.prev, next: index}
	a.chunks[low.prev].next = front
	high.addr, high.size, high.prev = high.addr+size, high.size-size, front
	return front
}

// splitBack divides a chunk that is in no bin: a new one has its last size bytes.
func (a *Allocator) splitBack(index int32, size uint64) int32 {
	back := a.takeSlot()
	low, high := &a.chunks[index], &a.chunks[back]
	*high = chunk{addr: low.addr + low.size - size, size: size, id: freeID, prev: index, next: low.next}
	a.chunks[high.next].prev = back
	low.size, low.next = low.size-size, back
	return back
}

// Free takes the block at addr back and merges it with its free neighbours. It returns
// the block as Alloc did, or ErrNotInUse.
func (a *Allocator) Free(addr uint64) (Block, error) {
	slot, index := a.live.find(a.chunks, addr)
	if index == none {
		return Block{}, fmt.Errorf("bfc: free of %#x: %w", addr, ErrNotInUse)
	}
	a.live.remove(slot)
	c := &a.chunks[index]
	block := Block{Addr: c.addr, Size: c.size, Requested: c.requested, ID: c.id}
	a.stats.BytesInUse -= c.size
	c.requested, c.id = 0, freeID
	if a.planner != nil {
		a.planner.freed(a.planner.origins[index], a.ended)
	}
	a.noteUse(c.addr, c.size)
	a.merge(index)
	return block, nil
}

// merge joins a free chunk that is in no bin with its free neighbours, which take it up, and
// puts the result into its bin.
func (a *Allocator) merge(index int32) {
	previous, next := a.chunks[index].prev, a.chunks[index].next
	before, behind := a.chunks[previous].id == freeID, a.chunks[next].id == freeID
	if before {
		a.free.remove(previous)
	}
	if behind {
		a.free.remove(next)
	}
	switch {
	case before && behind:
		a.removeEnd(next)
		a.absorbNext(previous)
		a.absorbNext(previous)
		a.moveEnd(previous)
		index = previous
	case before:
		a.absorbNext(previous)
		a.moveEnd(previous)
		index = previous
	case behind:
		a.absorbPrevious(next)
		index = next
	default:
		a.insertEnd(index)
	}
	a.insertFree(index)
}

// absorbNext adds the next chunk, which is in no bin, to a chunk.
func (a *Allocator) absorbNext(index int32) {
	c := &a.chunks[index]
	gone := c.next
	c.size += a.chunks[gone].size
	c.next = a.chunks[gone].next
	a.chunks[c.next].prev = index
	a.recycle(gone)
}

func (a *Allocator) absorbPrevious(index int32) {
	c := &a.chunks[index]
	gone := c.prev
	c.addr = a.chunks[gone].addr
	c.size += a.chunks[gone].size
	c.prev = a.chunks[gone].prev
	a.chunks[c.prev].next = index
	a.recycle(gone)
}

func (a *Allocator) takeSlot() int32 {
	if index := a.recycled; index != none {
		a.recycled = a.chunks[index].next
		return index
	}
	a.chunks = append(a.chunks, chunk{})
	a.free.addSlot()
	if a.planner != nil {
		a.planner.addSlot()
	}
	return int32(len(a.chunks) - 1)
}

func (a *Allocator) recycle(index int32) {
	a.chunks[index] = chunk{next: a.recycled}
	a.recycled = index
}

// Find returns the block in use that starts at addr.
func (a *Allocator) Find(addr uint64) (Block, bool) {
	_, index := a.live.find(a.chunks, addr)
	if index == none {
		return Block{}, false
	}
	c := &a.chunks[index]
	return Block{Addr: c.addr, Size: c.size, Requested: c.requested, ID: c.id}, true
}
