package analysis

import (
	"fmt"

	"github.com/memprof/memprof/analysis/iterations"
	"github.com/memprof/memprof/analysis/ledger"
	"github.com/memprof/memprof/trace"
)

// arenaOf is the arena of an event, which must have been described.
func (a *analyzer) arenaOf(e *trace.Event) (*arena, error) {
	if ar := a.last; ar != nil && ar.Info.ID == e.Arena && !ar.Released { // of most events
		return ar, nil
	}
	of, err := a.ledger.ArenaOf(e)
	if err != nil {
		return nil, err
	}
	a.last = a.arenas[of.Index]
	return a.last, nil
}

// lookup is the arena with an ID, released ones too, or nil.
func (a *analyzer) lookup(id int32) *arena {
	if ar := a.ledger.Lookup(id); ar != nil {
		return a.arenas[ar.Index]
	}
	return nil
}

func (a *analyzer) alloc(ar *arena, e *trace.Event) error {
	if ar.growth.Waiting() {
		ar.device.growths.Resolve(&ar.growth, ar.Arena, e.Requested, true)
	}
	if err := a.handOut(ar, e); err != nil {
		return err
	}
	d := ar.device
	if !a.opening {
		d.result.Allocs++
		d.current.Allocs++
		d.current.AllocBytes += e.Requested
		d.byPhase.Alloc(e.Requested)
		if d.period != nil {
			d.unmarked(e)
		}
	}
	return nil
}

// unmarked passes an alloc of a device without marks to the finder of iterations.
func (d *device) unmarked(e *trace.Event) {
	d.period.Add(iterations.Request{
		Requested: e.Requested, Provided: e.Provided, Seq: e.Seq, Time: e.Time, T: d.T, C: d.C, R: d.R, Live: d.Live, Paused: d.PausedT,
	})
}

// restore makes a chunk live where a checkpoint had it. It is no request, so it counts in no iteration and ends no growth.
func (a *analyzer) restore(ar *arena, e *trace.Event) error {
	if err := a.handOut(ar, e); err != nil {
		return err
	}
	a.graphs.Restored(ar.graphs)
	return nil
}

// handOut makes the block of an event live.
func (a *analyzer) handOut(ar *arena, e *trace.Event) error {
	s, err := a.ledger.Alloc(ar.Arena, e)
	if err != nil {
		return err
	}
	s.Label, s.Visit, s.Phase = 0, a.attribution.Phases.Visit, a.attribution.Phases.Current
	if a.attribution.Capturing() {
		a.attribution.InCapture(ar.Index)
	}
	if ar.tag != nil {
		ar.device.pauses.Allocated(ar.tag)
	}
	if e.Kind == trace.KindAlloc {
		a.graphs.Allocated(ar.graphs, e)
	}
	return nil
}

func (a *analyzer) free(ar *arena, e *trace.Event) error {
	i, err := a.ledger.Occupied(ar.Arena, e, ledger.LiveSegment)
	if err != nil {
		return err
	}
	d, s := ar.device, a.ledger.Segment(i)
	if !a.opening {
		d.result.Frees++
	}
	s.Within = s.Visit != 0 && a.attribution.Phases.Open(s.Visit)
	if s.Seq <= d.trend.Bound && !ar.Over {
		d.trend.Freed(s.Block())
	}
	if d.categories != nil && d.categories.Counts(s.Seq) {
		a.categorize(d, ar.Arena, s, e.Seq)
	}
	if a.ledger.Free(ar.Arena, i, e.Seq) {
		a.graphs.Waits(ar.graphs, e)
	} else {
		a.graphs.Freed(ar.graphs, e)
	}
	return nil
}

// categorize adds a block that was live up to an event to the course of its category.
func (a *analyzer) categorize(d *device, ar *ledger.Arena, s *ledger.Segment, to int64) {
	if !ar.Over {
		b := s.Block()
		d.categories.Live(b.Requested, a.attribution.Category(&b), b.Seq, to, ar.Pauses())
	}
}

func (a *analyzer) freeDone(ar *arena, e *trace.Event) error {
	i, err := a.ledger.Occupied(ar.Arena, e, ledger.PendingSegment)
	if err != nil {
		return err
	}
	a.ledger.FreeDone(ar.Arena, i)
	a.graphs.Freed(ar.graphs, e)
	return nil
}

func (a *analyzer) mapped(ar *arena, e *trace.Event) error {
	r, err := ledger.RangeOf(e)
	if err != nil {
		return err
	}
	if err := a.ledger.CanMap(ar.Arena, r); err != nil {
		return err
	}
	if ar.graphs.InRange() {
		return fmt.Errorf("arena %d is a range of a graph memory, which maps nothing", e.Arena)
	}
	if err := a.graphs.Mapping(ar.graphs, r, e); err != nil {
		return err
	}
	_, again := ar.Extent(r)
	switch {
	case a.opening, ar.Over, ar.graphs.Backs():
	case again:
		ar.device.result.Remaps++
	default:
		if k := ar.device.keys; k != nil {
			k.Growth(ar.Arena, e.Seq, e.Time)
		}
		ar.device.growths.Grew(&ar.growth, ar.Arena, e)
	}
	ar.device.others.Changing(e.Time)
	region := a.ledger.Map(ar.Arena, r, e.Seq)
	ar.device.kept.Map(ar.Index, r, e.Seq, region)
	a.residency(ar, e.Time)
	ar.graphs.Grew(r.Bytes())
	return nil
}

func (a *analyzer) unmapped(ar *arena, e *trace.Event) error {
	r, err := ledger.RangeOf(e)
	if err != nil {
		return err
	}
	ar.device.others.Changing(e.Time)
	if err := a.ledger.Unmap(ar.Arena, r); err != nil {
		return err
	}
	ar.device.kept.Unmap(ar.Index, r)
	ar.graphs.Grew(-r.Bytes())
	a.residency(ar, e.Time)
	return nil
}
