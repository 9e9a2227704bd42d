package tune

import (
	"time"

	"github.com/memprof/memprof/analysis/accounting"
	"github.com/memprof/memprof/bfc"
)

// Outcome is the memory and time of a job under a policy. Sizes are bytes.
type Outcome struct {
	Policy              bfc.Policy
	PeakR, PeakC, PeakT int64 // maxima of the whole job, each at its own time
	// Refused counts requests that failed. On a card it includes requests that the recorded allocator refused, too. What came after a
	// failed request is not what the job would do.
	Refused int64
	// Used is the greatest sum of R and what others use, by device; Needed the same with requested bytes, and
	// Spared without the requests that the card spares. They need a card.
	Used, Needed, Spared map[int32]int64
	First                *accounting.Refusal // of Refused; nil without a card

	Iterations int64
	SteadyR    int64 // maximum of the steady iterations; without iterations, R at the end

	// Means over the steady iterations.
	Calls    float64       // driver calls that requests waited for, one for each handle
	Cost     time.Duration // driver calls that requests waited for
	Whole    time.Duration // all driver calls of the job
	Duration time.Duration // of an iteration, as recorded; 0: not known
}

// figures are the maxima of an iteration and its driver calls: path are those that requests wait for.
type figures struct {
	t, c, r          uint64
	path, background calls
}

// trail sums figures of iterations as they end: greatest values, sums of calls.
type trail struct {
	ended         int64
	early, steady figures // of iterations that are not steady, and of those that are
	last          figures // of the last one that is not steady
	lastTime      int64   // its duration, ns; -1 without a mark before it
	steadyTime    int64   // sum of durations, ns
	lastMark      int64
}

// join takes the maxima, and adds the calls.
func (f *figures) join(g *figures) {
	f.t, f.c, f.r = max(f.t, g.t), max(f.c, g.c), max(f.r, g.r)
	f.path.add(&g.path)
	f.background.add(&g.background)
}

func (t *trail) add(f *figures, now int64) {
	took := int64(-1)
	if t.ended > 0 {
		took = now - t.lastMark
	}
	if t.ended >= steadyFrom {
		t.steady.join(f)
		t.steadyTime += took
	} else {
		t.early.join(f)
		t.last, t.lastTime = *f, took
	}
	t.lastMark = now
	t.ended++
}

// finish ends the replay.
func (p *replay) finish() Outcome {
	t := &p.trail
	peak := p.current
	peak.join(&t.early)
	peak.join(&t.steady)
	o := Outcome{
		Policy: p.policy, PeakR: int64(peak.r), PeakC: int64(peak.c), PeakT: int64(peak.t), Refused: p.refused, Iterations: t.ended,
		SteadyR: int64(p.r),
		First:   p.first,
		Whole:   timeOf(peak.path) + timeOf(peak.background),
	}
	if p.card != nil {
		o.Used, o.Needed, o.Spared = map[int32]int64{}, map[int32]int64{}, map[int32]int64{}
		for _, d := range p.devices {
			o.Used[d.number], o.Needed[d.number], o.Spared[d.number] = d.usage, d.needs, d.spared
		}
	}
	if t.ended == 0 {
		return o
	}
	steady, duration, n := t.steady, t.steadyTime, t.ended-steadyFrom
	if n <= 0 {
		steady, duration, n = t.last, max(t.lastTime, 0), 1
	}
	o.SteadyR = int64(steady.r)
	o.Calls = steady.path.each(float64(n))
	o.Cost = timeOf(steady.path) / time.Duration(n)
	o.Duration = time.Duration(duration / n)
	return o
}
