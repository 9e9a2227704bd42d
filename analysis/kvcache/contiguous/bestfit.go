package contiguous

import (
	"fmt"

	"github.com/memprof/memprof/bfc"
)

// bestFit is an allocator of package bfc with one region of the whole memory, in which a slot is a
// granule. A chunk of less than twice the request is handed out whole, if less than 524,288 slots
// (128 MiB in granules) are left over: the rest is rounding.
type bestFit struct {
	heap     *bfc.Allocator
	base     uint64 // address of the first slot
	capacity int64
}

func newBestFit(capacity int64) (*bestFit, error) {
	const most = 1 << 50 // keeps the bytes within 64 bits
	if capacity > most {
		return nil, fmt.Errorf("best fit holds at most %d slots, not %d", int64(most), capacity)
	}
	bytes := uint64(capacity) * bfc.Granule
	heap, err := bfc.New(bfc.Options{Limit: bytes, Growth: bfc.Whole}, bfc.NewDevice(bfc.DeviceOptions{Physical: bytes}))
	if err != nil {
		return nil, err
	}
	// The region comes with the first request, and stays.
	block, ok := heap.Alloc(bytes)
	if !ok {
		return nil, fmt.Errorf("no region of %d slots", capacity)
	}
	if _, err := heap.Free(block.Addr); err != nil {
		return nil, err
	}
	return &bestFit{heap, block.Addr, capacity}, nil
}

func (b *bestFit) alloc(size int64) (piece, bool) {
	if !b.serves(size) {
		return piece{}, false
	}
	block, ok := b.heap.Alloc(uint64(size) * bfc.Granule)
	return piece{int64((block.Addr - b.base) / bfc.Granule), int64(block.Size / bfc.Granule)}, ok
}

func (b *bestFit) free(p piece) {
	if _, err := b.heap.Free(b.base + uint64(p.start)*bfc.Granule); err != nil {
		panic(fmt.Sprintf("kvcache: slot %d: %v", p.start, err))
	}
}

func (b *bestFit) serves(size int64) bool {
	return uint64(size) <= b.heap.LargestFree()/bfc.Granule
}

func (b *bestFit) available() int64 { return int64(b.heap.FreeBytes() / bfc.Granule) }
func (b *bestFit) most() int64      { return b.capacity }
