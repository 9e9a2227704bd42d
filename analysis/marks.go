package analysis

import "github.com/memprof/memprof/trace"
import (
	"github.com/memprof/memprof/analysis/iterations"
)

// mark ends an iteration, on all devices.
func (a *analyzer) mark(e *trace.Event) error {
	if a.opening {
		return nil
	}
	m := a.start
	m.Number, m.EndSeq, m.End = e.IterationNumber(), e.Seq, e.Time
	a.marks.Add(m)
	a.start = iterations.Iteration{StartSeq: e.Seq + 1, Start: e.Time}
	for _, d := range a.devices {
		d.mark(m, a.start)
		d.byPhase.EndIteration(&a.attribution.Phases, d.log.Count-1, e.Time, d.T, d.C)
	}
	return nil
}

func (d *device) mark(m, next iterations.Iteration) {
	it := d.current
	it.Number, it.EndSeq, it.End = m.Number, m.EndSeq, m.End
	it.EndT, it.EndPaused = d.T, d.PausedT
	it.PeakC, it.EndC = d.sums.Mark(it.PeakT, it.PeakC, d.C)
	d.log.Add(it)
	d.Iteration = d.log.Count
	d.current = next
	// What is live when an iteration begins is live in it.
	d.current.PeakT, d.current.PeakC, d.current.PeakR = d.T, d.C, d.R
	d.trend.Mark(m.EndSeq)
	d.period = nil
	if d.keys != nil {
		d.keys.Mark(m.EndSeq, m.End)
	}
}

// detectIterations fills in the iterations of a device without marks, from the period of
// its requests, and says of everything seen in which one it was. ended says that the job came to
// its own end.
func (d *device) detectIterations(ended bool) {
	if d.period == nil {
		return
	}
	d.log, d.result.Period = d.period.Finish(d.result.Final.Seq, d.result.Final.Time, d.result.Final.T, d.result.Final.C, d.PausedT, ended)
	d.result.Iterations, d.period = d.log.List, nil
	at := d.log.IndexAt
	d.result.Peak.Iteration = at(d.Peak.Seq)
	d.result.Final.Iteration = at(d.result.Final.Seq)
	for i := range d.result.Growths {
		d.result.Growths[i].Iteration = at(d.result.Growths[i].Seq)
	}
	for i := range d.result.OOMs {
		d.result.OOMs[i].At.Iteration = at(d.result.OOMs[i].Seq)
	}
	for i := range d.series.points {
		p := &d.series.points[i]
		p.Iteration, p.At.Iteration, p.Last.Iteration = at(p.seq), at(p.At.Seq), at(p.Last.Seq)
	}
}

// phase takes a phase_begin or phase_end.
func (a *analyzer) phase(e *trace.Event) error {
	a.attribution.Phase(e)
	current := a.attribution.Phases.Current
	if a.bands != nil && !a.opening {
		a.bands.Enter(a.attribution.Phases.Name(current), e.Time)
	}
	ended := a.requests.Phase(e) && !a.opening
	for _, d := range a.devices {
		d.byPhase.Enter(current, e.Time, d.T, d.C)
		if d.pauses != nil {
			d.pauses.Phase(e.Time)
		}
		if ended {
			d.trend.RequestEnded(trace.ParseContext(e.Kind, a.opt.Text(e.Context)).Name(), e.Seq, e.Time, d.HeldBytes())
		}
	}
	return nil
}

// kvEvent takes a mark of a KV cache. The end of a sequence is that of a request.
func (a *analyzer) kvEvent(e *trace.Event) error {
	id, ended := a.kv.Event(e)
	if !ended || a.opening {
		return nil
	}
	for _, d := range a.devices {
		if d.ID == id {
			d.trend.RequestEnded(iterations.KVRequests, e.Seq, e.Time, d.HeldBytes())
		}
	}
	return nil
}
