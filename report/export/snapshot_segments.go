package export

import (
	"cmp"
	"slices"

	"github.com/memprof/memprof/trace"
)

// segments writes the memory that is mapped after the last event, for each device.
func (s *snapshot) segments() {
	item, end := s.list()
	for _, m := range s.memories {
		blocks := map[int32][]*trace.Block{} // of each arena, by address
		for b := range m.live.Blocks() {
			blocks[b.Alloc.Arena] = append(blocks[b.Alloc.Arena], b)
		}
		for _, of := range blocks {
			slices.SortFunc(of, func(a, b *trace.Block) int { return cmp.Compare(a.Alloc.Addr, b.Alloc.Addr) })
		}
		for _, r := range m.segments() {
			of := blocks[r.arena]
			at := func(addr int64) int {
				i, _ := slices.BinarySearchFunc(of, addr, func(b *trace.Block, addr int64) int { return cmp.Compare(b.Alloc.Addr, addr) })
				return i
			}
			item()
			s.segment(m, r, of[at(r.from):at(r.to)])
		}
	}
	end()
}

// chunk is a part of a segment: the chunk of an allocation, or the free memory between two.
type chunk struct {
	addr, size int64
	block      *trace.Block // nil if free
}

// chunksOf returns the chunks that tile a segment, by address.
func chunksOf(r mappedRange, blocks []*trace.Block) []chunk {
	var chunks []chunk
	at := r.from
	for _, b := range blocks {
		if b.Alloc.Addr > at {
			chunks = append(chunks, chunk{addr: at, size: b.Alloc.Addr - at})
		}
		chunks = append(chunks, chunk{b.Alloc.Addr, b.Alloc.Provided, b})
		at = b.Alloc.Addr + b.Alloc.Provided
	}
	if at < r.to {
		chunks = append(chunks, chunk{addr: at, size: r.to - at})
	}
	return chunks
}

func (s *snapshot) segment(m *memory, r mappedRange, blocks []*trace.Block) {
	a := m.arenas[r.arena]
	var allocated, active, requested int64
	for _, b := range blocks {
		active += b.Alloc.Provided
		if !b.Pending {
			allocated += b.Alloc.Provided
		}
		requested += b.Alloc.Requested
	}
	s.dict(func() {
		s.field("device", int64(m.device))
		s.field("address", r.from)
		s.field("total_size", r.to-r.from)
		s.field("allocated_size", allocated)
		s.field("active_size", active)
		s.field("requested_size", requested)
		s.field("stream", a.stream)
		size := "large"
		if a.small {
			size = "small"
		}
		s.textField("segment_type", size)
		s.text("segment_pool_id")
		s.integer(a.pool[0])
		s.integer(a.pool[1])
		s.ops(opTuple2)
		s.text("is_expandable")
		s.boolean(a.coalesces)
		s.text("frames")
		s.ops(opEmptyList)
		s.text("blocks")
		item, end := s.list()
		for _, p := range chunksOf(r, blocks) {
			item()
			s.block(m, &p)
		}
		end()
	})
}

func (s *snapshot) block(m *memory, p *chunk) {
	s.dict(func() {
		s.field("address", p.addr)
		s.field("size", p.size)
		if p.block == nil {
			s.field("requested_size", 0)
			s.textField("state", "inactive")
			s.text("frames")
			s.ops(opEmptyList)
			return
		}
		s.field("requested_size", p.block.Alloc.Requested)
		state := "active_allocated"
		if p.block.Pending {
			state = "active_pending_free"
		}
		s.textField("state", state)
		s.text("frames")
		s.writeFrames(m.originOf(p.block))
	})
}
