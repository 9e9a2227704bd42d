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
	m.Number, m.EndSeq, m.End = e.Requested, e.Seq, e.Time
	a.marks = append(a.marks, m)
	a.start = Iteration{StartSeq: e.Seq + 1, Start: e.Time}
	for _, d := range a.devices {
		d.mark(m, a.start)
		d.endPhases(&a.phases, e.Time)
	}
}

func (d *device) mark(m, next Iteration) {
	it := d.current
	it.Number, it.EndSeq, it.End = m.Number, m.EndSeq, m.End
	it.EndT, it.EndC, it.EndPaused = d.t, d.c, d.pausedT
	if d.samples != nil {
		d.samples.mark(&it)
	}
	d.Iterations = append(d.Iterations, it)
	d.iteration = len(d.Iterations)
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
func paper(iterations []Iteration, greatest int64) Paper {
	if len(iterations) < 2 || greatest <= 0 {
		return Paper{}
	}
	first, later := iterations[0], iterations[1:]
	p := Paper{Valid: true, Of: greatest, T1: share(first.PeakT, greatest), C1: share(first.PeakC, greatest)}
	p.T2 = meanShare(later, greatest, func(it *Iteration) int64 { return it.PeakT })
	p.C2 = meanShare(later, greatest, func(it *Iteration) int64 { return it.PeakC })
	p.FirstExcess, p.SteadyIdle = math.NaN(), 1-p.C2
	if p.C2 > 0 {
		p.FirstExcess = p.C1/p.C2 - 1
	}
	p.OwnT1, p.OwnC1 = meanOwn(iterations[:1])
	p.OwnT2, p.OwnC2 = meanOwn(later)
	return p
}

// meanShare is the mean of a number of the iterations, as a share of whole.
func meanShare(iterations []Iteration, whole int64, of func(*Iteration) int64) float64 {
	var sum, wholes float64
	for i := range iterations {
		sum += float64(of(&iterations[i]))
		wholes += float64(whole) // rounded as sum is, so that the quotient is at most 1
	}
	return sum / wholes
}

// meanOwn is the means of T and C as shares of each iteration's own peak R. Iterations in which
// nothing was reserved have no share; without others the means are NaN.
func meanOwn(iterations []Iteration) (t, c float64) {
	var n float64
	for _, it := range iterations {
		if it.PeakR > 0 {
			t += share(it.PeakT, it.PeakR)
			c += share(it.PeakC, it.PeakR)
			n++
		}
	}
	return t / n, c / n // 0/0 is NaN
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
	d.Iterations, d.Period = d.period.finish(d.Final, d.pausedT, ended)
	d.period = nil
	at := iterationAt(d.Iterations)
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

// iterationAt returns a function that tells the index of the iteration that has a seq;
// len(iterations) behind the last.
func iterationAt(iterations []Iteration) func(seq int64) int {
	return func(seq int64) int {
		low, high := 0, len(iterations)
		for low < high {
			if mid := (low + high) / 2; iterations[mid].EndSeq < seq {
				low = mid + 1
			} else {
				high = mid
			}
		}
		return low
	}
}
