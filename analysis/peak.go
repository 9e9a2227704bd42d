package analysis

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/memprof/memprof/trace"
)

// occupiedBlocks are the blocks of a device in its segments that were handed out by the
// event of seq; those freed by then are pending.
func (a *analyzer) occupiedBlocks(d *device, seq int64) []block {
	var blocks []block
	for _, ar := range a.arenas {
		if ar.device != d || ar.pausedAt(seq) {
			continue
		}
		for i := ar.head; i != none; i = a.ledger.segments[i].next {
			s := &a.ledger.segments[i]
			if s.free() || s.seq > seq {
				continue
			}
			b := blockOf(s)
			b.Pending = s.kind == segmentPending && s.freed <= seq
			blocks = append(blocks, b)
		}
	}
	return blocks
}

// liveNow are the blocks of a device that are live after the last event.
func (a *analyzer) liveNow(d *device) []block {
	return slices.DeleteFunc(a.occupiedBlocks(d, a.lastSeq), func(b block) bool { return b.Pending })
}

// attribute divides blocks of a device that were live at an instant.
func (a *analyzer) attribute(d *device, blocks []block, at Instant) (Attribution, error) {
	held := a.attribution.Attribute(blocks, d.samples != nil)
	return held, held.Check(at.Seq, at.Live, at.T, at.C)
}

// heldOOMs bounds the failed requests of a device that are kept with who held what.
const heldOOMs = 8

// heldNow is who holds what after the event at hand, which gave nothing away.
func (a *analyzer) heldNow(d *device, at Instant) (*Attribution, error) {
	held, err := a.attribute(d, a.liveNow(d), at)
	return &held, err
}

// label takes a label event: its context stays with the block that lives there, if one does.
func (a *analyzer) label(e *trace.Event) {
	a.attribution.Label()
	if i := a.ledger.table.find(e.Addr); i != none && !a.ledger.segments[i].free() {
		a.ledger.segments[i].label = e.Context
	}
}

// finishPeak recovers what the peak instant looked like, from what there is and what has
// gone since: who held memory, and where.
func (a *analyzer) finishPeak(d *device) error {
	if d.Peak.Seq < 0 && d.Peak.R == 0 {
		d.Map.At = d.Peak
		return nil
	}
	blocks := append(a.occupiedBlocks(d, d.Peak.Seq), slices.DeleteFunc(d.died, func(b block) bool { return a.arenas[b.Arena].pausedAt(d.Peak.Seq) })...)
	slices.SortFunc(blocks, func(x, y block) int { return cmp.Compare(x.Addr, y.Addr) })
	live := make([]block, 0, len(blocks))
	for _, b := range blocks {
		if !b.Pending {
			live = append(live, b)
		}
	}
	var err error
	if d.Held, err = a.attribute(d, live, d.Peak); err != nil {
		return err
	}
	if a.opt.Owners {
		d.PeakOwners = a.attribution.Owners(live)
		d.FinalOwners = a.attribution.Owners(a.liveNow(d))
	}
	d.TopContexts = a.attribution.ByOrigin(live)
	d.TopSizes = a.attribution.BySize(live)
	d.Map.At = d.Peak
	d.untouched = joined(d.untouched)
	var sum, view split
	var reusable int64 // of the view
	found := d.Peak
	for _, ar := range a.arenas {
		if ar.device != d || ar.pausedAt(d.Peak.Seq) {
			continue
		}
		m, l := a.arenaMap(ar, blocks)
		s := l.s
		if ar.sampled {
			s, l.reusable = m.unsplit(s), 0
		}
		if m.Extent == 0 {
			continue
		}
		m.At.Seq, m.At.Time, m.At.Iteration = d.Peak.Seq, d.Peak.Time, d.Peak.Iteration
		s.fill(&m.At)
		freeTermsOf(&s, l.reusable, s.free()).fill(&m.At)
		m.At.View = ar.info.ID
		d.Map.Arenas = append(d.Map.Arenas, m)
		sum = sum.plus(s)
		if s.r > view.r {
			view, reusable, found.View = s, l.reusable, ar.info.ID
		}
	}
	sum.fill(&found)
	freeTermsOf(&view, reusable, sum.free()).fill(&found)
	if found != d.Peak {
		return fmt.Errorf("the peak of device %d at seq %d is not what was recovered: %+v, recovered %+v", d.Device, d.Peak.Seq, d.Peak, found)
	}
	return nil
}

// arenaMap lays out an arena at its device's peak. The blocks are in order of address.
func (a *analyzer) arenaMap(ar *arena, blocks []block) (ArenaMap, layout) {
	m := ArenaMap{Arena: ar.info.ID}
	mapped := ar.mappedAtPeak()
	if len(mapped) == 0 {
		return m, layout{}
	}
	m.Base = mapped[0].from
	m.Extent = mapped[len(mapped)-1].to - m.Base
	l := layout{m: &m, untouched: a.untouchedAtPeak(ar, mapped), at: m.Base}
	for _, r := range mapped {
		l.put(r.from, SpanUnmapped)
		l.s.r += r.bytes()
		next, _ := slices.BinarySearchFunc(blocks, r.from, func(b block, addr int64) int { return cmp.Compare(b.Addr, addr) })
		for ; next < len(blocks) && blocks[next].Addr < r.to; next++ {
			b := &blocks[next]
			if b.Arena != ar.index {
				continue
			}
			l.free(b.Addr)
			l.block(b)
		}
		l.free(r.to)
		l.endRun()
	}
	l.end()
	ar.device.LargestFree = max(ar.device.LargestFree, l.largest.bytes)
	return m, l
}

// untouchedAtPeak are what was untouched of an arena at the peak, in order of address; mapped is
// what was mapped of it.
func (a *analyzer) untouchedAtPeak(ar *arena, mapped rangeSet) []addressRange {
	d := ar.device
	var out []addressRange
	for i := ar.head; i != none; i = a.ledger.segments[i].next {
		if s := &a.ledger.segments[i]; s.kind == segmentUntouched && s.seq <= d.Peak.Seq {
			out = append(out, addressRange{s.addr, s.end()})
		}
	}
	untouched := rangeSet(d.untouched) // of all arenas
	for _, r := range mapped {
		for at := untouched.after(r.from); at < len(untouched) && untouched[at].from < r.to; at++ {
			out = append(out, addressRange{max(r.from, untouched[at].from), min(r.to, untouched[at].to)})
		}
	}
	return joined(out)
}

// layout draws an arena from left to right and sums up what it draws.
type layout struct {
	m         *ArenaMap
	s         split
	untouched []addressRange // ahead
	at        int64          // drawn up to here
	run       freeRun        // the free chunk that ends here
	largest   freeRun        // of equal ones the first
	reusable  int64          // bytes of the largest that were handed out before, after end
}

// freeRun is a free chunk and its spans, by index.
type freeRun struct {
	bytes    int64
	from, to int
}

// put draws a span up to an address.
func (l *layout) put(to int64, kind SpanKind) {
	if to > l.at {
		l.m.Spans = append(l.m.Spans, Span{Start: l.at - l.m.Base, Bytes: to - l.at, Kind: kind})
		l.at = to
	}
}

// free draws free memory up to an address. What was handed out before is external until the
// largest chunk is known.
func (l *layout) free(to int64) {
	if l.run.bytes == 0 {
		l.run.from = len(l.m.Spans)
	}
	l.run.bytes += to - l.at
	for len(l.untouched) > 0 && l.untouched[0].from < to {
		u := l.untouched[0]
		l.s.touched += u.from - l.at
		l.put(u.from, SpanExternal)
		end := min(u.to, to)
		l.s.untouched += end - l.at
		l.put(end, SpanReserve)
		if u.to > to {
			l.untouched[0].from = to
			return
		}
		l.untouched = l.untouched[1:]
	}
	l.s.touched += to - l.at
	l.put(to, SpanExternal)
}

func (l *layout) block(b *block) {
	l.endRun()
	end := b.Addr + b.Size
	if b.Pending {
		l.s.pending += b.Size
		l.put(end, SpanPending)
		return
	}
	rounding := roundingOf(b.Requested, b.Size)
	l.s.live++
	l.s.t += b.Requested
	l.s.c += b.Size
	l.s.rounding += rounding
	l.s.slack += b.Size - b.Requested - rounding
	l.put(b.Addr+b.Requested, SpanLive)
	l.put(end, SpanSlack)
}

// endRun ends a free chunk.
func (l *layout) endRun() {
	if l.run.bytes > l.largest.bytes {
		l.run.to = len(l.m.Spans)
		l.largest = l.run
	}
	l.run.bytes = 0
}

// end draws what was handed out before of the largest free chunk as reusable.
func (l *layout) end() {
	l.endRun()
	for i := l.largest.from; i < l.largest.to; i++ {
		if s := &l.m.Spans[i]; s.Kind == SpanExternal {
			s.Kind = SpanReusable
			l.reusable += s.Bytes
		}
	}
}
