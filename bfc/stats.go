package bfc

import (
	"bytes"
	"math/bits"
)

// Stats returns the counters since New.
func (a *Allocator) Stats() Stats { return a.stats }

// LargestFree returns the size of the largest free chunk in bytes; 0 if there is none.
func (a *Allocator) LargestFree() uint64 {
	index := a.free.largest()
	if index == none {
		return 0
	}
	return a.chunks[index].size
}

// FreeBytes returns the bytes of all free chunks, mapped or not.
func (a *Allocator) FreeBytes() uint64 {
	return a.stats.Reserved + a.unmapped.bytes - a.stats.BytesInUse
}

// Fragmentation returns (F-L)/F, where F is FreeBytes and L is LargestFree: from 0 to below 1, and 0
// where nothing is free.
func (a *Allocator) Fragmentation() float64 {
	free := a.FreeBytes()
	if free == 0 {
		return 0
	}
	return float64(free-a.LargestFree()) / float64(free)
}

// Region is a copy of a region. Its chunks cover it without gaps.
type Region struct {
	Addr, Size uint64 // bytes
	Chunks     []Chunk
}

// Chunk is a copy of a chunk.
type Chunk struct {
	Offset, Size uint64 // bytes; Offset is in the region
	Requested    uint64 // bytes; 0 if free
	ID           int64  // of the block in it, from 1; -1 if free
}

// Free says whether the chunk is free.
func (c Chunk) Free() bool { return c.ID == freeID }

// Regions copies all regions with their chunks, in the order of addresses.
func (a *Allocator) Regions() []Region {
	out := make([]Region, len(a.regions))
	for i, r := range a.regions {
		out[i] = Region{Addr: r.addr, Size: r.size}
		for index := a.chunks[r.wall].next; index != r.wall; {
			c := &a.chunks[index]
			out[i].Chunks = append(out[i].Chunks, Chunk{
				Offset: c.addr - r.addr, Size: c.size, Requested: c.requested, ID: c.id,
			})
			index = c.next
		}
	}
	return out
}

// Picture draws the chunks of regions, one region behind the other, in width characters: '*' where a
// requested byte is, else 'x' where rounding or slack is, else '_' for free.
func Picture(regions []Region, width int) string {
	total := uint64(0)
	for _, r := range regions {
		total += r.Size
	}
	if total == 0 || width <= 0 {
		return ""
	}
	cells := bytes.Repeat([]byte{'_'}, width)
	cell := func(offset uint64) uint64 {
		high, low := bits.Mul64(offset, uint64(width))
		at, _ := bits.Div64(high, low, total)
		return at
	}
	fill := func(from, to uint64, mark byte) {
		if from == to {
			return
		}
		for i := cell(from); i <= cell(to-1); i++ {
			if cells[i] != '*' {
				cells[i] = mark
			}
		}
	}
	base := uint64(0)
	for _, r := range regions {
		for _, c := range r.Chunks {
			if c.Free() {
				continue
			}
			start := base + c.Offset
			fill(start+c.Requested, start+c.Size, 'x')
			fill(start, start+c.Requested, '*')
		}
		base += r.Size
	}
	return string(cells)
}
