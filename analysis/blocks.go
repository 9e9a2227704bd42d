package analysis

import (
	"cmp"
	"slices"

	"github.com/memprof/memprof/analysis/attribution"
	"github.com/memprof/memprof/analysis/iterations"
	"github.com/memprof/memprof/analysis/ledger"
	"github.com/memprof/memprof/trace"
)

// attribute divides blocks of a device that were live at an instant.
func (a *analyzer) attribute(d *device, blocks []ledger.Block, at ledger.Instant) (*attribution.Result, error) {
	held := a.attribution.Attribute(blocks)
	return &held, held.Check(at)
}

// heldOOMs is the most failed requests of a device that are kept with their live allocations.
const heldOOMs = 8

// heldNow divides the blocks that are live after the event at hand, which freed none.
func (a *analyzer) heldNow(d *device, at ledger.Instant) (*attribution.Result, error) {
	return a.attribute(d, a.ledger.Blocks(d.Device), at)
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
	r.Held, r.Map, r.TopSizes, r.Chunks = m.Held, m.Map, m.TopSizes, m.Chunks
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
	if d.keys != nil {
		d.keys.OOM(o.At)
	}
	var err error
	if len(d.result.OOMs) < heldOOMs {
		o.Held, err = a.heldNow(d, o.At)
	}
	d.sums.Fill(&o.At)
	d.growths.Judge(&o, d.Device, ar)
	d.result.OOMs = append(d.result.OOMs, o)
	return err
}

// liveAt are the blocks that are live at the last of the points. What paused arenas hold is among them.
func (a *analyzer) liveAt(d *device, points *iterations.Points) []ledger.Block {
	blocks := slices.Clone(points.Freed)
	for _, ar := range a.arenas {
		if ar.device != d || ar.Over {
			continue
		}
		a.ledger.Each(ar.Arena, func(s *ledger.Segment) {
			// A pending block was live at the bound if it was freed since: then it is among points.Freed.
			if s.Kind == ledger.LiveSegment && s.Seq <= points.Until {
				blocks = append(blocks, s.Block())
			}
		})
	}
	slices.SortFunc(blocks, func(x, y ledger.Block) int { return cmp.Compare(x.Seq, y.Seq) })
	return blocks
}
