package analysis

import (
	"github.com/memprof/memprof/analysis/attribution"
	"github.com/memprof/memprof/analysis/iterations"
	"github.com/memprof/memprof/analysis/ledger"
	"github.com/memprof/memprof/trace"
)

// attribute divides blocks of a device that were live at an instant.
func (a *analyzer) attribute(d *device, blocks []ledger.Block, at ledger.Instant) (attribution.Result, error) {
	held := a.attribution.Attribute(blocks, d.sums != nil)
	return held, held.Check(at.Seq, at.Live, at.T, at.C)
}

// heldOOMs is the most failed requests of a device that are kept with their live allocations.
const heldOOMs = 8

// heldNow divides the blocks that are live after the event at hand, which freed none.
func (a *analyzer) heldNow(d *device, at ledger.Instant) (*attribution.Result, error) {
	held, err := a.attribute(d, a.ledger.Blocks(d.Device), at)
	return &held, err
}

// label takes a label event: its context stays with the block that lives there, if one does. The course of categories
// has a pending block since its free: its bytes move.
func (a *analyzer) label(e *trace.Event) error {
	a.attribution.Label()
	s, ar := a.ledger.At(e.Addr)
	if s == nil {
		return nil
	}
	d := a.arenas[ar.Index].device
	move := d.categories != nil && s.Kind == ledger.PendingSegment && !ar.Over
	before := s.Block()
	s.Label = e.Context
	if move {
		after := s.Block()
		d.categories.Live(-s.Requested, a.attribution.Category(&before), s.Seq, s.Freed, ar.Pauses())
		d.categories.Live(s.Requested, a.attribution.Category(&after), s.Seq, s.Freed, ar.Pauses())
	}
	return nil
}

// finishPeak recovers the blocks that were live at the peak, their origins and their addresses.
func (a *analyzer) finishPeak(d *device) error {
	r := &d.result
	r.Map.At = r.Peak
	if a.second || r.Peak.Seq < 0 && r.Peak.R == 0 {
		return nil
	}
	m, live, err := a.momentOf(d, r.Peak)
	if err != nil {
		return err
	}
	r.Held, r.Map, r.TopSizes = m.Held, m.Map, m.TopSizes
	if r.Chunks != nil {
		r.Chunks.LargestFree = m.LargestFree
	}
	r.TopContexts = a.attribution.ByOrigin(live)
	if a.opt.LiveGroups {
		r.PeakLive = a.attribution.LiveGroups(live)
		r.FinalLive = a.attribution.LiveGroups(a.ledger.Blocks(d.Device))
	}
	return nil
}

// oom takes a request that failed for good. One without an arena is judged as a request of the arena with the
// most reserved.
func (a *analyzer) oom(d *device, ar *ledger.Arena, e *trace.Event) error {
	d.result.OOMCount++
	if a.opt.LiveGroups && d.result.OOMCount == 1 {
		d.result.OOMLive = a.attribution.LiveGroups(a.ledger.Blocks(d.Device))
	}
	a.attribution.Phases.Cut()
	if len(d.result.OOMs) == a.opt.MaxGrowths {
		return nil
	}
	if ar == nil {
		ar = d.View()
	}
	o := OOM{
		Seq: e.Seq, Time: e.Time, Request: e.Requested, Arena: e.Arena,
		Context: a.opt.Text(e.Context), At: d.InstantSeenBy(ar, e.Seq, e.Time),
		Used: d.others.UsedAt(e.Time), OtherLibraries: d.others.OtherLibraries.Live, Limit: -1, Capturing: a.captures > 0,
	}
	if ar != nil {
		o.Limit = ar.Info.Limit
	}
	o.Origin, _ = attribution.ParseOrigin(o.Context)
	d.growths.Judge(&o, d.Device, ar)
	if d.keys != nil {
		d.keys.OOM(o.At)
	}
	var err error
	if len(d.result.OOMs) < heldOOMs {
		o.Held, err = a.heldNow(d, o.At)
	}
	if d.sums != nil {
		o.JudgeSampled(d.sums.C)
	}
	d.result.OOMs = append(d.result.OOMs, o)
	return err
}

// leak is the trend of held bytes, and the blocks that leak.
func (a *analyzer) leak(d *device) iterations.Leak {
	l, which, found := d.trend.Finish(d.result.Iterations, len(d.result.Iterations) > 0 && d.result.Period == 0, a.lastTime)
	if !found {
		return l
	}
	blocks := a.leaked(d, which)
	for i := range blocks {
		l.Blocks++
		l.Requested += blocks[i].Requested
		l.Provided += blocks[i].Size
	}
	l.Allocations = a.attribution.ByOrigin(blocks)
	l.Sizes = a.attribution.BySize(blocks)
	l.Stacks = a.attribution.ByStack(blocks)
	return l
}

// leaked are the blocks that a trend says leak. What paused arenas hold is among them.
func (a *analyzer) leaked(d *device, which iterations.LeakedBlocks) []ledger.Block {
	blocks := which.Freed
	for _, ar := range a.arenas {
		if ar.device != d || ar.Over {
			continue
		}
		a.ledger.Each(ar.Arena, func(s *ledger.Segment) {
			// A pending block was live at the bound if it was freed since: then it is among which.Freed.
			if s.Kind == ledger.LiveSegment && which.Since < s.Seq && s.Seq <= which.Until {
				blocks = append(blocks, s.Block())
			}
		})
	}
	return blocks
}
