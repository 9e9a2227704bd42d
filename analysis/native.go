package analysis

import (
	"github.com/memprof/memprof/analysis/ledger"
	"slices"

	"github.com/memprof/memprof/trace"
)

// Sampled is of a device whose tensors another allocator served, which was only watched: its
// arenas say provided=unknown. Requests and segments are told exactly, so T, R and what is
// pending (in bytes asked for) are as exact as ever. The chunks are not told. C is known where
// the allocator's own sums were read: at the peaks of T, at each segment and at marks. So
//
//   - every C of the device's results is that of a sample, -1 where there was none; greatest
//     values are the greatest of the samples;
//   - internal waste and free memory have no parts: all of both is in Instant.Unsplit. Where C is known so are their sums, by [Instant.Internal] and
//     [Instant.Free];
//   - L, and how the free memory divides for a request that did not fit, are not known, -1.
type Sampled struct {
	Allocator string // "native"
	Samples   int64  // of the allocator's sums, those that agreed
	Odd       int64  // whose R, or whose C against T, is not that of the events before
	Unjudged  int64  // growths without a verdict
}

// samples follows a watched allocator's sums through the pass.
type samples struct {
	Sampled
	changed int64 // seq of the last event that changed the device
	c       int64 // C since then, -1 when it has not been read

	peakSeq, peakC int64 // C at the peak instant of that seq
	maxC           int64
	iterationC     int64 // greatest of the iteration
}

// watched starts the samples of a device with its first watched arena.
func (ar *arena) watched() {
	if !ar.Sampled {
		return
	}
	d := ar.device
	if d.samples == nil {
		d.samples = &samples{
			Sampled: Sampled{Allocator: ar.Info.Options["allocator"]}, changed: -1, c: d.C, peakSeq: -1, peakC: -1, maxC: -1, iterationC: d.current.PeakC,
		}
		d.result.Sampled = &d.samples.Sampled
	}
}

// changedAt takes note that an event changed the device: C is not known until it is read again.
func (d *device) changedAt(seq int64) {
	if d.samples == nil {
		return
	}
	d.samples.changed, d.samples.c = seq, -1
	if d.Live == 0 {
		d.samples.c = 0
	}
}

// watchedSums are those of a device's watched arenas.
func (a *analyzer) watchedSums(d *device) ledger.Split {
	var sum ledger.Split
	for _, ar := range a.arenas {
		if ar.Sampled && ar.device == d {
			sum = sum.Plus(ar.Split)
		}
	}
	return sum
}

// statistics takes the sums of a watched allocator: C and R after the events before, and the
// greatest C it has had. They are read on the allocator's threads, so that now and then an
// event lies between; such a sample says nothing of a moment.
func (a *analyzer) statistics(e *trace.Event) {
	at := slices.IndexFunc(a.devices, func(d *device) bool { return d.ID == e.Device && d.samples != nil })
	if at < 0 || a.opening {
		return
	}
	d := a.devices[at]
	s := d.samples
	own := a.watchedSums(d)
	reserved, provided, mostProvided := e.Statistics()
	if reserved != own.R || provided < own.T || provided > own.R {
		s.Odd++
		return
	}
	s.Samples++
	s.c = provided + d.C - own.C
	s.maxC = max(s.maxC, s.c)
	// Above the greatest R it is of a time before the recording, or of one when the arenas that are
	// not watched held less than now.
	if most := mostProvided + d.C - own.C; most <= d.MaxR {
		s.maxC = max(s.maxC, most)
	}
	s.iterationC = max(s.iterationC, s.c)
	if d.Peak.Seq == s.changed {
		s.peakSeq, s.peakC = s.changed, s.c
	}
	d.series.sample(s.changed, s.c)
	a.sampleGrowth(d)
}

// sampleGrowth says what was free before the growth that ended with this sample. Its request
// has not been served yet, so C is what it was.
func (a *analyzer) sampleGrowth(d *device) {
	for _, ar := range a.arenas {
		if n := len(ar.waiting); ar.Sampled && ar.device == d && n > 0 && ar.waiting[n-1].Seq == d.samples.changed {
			w := &ar.waiting[n-1]
			w.Free = w.Reserved - w.Grown - d.samples.c - d.Pending
		}
	}
}

// judge ends a growth of a watched arena: there are no chunks to look at.
func (s *samples) judge(w *waitingGrowth, size int64) {
	w.LargestFree, w.TooSmall, w.Stranded, w.Verdict = -1, -1, -1, ""
	if w.Free < 0 {
		s.Unjudged++
		return
	}
	w.Verdict = verdict(w.Free, size)
}

// oom is a failed request of a device with watched arenas.
func (s *samples) oom(o *OOM) {
	o.At.C = s.c
	o.Free, o.LargestFree, o.TooSmall, o.Stranded, o.Verdict = -1, -1, -1, -1, ""
	if s.c >= 0 {
		o.Free = o.At.Free()
		o.Verdict = verdict(o.Free, o.Request)
	}
}

// mark ends an iteration: its greatest C, and C at its end.
func (s *samples) mark(it *Iteration) {
	it.PeakC, it.EndC = notBelow(s.iterationC, it.PeakT), s.c
	s.iterationC = s.c
}

// notBelow is a greatest C, or -1: one that is less than the greatest T has missed the peak.
func notBelow(c, t int64) int64 {
	switch {
	case t == 0:
		return max(c, 0)
	case c < t:
		return -1
	}
	return c
}

// finishSampled gives the results of a device with watched arenas the C of the samples.
func (d *device) finishSampled() {
	s := d.samples
	if s == nil {
		return
	}
	d.result.MaxC = notBelow(s.maxC, d.MaxT)
	d.result.Final.C = s.c
	switch {
	case d.Peak.T == 0:
		d.result.Peak.C = 0
	case s.peakSeq == d.Peak.Seq:
		d.result.Peak.C = s.peakC
	default:
		d.result.Peak.C = -1
	}
	d.result.Map.At, d.result.Holdings.Peak.At = unless(d.result.Map.At, d.result.Peak), unless(d.result.Holdings.Peak.At, d.result.Peak)
	d.result.Holdings.Final.At.C = d.result.Final.C
	for i := range d.result.Holdings.Moments {
		d.result.Holdings.Moments[i].At.C = -1
	}
	for i := range d.result.Map.Arenas {
		d.result.Map.Arenas[i].At.C = -1
	}
	d.result.LargestFree = -1
	if d.result.Period > 0 {
		for i := range d.result.Iterations {
			d.result.Iterations[i].PeakC, d.result.Iterations[i].EndC = -1, -1
		}
	}
	for i := range d.result.Phases {
		d.result.Phases[i].PeakC = -1
	}
	for i := range d.result.PhaseIterations {
		for k := range d.result.PhaseIterations[i].Uses {
			d.result.PhaseIterations[i].Uses[k].PeakC = -1
		}
	}
	d.result.Paper = d.log.Paper(d.MaxR)
	for i := range d.result.Iterations {
		if d.result.Iterations[i].PeakC < 0 {
			d.result.Paper.ForgetC()
		}
	}
}

// unless is an instant with the C of another one, if they are the same.
func unless(at, of Instant) Instant {
	at.C = -1
	if at.Seq == of.Seq {
		at.C = of.C
	}
	return at
}

// sample gives the last point the C after its last event.
func (s *series) sample(seq, c int64) {
	n := len(s.points)
	if n == 0 || s.points[n-1].Last.Seq != seq {
		return
	}
	p := &s.points[n-1]
	if p.C.Max < 0 {
		p.C = Range{c, c}
	}
	p.C.include(c)
	p.Last.C = c
	if p.At.Seq == seq {
		p.At.C = c
	}
}

// ofC is a metric of the greatest C, which is not told where it was not sampled.
func ofC(m Metric) Metric {
	return onlyIf(m, func(d *DeviceResult) bool { return d.MaxC >= 0 })
}

// ofChunks are metrics of what a watched allocator does not tell.
func ofChunks(metrics []Metric) []Metric {
	for i := range metrics {
		metrics[i] = onlyIf(metrics[i], func(d *DeviceResult) bool { return d.Sampled == nil })
	}
	return metrics
}

// ofGrowths is a metric of the verdicts of all growths.
func ofGrowths(m Metric) Metric {
	return onlyIf(m, func(d *DeviceResult) bool { return d.Sampled == nil || d.Sampled.Unjudged == 0 })
}

func onlyIf(m Metric, known func(*DeviceResult) bool) Metric {
	of := m.Value
	m.Value = func(d *DeviceResult) (float64, int64, bool) {
		value, seq, ok := of(d)
		return value, seq, ok && known(d)
	}
	return m
}
