package ledger

import (
	"cmp"
	"fmt"
	"slices"
)

// Blocks are the blocks of a device that are live after the last event. What is paused has none.
func (l *Ledger) Blocks(d *Device) []Block {
	var blocks []Block
	for _, ar := range l.Arenas {
		if ar.Device != d || ar.Over || ar.Paused() {
			continue
		}
		l.Each(ar, func(s *Segment) {
			if s.Kind == LiveSegment {
				blocks = append(blocks, s.Block())
			}
		})
	}
	return blocks
}

// Contents is what an arena has after an event, in no order.
type Contents struct {
	Mapped    []Mapped
	Untouched []Range
	Blocks    []Block // live and pending
}

// Mapped is a mapped range, which may start a region.
type Mapped struct {
	Range
	Region bool
}

// Draw lays out what the arenas of a device, by index, have after an event, and says how many bytes the largest free
// chunk has. An error says that the layout does not add up to the instant.
func (l *Ledger) Draw(d *Device, at Instant, arenas []Contents) (m AddressMap, largest int64, err error) {
	m.At = at
	var sum, view Split
	var reusable int64 // of the view
	for i, ar := range l.Arenas {
		if ar.Device != d || len(arenas[i].Mapped) == 0 {
			continue
		}
		drawn, draw := arenas[i].draw()
		drawn.Arena = ar.Info.ID
		largest = max(largest, draw.largest.bytes)
		s := draw.s
		s.Unknown = ar.Unknown
		if s.Undivided(); s.NotRequested > 0 {
			drawn.notRequestedOnly()
			draw.reusable = 0
		}
		drawn.At.Seq, drawn.At.Time, drawn.At.Iteration = at.Seq, at.Time, at.Iteration
		s.Fill(&drawn.At)
		FreeTermsOf(&s, draw.reusable, s.Free()).Fill(&drawn.At)
		drawn.At.View = ar.Info.ID
		m.Arenas = append(m.Arenas, drawn)
		sum = sum.Plus(s)
		if ar.Info.ID == at.View {
			view, reusable = s, draw.reusable
		}
	}
	found := at
	sum.Unknown = at.C < 0
	sum.Fill(&found)
	FreeTermsOf(&view, reusable, sum.Free()).Fill(&found)
	if found != at {
		err = fmt.Errorf("device %d after seq %d is not what was recovered: %+v, recovered %+v", d.ID, at.Seq, at, found)
	}
	return m, largest, err
}

// draw lays out an arena.
func (c *Contents) draw() (m ArenaMap, draw layout) {
	slices.SortFunc(c.Blocks, func(x, y Block) int { return cmp.Compare(x.Addr, y.Addr) })
	runs, blocks := c.runs(), c.Blocks
	m.Base = runs[0].From
	draw = layout{m: &m, untouched: joined(c.Untouched), at: m.Base}
	for _, r := range runs {
		draw.put(r.From, SpanUnmapped)
		draw.s.R += r.Bytes()
		for ; len(blocks) > 0 && blocks[0].Addr < r.To; blocks = blocks[1:] {
			draw.free(blocks[0].Addr)
			draw.block(&blocks[0])
		}
		draw.free(r.To)
		draw.endRun()
	}
	draw.end()
	m.Extent = draw.at - m.Base
	return m, draw
}

// runs are the mapped ranges, joined where they touch and chunks reach from one into the other.
func (c *Contents) runs() (out []Range) {
	slices.SortFunc(c.Mapped, func(x, y Mapped) int { return cmp.Compare(x.From, y.From) })
	for _, r := range c.Mapped {
		if n := len(out); n > 0 && !r.Region && out[n-1].To == r.From {
			out[n-1].To = r.To
			continue
		}
		out = append(out, r.Range)
	}
	return out
}

// joined sorts disjoint ranges and joins those that touch, in place.
func joined(ranges []Range) []Range {
	slices.SortFunc(ranges, func(a, b Range) int { return cmp.Compare(a.From, b.From) })
	out := ranges[:0]
	for _, r := range ranges {
		if n := len(out); n > 0 && out[n-1].To == r.From {
			out[n-1].To = r.To
			continue
		}
		out = append(out, r)
	}
	return out
}

// notRequestedOnly draws free memory of an arena whose chunks are not known as what is known of it: not requested.
func (m *ArenaMap) notRequestedOnly() {
	for i := range m.Spans {
		if m.Spans[i].Kind.Free() {
			m.Spans[i].Kind = SpanNotRequested
		}
	}
	m.join()
}

// join makes spans of one free kind that touch one span.
func (m *ArenaMap) join() {
	spans := m.Spans[:0]
	for _, s := range m.Spans {
		if n := len(spans); n > 0 && spans[n-1].Kind == s.Kind && (s.Kind.Free() || s.Kind == SpanNotRequested) {
			spans[n-1].Bytes += s.Bytes
			continue
		}
		spans = append(spans, s)
	}
	m.Spans = spans
}
