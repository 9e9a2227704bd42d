package analysis

import "github.com/memprof/memprof/trace"

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
	it.EndT, it.EndC = d.t, d.c
	if d.samples != nil {
		d.samples.mark(&it)
	}
	d.Iterations = append(d.Iterations, it)
	d.iteration = len(d.Iterations)
	d.current = next
	// What is live when an iteration begins is live in it.
	d.current.PeakT, d.current.PeakC, d.current.PeakR = d.t, d.c, d.r
	d.markSeq, d.markDied = m.EndSeq, d.markDied[:0]
	d.period = nil
	if d.keys != nil {
		d.keys.mark(d, m.EndSeq, m.End)
	}
}

// paper is the BFC paper's table for a final R.
func paper(iterations []Iteration, final int64) Paper {
	if len(iterations) < 2 || final <= 0 {
		return Paper{}
	}
	first, later := iterations[0], iterations[1:]
	p := Paper{Valid: true, OwnT1: share(first.PeakT, first.PeakR), OwnC1: share(first.PeakC, first.PeakR)}
	var t2, c2 float64
	for _, it := range later {
		t2 += float64(it.PeakT)
		c2 += float64(it.PeakC)
		p.OwnT2 += share(it.PeakT, it.PeakR)
		p.OwnC2 += share(it.PeakC, it.PeakR)
	}
	n := float64(len(later))
	p.OwnT2 /= n
	p.OwnC2 /= n
	p.T1, p.C1 = share(first.PeakT, final), share(first.PeakC, final)
	p.T2, p.C2 = t2/n/float64(final), c2/n/float64(final)
	if p.C2 > 0 {
		p.FirstExcess = p.C1/p.C2 - 1
	}
	p.SteadyIdle = 1 - p.C2
	return p
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
	d.Iterations, d.Period = d.period.finish(d.Final, ended)
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
