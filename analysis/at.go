package analysis

import (
	"errors"
	"fmt"
	"github.com/memprof/memprof/analysis/ledger"
	"io"
	"slices"

	"github.com/memprof/memprof/trace"
)

// Moment is a process after one event, exactly.
type Moment struct {
	Process string
	Seq     int64
	Kind    trace.Kind // of the event
	Time    int64
	Phase   string // the innermost open one, "other" outside of all
	Devices []DeviceMoment
}

// DeviceMoment is a device at that moment. Categories of blocks follow from what was known then: labels that
// came later, and how long blocks lived, do not count.
type DeviceMoment struct {
	Device      int32
	At          Instant // C is -1 on a device with a native allocator
	Map         AddressMap
	LargestFree int64 // L, mapped bytes; -1 if chunks are unknown
	Held        Attribution
	TopSizes    []AllocationGroup
	Next        *Unserved // nil if nothing of the sort came before
}

// Unserved is the request that last met too little free memory, up to the moment.
type Unserved struct {
	Seq, Request, Free, LargestFree int64 // as in Growth and OOM
	Failed                          bool  // out of memory; otherwise the arena grew
	Verdict                         Verdict
}

// NoEventError says that a process has no event of a seq.
type NoEventError struct{ Seq, First, Last int64 }

func (e *NoEventError) Error() string {
	return fmt.Sprintf("no event %d: this process has %d to %d", e.Seq, e.First, e.Last)
}

// RunTo analyzes one process in one pass that ends at the event seq, and says what its
// devices look like right after it. Errors are those of [Run], or a *NoEventError.
func RunTo(src trace.Source, opt Options, seq int64) (*Moment, error) {
	opt.Explore, opt.Moments = false, nil
	a := newAnalyzer(opt)
	for {
		b, err := src.Next()
		if errors.Is(err, io.EOF) {
			return nil, &NoEventError{seq, opt.FirstSeq, a.lastSeq}
		}
		if err != nil {
			return nil, err
		}
		e := new(trace.Event)
		for i := range b.Seq {
			*e = b.Event(i)
			if err := a.event(e); err != nil {
				return nil, err
			}
			if e.Seq == seq && !a.opening {
				return a.momentNow(e)
			}
		}
	}
}

// momentNow is the state after the event at hand.
func (a *analyzer) momentNow(e *trace.Event) (*Moment, error) {
	m := &Moment{Process: a.opt.Process, Seq: e.Seq, Kind: e.Kind, Time: e.Time, Phase: a.attribution.Phases.Name(a.attribution.Phases.Current)}
	for _, d := range a.devices {
		dm := DeviceMoment{Device: d.ID, At: d.InstantSeenBy(a.viewAfter(d, e), e.Seq, e.Time)}
		dm.At.C = d.sums.Now(d.C)
		dm.Map.At = dm.At
		for _, ar := range a.arenas {
			if ar.device != d || ar.Paused() {
				continue
			}
			layout, largest := a.ledger.Layout(ar.Arena)
			dm.LargestFree = max(dm.LargestFree, largest)
			if layout.Extent > 0 {
				layout.At.Seq, layout.At.Time, layout.At.Iteration = e.Seq, e.Time, d.Iteration
				dm.Map.Arenas = append(dm.Map.Arenas, layout)
			}
		}
		live := a.ledger.Live(d.Device, e.Seq)
		var err error
		if dm.Held, err = a.attribute(d, live, dm.At); err != nil && d.sums == nil {
			return nil, err
		}
		dm.TopSizes = a.attribution.BySize(live)
		dm.Next = d.lastUnserved()
		if d.sums != nil {
			dm.LargestFree = -1
		}
		m.Devices = append(m.Devices, dm)
	}
	slices.SortFunc(m.Devices, func(x, y DeviceMoment) int { return int(x.Device) - int(y.Device) })
	return m, nil
}

// viewAfter is the arena whose requests see a device after an event: that of a request that failed,
// else the one with the most reserved.
func (a *analyzer) viewAfter(d *device, e *trace.Event) *ledger.Arena {
	if ar := a.ledger.Lookup(e.Arena); e.Kind == trace.KindOOM && ar != nil && ar.Device == d.Device {
		return ar
	}
	return d.View()
}

// lastUnserved is the last growth or failed request so far.
func (d *device) lastUnserved() *Unserved {
	var last *Unserved
	for i := range d.growths.Growths {
		g := &d.growths.Growths[i]
		if last == nil || g.Seq > last.Seq {
			last = &Unserved{g.Seq, g.Request, g.Free, g.LargestFree, false, g.Verdict}
		}
	}
	if n := len(d.result.OOMs); n > 0 && (last == nil || d.result.OOMs[n-1].Seq > last.Seq) {
		o := &d.result.OOMs[n-1]
		last = &Unserved{o.Seq, o.Request, o.Free, o.LargestFree, true, o.Verdict}
	}
	return last
}
