package analysis

import (
	"math"

	"github.com/memprof/memprof/trace"
)

// mark ends an iteration, on all devices.
func (a *analyzer) mark(e *trace.Event) {
	if a.opening {
		return
	}
	m := a.start
	m.Number, m.EndSeq, m.End = e.IterationNumber(), e.Seq, e.Time
	a.marks.add(m)
	a.start = Iteration{StartSeq: e.Seq + 1, Start: e.Time}
	for _, d := range a.devices {
		d.mark(m, a.start)
		d.byPhase.EndIteration(&a.attribution.Phases, d.log.count-1, e.Time, d.t, d.c)
	}
}

func (d *device) mark(m, next Iteration) {
	it := d.current
	it.Number, it.EndSeq, it.End = m.Number, m.EndSeq, m.End
	it.EndT, it.EndC, it.EndPaused = d.t, d.c, d.pausedT
	if d.samples != nil {
		d.samples.mark(&it)
	}
	d.log.add(it)
	d.iteration = d.log.count
	d.current = next
	// What is live when an iteration begins is live in it.
	d.current.PeakT, d.current.PeakC, d.current.PeakR = d.t, d.c, d.r
	d.bounded(boundMark, m.EndSeq)
	d.period = nil
	if d.keys != nil {
		d.keys.mark(d, m.EndSeq, m.End)
	}
}

// paper is the BFC paper's table. Its shares are of the greatest R, which is the final R unless R
// shrank: T <= C <= R after every event, so that every share is from 0 to 1.
func (l *iterationLog) paper(greatest int64) Paper {
	if l.count < 2 || greatest <= 0 {
		return Paper{}
	}
	first := &l.list[0]
	p := Paper{Valid: true, Of: greatest, T1: share(first.PeakT, greatest), C1: share(first.PeakC, greatest)}
	p.T2, p.C2 = l.later.meanShares(greatest)
	p.FirstExcess, p.SteadyIdle = math.NaN(), 1-p.C2
	if p.C2 > 0 {
		p.FirstExcess = p.C1/p.C2 - 1
	}
	p.OwnT1, p.OwnC1 = ownShares(first)
	p.OwnT2, p.OwnC2 = l.later.meanOwn()
	return p
}

// ownShares are T and C as shares of the iteration's own peak R, NaN where nothing was reserved.
func ownShares(it *Iteration) (t, c float64) {
	if it.PeakR <= 0 {
		return math.NaN(), math.NaN()
	}
	return share(it.PeakT, it.PeakR), share(it.PeakC, it.PeakR)
}

// share is part/whole, 0 where there is no whole.
func share(part, whole int64) float64 {
	if whole == 0 {
		return 0
	}
	return float64(part) / float64(whole)
}

// detectIterations fills in the iterations of a device without marks, from the period of
// its requests, and says of everything seen in which one it was. ended says that the job came to
// its own end.
func (d *device) detectIterations(ended bool) {
	if d.period == nil {
		return
	}
	d.log, d.Period = d.period.finish(d.Final, d.pausedT, ended)
	d.Iterations, d.period = d.log.list, nil
	at := d.log.indexAt
	d.Peak.Iteration = at(d.Peak.Seq)
	d.Final.Iteration = at(d.Final.Seq)
	for i := range d.Growths {
		d.Growths[i].Iteration = at(d.Growths[i].Seq)
	}
	for i := range d.OOMs {
		d.OOMs[i].At.Iteration = at(d.OOMs[i].Seq)
	}
	for i := range d.series.points {
		p := &d.series.points[i]
		p.Iteration, p.At.Iteration, p.Last.Iteration = at(p.seq), at(p.At.Seq), at(p.Last.Seq)
	}
}
