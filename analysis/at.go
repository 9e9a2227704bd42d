package analysis

import (
	"fmt"
	"slices"

	"github.com/memprof/memprof/analysis/attribution"
	"github.com/memprof/memprof/analysis/keyframes"
	"github.com/memprof/memprof/analysis/ledger"
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

// DeviceMoment is a device at that moment. Categories of blocks follow from the whole pass: from labels that came later, too,
// and from how long blocks lived.
type DeviceMoment struct {
	Device   int32
	At       ledger.Instant // C is -1 where it is not known
	Map      ledger.AddressMap
	Chunks   *Chunks // nil where they are not known
	Held     *attribution.Result
	TopSizes []attribution.AllocationGroup
}

// AtPeak is the device at its peak.
func (d *DeviceResult) AtPeak() *DeviceMoment {
	return &DeviceMoment{Device: d.Device, At: d.Peak, Map: d.Map, Chunks: d.Chunks, Held: d.Held, TopSizes: d.TopSizes}
}

// NoEventError says that a process has no event of a seq.
type NoEventError struct{ Seq, First, Last int64 }

func (e *NoEventError) Error() string {
	return fmt.Sprintf("no event %d: this process has %d to %d", e.Seq, e.First, e.Last)
}

// At returns what the devices of a process were like right after each of some events: at least one, in ascending order. It reads all of
// the source, since later events decide the categories of blocks. Options.Recovered has to be set where the source ends before the process
// does. Errors are those of [Run], or a *NoEventError.
func At(src trace.Source, opt Options, seqs ...int64) (moments []*Moment, err error) {
	a := newSecond(opt, nil, nil)
	for e, err := range trace.Events(src) {
		if err == nil {
			err = a.event(e)
		}
		if err != nil {
			return nil, err
		}
		if len(moments) < len(seqs) && !a.opening && e.Seq == seqs[len(moments)] {
			moments = append(moments, a.momentNow(e))
		}
	}
	if len(moments) < len(seqs) {
		return nil, &NoEventError{seqs[len(moments)], opt.FirstSeq, a.lastSeq}
	}
	a.attribution.Finish(a.cutOff())
	return moments, a.recall(moments)
}

// Revisit makes a second pass over a process, or over some of its events and those that restate what was before them: the
// Keyframes of its result have every event of some spans, and those that a first pass chose. Chosen is the first pass's
// result, nil if it chose none. Memory grows with the events of the spans.
func Revisit(src trace.Source, opt Options, spans []keyframes.Span, chosen *Result) (*Result, error) {
	return newSecond(opt, spans, chosen).run(src)
}

// Explore fills in the keyframes that a first pass chose, and every event of some spans, by a second pass over the process.
func (r *Result) Explore(src trace.Source, opt Options, spans []keyframes.Span) error {
	for i := range spans {
		spans[i].To = min(spans[i].To, r.LastSeq+1)
	}
	second, err := Revisit(src, opt, spans, r)
	if err != nil {
		return err
	}
	r.explored(second)
	return nil
}

// explored takes the keyframes of a second pass.
func (r *Result) explored(second *Result) {
	for i := range r.Devices {
		first, k := r.Devices[i].Keyframes, second.Devices[i].Keyframes
		k.IterationsEach, k.EventsEach, k.GrowthsEach = first.IterationsEach, first.EventsEach, first.GrowthsEach
		r.Devices[i].Keyframes = k
	}
}

// newSecond is an analyzer of a second pass.
func newSecond(opt Options, spans []keyframes.Span, chosen *Result) *analyzer {
	opt.Explore, opt.LiveGroups, opt.Moments = false, false, nil
	a := newAnalyzer(opt)
	a.second, a.chosen, a.history = true, chosen, keyframes.NewSecond(spans, opt.FirstSeq, keyframes.MostStretches)
	return a
}

// wantedOf are the keyframes of a device that the first pass chose.
func (a *analyzer) wantedOf(id int32) []keyframes.Frame {
	if a.chosen == nil {
		return nil
	}
	at := slices.IndexFunc(a.chosen.Devices, func(d DeviceResult) bool { return d.Device == id && d.Keyframes != nil })
	if at < 0 {
		return nil
	}
	return a.chosen.Devices[at].Keyframes.Frames
}

// momentNow is the state after the event at hand, without blocks and addresses: recall adds them.
func (a *analyzer) momentNow(e *trace.Event) *Moment {
	m := &Moment{Process: a.opt.Process, Seq: e.Seq, Kind: e.Kind, Time: e.Time, Phase: a.attribution.Phases.Name(a.attribution.Phases.Current)}
	for _, d := range a.devices {
		at := d.InstantSeenBy(a.viewAfter(d, e), e.Seq, e.Time)
		at.Iteration += a.opt.Marks
		d.kept.Wanted(at)
		dm := DeviceMoment{Device: d.ID, At: at, Map: ledger.AddressMap{At: at}}
		d.sums.Fill(&dm.Map.At)
		m.Devices = append(m.Devices, dm)
	}
	slices.SortFunc(m.Devices, func(x, y DeviceMoment) int { return int(x.Device) - int(y.Device) })
	return m
}

// recall adds to the moments of a pass which blocks were live, and where.
func (a *analyzer) recall(moments []*Moment) error {
	for _, m := range moments {
		for i := range m.Devices {
			dm, filled := &m.Devices[i], m.Devices[i].Map.At
			of, _, err := a.momentOf(a.deviceOf(dm.Device), dm.At)
			if err != nil {
				return err
			}
			of.At, of.Map.At = filled, filled
			*dm = of
		}
	}
	return nil
}

// momentOf is a device at an instant that its recorder wanted, or now, and its blocks that were live then.
func (a *analyzer) momentOf(d *device, at ledger.Instant) (DeviceMoment, []ledger.Block, error) {
	dm := DeviceMoment{Device: d.ID, At: at}
	live, layout, largest, recalled := d.kept.Recall(a.ledger, at)
	var err error
	if dm.Held, err = a.attribute(d, live, at); err != nil {
		return dm, nil, err
	}
	dm.Map, dm.Chunks, dm.TopSizes = layout, d.result.Chunks.at(largest), a.attribution.BySize(live)
	return dm, live, recalled
}

// viewAfter is the arena whose requests see a device after an event: that of a request that failed,
// else the one with the most reserved.
func (a *analyzer) viewAfter(d *device, e *trace.Event) *ledger.Arena {
	if ar := a.ledger.Lookup(e.Arena); e.Kind == trace.KindOOM && ar != nil && ar.Device == d.Device {
		return ar
	}
	return d.View()
}
