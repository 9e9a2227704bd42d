package bfc

import (
	"errors"
	"fmt"
	"sort"
)

// ErrNotRestorable says that a range cannot be made a block.
var ErrNotRestorable = errors.New("not whole granules that are mapped and within one free chunk")

// Restore makes [addr, addr+size) a block: a checkpoint of the allocator had it there. addr and size
// are multiples of Granule, and requested is the bytes that it was requested with. The rest of the
// free chunk on either side stays free. The block gets the next ID and counts in Stats. After ErrNotRestorable nothing has changed.
//
// Since free chunks always merge, regions and blocks determine all chunks: freeing all blocks and
// restoring those of a checkpoint gives the chunks of the checkpoint.
func (a *Allocator) Restore(addr, size, requested uint64) (Block, error) {
	index := a.freeOver(addr, size)
	if index == none || requested == 0 || requested > size || a.unmapped.within(addr, addr+size) != 0 {
		return Block{}, fmt.Errorf("bfc: restore of %d bytes at %#x: %w", size, addr, ErrNotRestorable)
	}
	index = a.carve(index, addr, size)
	return a.handOut(index, requested), nil
}

// freeOver returns the free chunk that has all of [addr, addr+size); or none.
func (a *Allocator) freeOver(addr, size uint64) int32 {
	end := addr + size
	if end <= addr || (addr|size)&(Granule-1) != 0 {
		return none
	}
	at := sort.Search(len(a.regions), func(i int) bool { return a.regions[i].end() > addr })
	if at == len(a.regions) || a.regions[at].addr > addr {
		return none
	}
	wall := a.regions[at].wall
	for index := a.chunks[wall].next; index != wall; index = a.chunks[index].next {
		c := &a.chunks[index]
		if c.addr+c.size < end {
			continue
		}
		if c.id == freeID && c.addr <= addr {
			return index
		}
		return none
	}
	return none
}
