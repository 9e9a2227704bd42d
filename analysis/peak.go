package analysis

import "github.com/memprof/memprof/trace"

// liveNow are the blocks of a device that are live after the last event.
func (a *analyzer) liveNow(d *device) []block {
	return a.ledger.Live(d.Device, a.lastSeq)
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
	a.ledger.Label(e.Addr, e.Context)
}

// finishPeak recovers what the peak instant looked like: who held memory, and where.
func (a *analyzer) finishPeak(d *device) error {
	r := &d.result
	r.Map.At = r.Peak
	if r.Peak.Seq < 0 && r.Peak.R == 0 {
		return nil
	}
	live, layout, largest, recalled := a.ledger.Recall(d.Device, r.Peak)
	var err error
	if r.Held, err = a.attribute(d, live, r.Peak); err != nil {
		return err
	}
	if a.opt.Owners {
		r.PeakOwners = a.attribution.Owners(live)
		r.FinalOwners = a.attribution.Owners(a.liveNow(d))
	}
	r.TopContexts = a.attribution.ByOrigin(live)
	r.TopSizes = a.attribution.BySize(live)
	r.Map, r.LargestFree = layout, largest
	return recalled
}
