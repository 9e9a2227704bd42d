package ledger

import (
	"cmp"
	"fmt"
	"slices"
)

// Blocks are the blocks of a device, live or pending, that were handed out by the event of seq and have
// not been freed since; those freed by then are pending.
func (l *Ledger) Blocks(d *Device, seq int64) []Block {
	var blocks []Block
	for _, ar := range l.Arenas {
		if ar.Device != d || ar.PausedAt(seq) {
			continue
		}
		for i := ar.head; i != none; i = l.segments[i].next {
			s := &l.segments[i]
			if s.Free() || s.Seq > seq {
				continue
			}
			b := s.at(seq)
			b.Pending = s.Kind == PendingSegment && s.Freed <= seq
			blocks = append(blocks, b)
		}
	}
	return blocks
}

// Live are the blocks of a device that are live after the last event, which is seq.
func (l *Ledger) Live(d *Device, seq int64) []Block { return live(l.Blocks(d, seq)) }

// live are the blocks that are not pending.
func live(blocks []Block) []Block {
	return slices.DeleteFunc(blocks, func(b Block) bool { return b.Pending })
}

// Recall recovers what a device was like at its peak, at: the live blocks, the layout of its arenas and
// the bytes of the largest free chunk. It starts from what is there now and what has gone since. An
// error says that the layout does not add up to the peak.
func (l *Ledger) Recall(d *Device, at Instant) (blocks []Block, m AddressMap, largest int64, err error) {
	blocks = append(l.Blocks(d, at.Seq), slices.DeleteFunc(d.died, func(b Block) bool { return l.Arenas[b.Arena].PausedAt(at.Seq) })...)
	slices.SortFunc(blocks, func(x, y Block) int { return cmp.Compare(x.Addr, y.Addr) })
	m.At = at
	d.untouched = joined(d.untouched)
	var sum, view Split
	var reusable int64 // of the view
	found := at
	for _, ar := range l.Arenas {
		if ar.Device != d || ar.PausedAt(at.Seq) {
			continue
		}
		drawn, draw := l.arenaMap(ar, blocks)
		largest = max(largest, draw.largest.bytes)
		s := draw.s
		if ar.Native {
			s, draw.reusable = drawn.notRequestedOnly(s), 0
		}
		if drawn.Extent == 0 {
			continue
		}
		drawn.At.Seq, drawn.At.Time, drawn.At.Iteration = at.Seq, at.Time, at.Iteration
		s.Fill(&drawn.At)
		FreeTermsOf(&s, draw.reusable, s.Free()).Fill(&drawn.At)
		drawn.At.View = ar.Info.ID
		m.Arenas = append(m.Arenas, drawn)
		sum = sum.Plus(s)
		if s.R > view.R {
			view, reusable, found.View = s, draw.reusable, ar.Info.ID
		}
	}
	sum.Fill(&found)
	FreeTermsOf(&view, reusable, sum.Free()).Fill(&found)
	if found != at {
		err = fmt.Errorf("the peak of device %d at seq %d is not what was recovered: %+v, recovered %+v", d.ID, at.Seq, at, found)
	}
	return live(blocks), m, largest, err
}

// arenaMap lays out an arena at its device's peak. The blocks are in order of address.
func (l *Ledger) arenaMap(ar *Arena, blocks []Block) (ArenaMap, layout) {
	m := ArenaMap{Arena: ar.Info.ID}
	mapped := ar.mappedAtPeak()
	if len(mapped) == 0 {
		return m, layout{}
	}
	m.Base = mapped[0].From
	m.Extent = mapped[len(mapped)-1].To - m.Base
	draw := layout{m: &m, untouched: l.untouchedAtPeak(ar, mapped), at: m.Base}
	for _, r := range mapped {
		draw.put(r.From, SpanUnmapped)
		draw.s.R += r.Bytes()
		next, _ := slices.BinarySearchFunc(blocks, r.From, func(b Block, addr int64) int { return cmp.Compare(b.Addr, addr) })
		for ; next < len(blocks) && blocks[next].Addr < r.To; next++ {
			b := &blocks[next]
			if b.Arena != ar.Index {
				continue
			}
			draw.free(b.Addr)
			draw.block(b)
		}
		draw.free(r.To)
		draw.endRun()
	}
	draw.end()
	return m, draw
}

// untouchedAtPeak are what was untouched of an arena at the peak, in order of address; mapped is
// what was mapped of it.
func (l *Ledger) untouchedAtPeak(ar *Arena, mapped RangeSet) []Range {
	d := ar.Device
	var out []Range
	for i := ar.head; i != none; i = l.segments[i].next {
		if s := &l.segments[i]; s.Kind == UntouchedSegment && s.Seq <= d.Peak.Seq {
			out = append(out, Range{s.Addr, s.End()})
		}
	}
	untouched := RangeSet(d.untouched) // of all arenas
	for _, r := range mapped {
		for at := untouched.After(r.From); at < len(untouched) && untouched[at].From < r.To; at++ {
			out = append(out, Range{max(r.From, untouched[at].From), min(r.To, untouched[at].To)})
		}
	}
	return joined(out)
}

// Layout lays out an arena as it is, and says how many bytes its largest free chunk has.
func (l *Ledger) Layout(ar *Arena) (m ArenaMap, largest int64) {
	m.Arena = ar.Info.ID
	ar.Fill(&m.At)
	if ar.head == none {
		return m, 0
	}
	m.Base = l.segments[ar.head].Addr
	draw := layout{m: &m, at: m.Base}
	for i := ar.head; i != none; i = l.segments[i].next {
		s := &l.segments[i]
		if s.Addr != draw.at || s.Region {
			draw.endRun()
			draw.put(s.Addr, SpanUnmapped)
		}
		switch s.Kind {
		case TouchedSegment:
			draw.free(s.End())
		case UntouchedSegment:
			draw.untouched = append(draw.untouched[:0], Range{s.Addr, s.End()})
			draw.free(s.End())
		default:
			b := s.Block()
			b.Pending = s.Kind == PendingSegment
			draw.block(&b)
		}
	}
	draw.end()
	largest = draw.largest.bytes
	m.Extent = draw.at - m.Base
	m.join()
	if ar.Native {
		m.notRequestedOnly(Split{})
		m.At.C = -1
	}
	return m, largest
}

// join makes spans of one free kind that touch one span: segments of a mapping are apart
// where they were mapped apart.
func (m *ArenaMap) join() {
	spans := m.Spans[:0]
	for _, s := range m.Spans {
		if n := len(spans); n > 0 && spans[n-1].Kind == s.Kind && s.Kind.Free() {
			spans[n-1].Bytes += s.Bytes
			continue
		}
		spans = append(spans, s)
	}
	m.Spans = spans
}

// notRequestedOnly draws free memory of a native allocator's arena as what is known of it: not requested. s
// is what was drawn.
func (m *ArenaMap) notRequestedOnly(s Split) Split {
	spans := m.Spans[:0]
	for _, span := range m.Spans {
		if span.Kind.Free() {
			span.Kind = SpanNotRequested
		}
		if n := len(spans); n > 0 && span.Kind == SpanNotRequested && spans[n-1].Kind == SpanNotRequested {
			spans[n-1].Bytes += span.Bytes
			continue
		}
		spans = append(spans, span)
	}
	m.Spans = spans
	s.NotRequested += s.Free()
	s.Untouched, s.Touched = 0, 0
	return s
}
