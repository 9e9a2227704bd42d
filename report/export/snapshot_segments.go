package export

import (
	"slices"

	"github.com/memprof/memprof/analysis"
)

func stackOf(context string) int64 {
	_, stack := analysis.RequesterOf(context)
	return stack
}

// segments writes what is mapped after the last event, device by device.
func (s *snapshot) segments() {
	item, end := s.list()
	for _, m := range s.memories {
		addrs := make([]int64, 0, len(m.live))
		for addr, b := range m.live {
			if a := m.arenas[b.arena]; a != nil && !a.paused {
				addrs = append(addrs, addr)
			}
		}
		slices.Sort(addrs)
		for _, r := range m.mapped {
			first, _ := slices.BinarySearch(addrs, r.from)
			last, _ := slices.BinarySearch(addrs, r.to)
			item()
			s.segment(m, r, addrs[first:last])
		}
	}
	end()
}

// piece is a block of a segment, live or free.
type piece struct {
	addr, size int64
	block      *liveBlock // nil for a free one
}

// pieces tile a segment: its blocks and what is free between them.
func (m *memory) pieces(r mappedRange, addrs []int64) []piece {
	var pieces []piece
	at := r.from
	for _, addr := range addrs {
		b := m.live[addr]
		if addr > at {
			pieces = append(pieces, piece{addr: at, size: addr - at})
		}
		pieces = append(pieces, piece{addr, b.provided, b})
		at = addr + b.provided
	}
	if at < r.to {
		pieces = append(pieces, piece{addr: at, size: r.to - at})
	}
	return pieces
}

func (s *snapshot) segment(m *memory, r mappedRange, addrs []int64) {
	a := m.arenas[r.arena]
	var allocated, active, requested int64
	for _, addr := range addrs {
		b := m.live[addr]
		active += b.provided
		if !b.pending {
			allocated += b.provided
		}
		requested += b.requested
	}
	s.dict(func() {
		s.field("device", int64(m.device))
		s.field("address", r.from)
		s.field("total_size", r.to-r.from)
		s.field("allocated_size", allocated)
		s.field("active_size", active)
		s.field("requested_size", requested)
		s.field("stream", a.stream)
		s.textField("segment_type", "large")
		s.text("segment_pool_id")
		s.integer(0)
		s.integer(0)
		s.ops(opTuple2)
		s.text("is_expandable")
		s.boolean(a.coalesces)
		s.text("frames")
		s.ops(opEmptyList)
		s.text("blocks")
		item, end := s.list()
		for _, p := range m.pieces(r, addrs) {
			item()
			s.block(&p)
		}
		end()
	})
}

func (s *snapshot) block(p *piece) {
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
		s.field("requested_size", p.block.requested)
		state := "active_allocated"
		if p.block.pending {
			state = "active_pending_free"
		}
		s.textField("state", state)
		s.text("frames")
		s.writeFrames(p.block)
	})
}
