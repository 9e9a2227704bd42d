package torchalloc

import (
	"cmp"
	"slices"
)

// Level is a number of bytes that rises and falls.
type Level struct{ Now, Peak uint64 }

func (l *Level) add(bytes uint64) {
	l.Now += bytes
	l.Peak = max(l.Peak, l.Now)
}

// Stats are the allocator's sums, in bytes and counts since New. The levels are those of
// torch.cuda.memory_stats: requested_bytes, allocated_bytes, active_bytes and reserved_bytes,
// each "all".
type Stats struct {
	Requested Level // requested bytes, until the block is idle again
	Allocated Level // blocks of live allocations
	Active    Level // blocks of live and pending allocations
	Reserved  Level // segments and mapped pages

	Retries       uint64 // releases of everything for a request
	DeviceAllocs  uint64 // cudaMalloc
	DeviceFrees   uint64 // cudaFree
	PagesMapped   uint64
	PagesUnmapped uint64
}

// Stats returns the current sums.
func (a *Allocator) Stats() Stats { return a.stats }

func (s *Stats) served(b *Block) {
	s.Requested.add(b.requested)
	s.Allocated.add(b.size)
	s.Active.add(b.size)
}

func (s *Stats) freed(b *Block) { s.Allocated.Now -= b.size }

func (s *Stats) idle(b *Block) {
	s.Active.Now -= b.size
	s.Requested.Now -= b.requested
}

func (s *Stats) reserve(bytes uint64)   { s.Reserved.add(bytes) }
func (s *Stats) unreserve(bytes uint64) { s.Reserved.Now -= bytes }

// BlockState is the state of a block.
type BlockState uint8

const (
	Free      BlockState = iota
	Allocated            // live
	Waiting              // freed, and not reusable before events or the end of a scope
	Unmapped             // addresses only
)

// State returns the current state of the block.
func (b *Block) State() BlockState {
	switch {
	case b.allocated:
		return Allocated
	case !b.idle():
		return Waiting
	case !b.mapped:
		return Unmapped
	}
	return Free
}

// Segment is a segment with its blocks, which tile it.
type Segment struct {
	Addr, Size uint64
	Expandable bool
	Small      bool // of a small pool
	Blocks     []*Block
}

// Segments returns all segments, addresses ascending.
func (a *Allocator) Segments() []Segment {
	all := make([]Segment, 0, len(a.open))
	for s := range a.open {
		made := Segment{Addr: s.addr, Size: s.size, Expandable: s.expandable, Small: s.first.pool.small}
		for b := s.first; b != nil; b = b.next {
			made.Blocks = append(made.Blocks, b)
		}
		all = append(all, made)
	}
	slices.SortFunc(all, func(a, b Segment) int { return cmp.Compare(a.Addr, b.Addr) })
	return all
}
