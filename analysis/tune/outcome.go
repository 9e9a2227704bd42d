package tune

import (
	"time"

	"github.com/memprof/memprof/bfc"
)

// Outcome is what a job would have taken under a policy. Sizes are bytes.
type Outcome struct {
	Policy              bfc.Policy
	PeakR, PeakC, PeakT int64 // greatest of the whole job, each at its own moment
	// Refused are requests that found no memory. What came after them is then not the job's.
	Refused int64

	Iterations int64
	SteadyR    int64   // greatest of the steady iterations; without iterations, R at the end
	FirstIdle  float64 // 1 - C/R of the first iteration, by its own peaks
	LaterIdle  float64 // the mean of those of the others

	// Of a steady iteration, in the mean.
	Remaps      float64       // ranges mapped again while a request waited
	RemapsAhead float64       // and beside the job
	Gives       float64       // ranges given back
	Waits       float64       // requests that waited for the device
	Cost        time.Duration // driver calls that requests waited for
	Beside      time.Duration // driver calls beside the job
	Step        time.Duration // as recorded; 0 if that is not known

	TotalCost time.Duration // what requests waited for in the whole job, the first iteration too
}

// Slowdown is how much longer a steady iteration takes by the cost model, 0.01 is by a hundredth;
// 0 where no step is known.
func (o *Outcome) Slowdown() float64 {
	if o.Step <= 0 {
		return 0
	}
	return float64(o.Cost) / float64(o.Step)
}

// figures are the greatest values of an iteration, and what was asked of the driver in it.
type figures struct {
	t, c, r      uint64
	path, beside calls
}

// idle is 1 - C/R.
func (f *figures) idle() float64 {
	if f.r == 0 {
		return 0
	}
	return 1 - float64(f.c)/float64(f.r)
}

// trail sums up iterations as they end.
type trail struct {
	ended      int64
	peak       figures // of all: greatest values, sums of calls
	first      float64 // idle share
	later      float64 // sum of idle shares of all but the first
	last       figures
	lastStep   int64 // its duration, ns; -1 without a mark before it
	steady     figures
	steadyStep int64 // sum of durations
	lastMark   int64
}

// join takes greatest values, and adds calls.
func (f *figures) join(g figures) {
	f.t, f.c, f.r = max(f.t, g.t), max(f.c, g.c), max(f.r, g.r)
	f.path.add(g.path)
	f.beside.add(g.beside)
}

func (t *trail) add(f figures, now int64) {
	t.peak.join(f)
	t.last, t.lastStep = f, -1
	if t.ended == 0 {
		t.first = f.idle()
	} else {
		t.later += f.idle()
		t.lastStep = now - t.lastMark
	}
	if t.ended >= steadyFrom {
		t.steady.join(f)
		t.steadyStep += t.lastStep
	}
	t.lastMark = now
	t.ended++
}

// finish ends the replay.
func (p *replay) finish() Outcome {
	t := &p.trail
	t.peak.join(p.current)
	o := Outcome{
		Policy: p.policy, PeakR: int64(t.peak.r), PeakC: int64(t.peak.c), PeakT: int64(t.peak.t), Refused: p.refused, Iterations: t.ended,
		SteadyR: int64(p.r), FirstIdle: t.first, TotalCost: p.costs.of(t.peak.path),
	}
	if t.ended == 0 {
		return o
	}
	if t.ended > 1 {
		o.LaterIdle = t.later / float64(t.ended-1)
	}
	steady, step, n := t.steady, t.steadyStep, t.ended-steadyFrom
	if n <= 0 {
		steady, step, n = t.last, max(t.lastStep, 0), 1
	}
	mean := func(count int64) float64 { return float64(count) / float64(n) }
	o.SteadyR = int64(steady.r)
	o.Remaps, o.RemapsAhead = mean(steady.path.remaps), mean(steady.beside.remaps)
	o.Gives, o.Waits = mean(steady.path.gives+steady.beside.gives), mean(steady.path.waits)
	o.Cost, o.Beside = p.costs.of(steady.path)/time.Duration(n), p.costs.of(steady.beside)/time.Duration(n)
	o.Step = time.Duration(step / n)
	return o
}
