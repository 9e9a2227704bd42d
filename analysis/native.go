package analysis

import (
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
	if ar.info.Options["provided"] != "unknown" {
		return
	}
	ar.sampled = true
	d := ar.device
	if d.samples == nil {
		d.samples = &samples{
			Sampled: Sampled{Allocator: ar.info.Options["allocator"]}, changed: -1, c: d.c, peakSeq: -1, peakC: -1, maxC: -1, iterationC: d.current.PeakC,
		}
		d.Sampled = &d.samples.Sampled
	}
}

// changed is told of an event of an arena, before its state is checked. What is free in a
// watched arena is not told apart from what its chunks have beyond requests.
func (ar *arena) changed(e *trace.Event) {
	d := ar.device
	if d.samples == nil {
		return
	}
	if ar.sampled {
		joined := ar.split.free()
		ar.total.untouched -= ar.split.untouched
		ar.total.touched -= ar.split.touched
		ar.total.unsplit += joined
		ar.split.unsplit += joined
		ar.split.untouched, ar.split.touched = 0, 0
	}
	d.samples.changed, d.samples.c = e.Seq, -1
	if d.live == 0 {
		d.samples.c = 0
	}
}

// watchedSums are those of a device's watched arenas.
func (a *analyzer) watchedSums(d *device) split {
	var sum split
	for _, ar := range a.arenas {
		if ar.sampled && ar.device == d {
			sum = sum.plus(ar.split)
		}
	}
	return sum
}

// statistics takes the sums of a watched allocator: C and R after the events before, and the
// greatest C it has had. They are read on the allocator's threads, so that now and then an
// event lies between; such a sample says nothing of a moment.
func (a *analyzer) statistics(e *trace.Event) {
	at := slices.IndexFunc(a.devices, func(d *device) bool { return d.Device == e.Device && d.samples != nil })
	if at < 0 || a.opening {
		return
	}
	d := a.devices[at]
	s := d.samples
	own := a.watchedSums(d)
	reserved, provided, mostProvided := e.Statistics()
	if reserved != own.r || provided < own.t || provided > own.r {
		s.Odd++
		return
	}
	s.Samples++
	s.c = provided + d.c - own.c
	s.maxC = max(s.maxC, s.c)
	// Above the greatest R it is of a time before the recording, or of one when the arenas that are
	// not watched held less than now.
	if most := mostProvided + d.c - own.c; most <= d.MaxR {
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
		if n := len(ar.waiting); ar.sampled && ar.device == d && n > 0 && ar.waiting[n-1].Seq == d.samples.changed {
			w := &ar.waiting[n-1]
			w.Free = w.Reserved - w.Grown - d.samples.c - d.pending
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
	d.MaxC = notBelow(s.maxC, d.MaxT)
	d.Final.C = s.c
	switch {
	case d.Peak.T == 0:
		d.Peak.C = 0
	case s.peakSeq == d.Peak.Seq:
		d.Peak.C = s.peakC
	default:
		d.Peak.C = -1
	}
	d.Map.At, d.Holdings.Peak.At = unless(d.Map.At, d.Peak), unless(d.Holdings.Peak.At, d.Peak)
	d.Holdings.Final.At.C = d.Final.C
	for i := range d.Holdings.Moments {
		d.Holdings.Moments[i].At.C = -1
	}
	for i := range d.Map.Arenas {
		d.Map.Arenas[i].At.C = -1
	}
	d.LargestFree = -1
	if d.Period > 0 {
		for i := range d.Iterations {
			d.Iterations[i].PeakC, d.Iterations[i].EndC = -1, -1
		}
	}
	for i := range d.Phases {
		d.Phases[i].PeakC = -1
	}
	for i := range d.PhaseIterations {
		for k := range d.PhaseIterations[i].Uses {
			d.PhaseIterations[i].Uses[k].PeakC = -1
		}
	}
	d.Paper = d.log.Paper(d.MaxR)
	for i := range d.Iterations {
		if d.Iterations[i].PeakC < 0 {
			d.Paper.ForgetC()
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

// unsplit draws what is free in a watched arena as what it is known to be: not requested. s
// is what was drawn.
func (m *ArenaMap) unsplit(s split) split {
	spans := m.Spans[:0]
	for _, span := range m.Spans {
		if span.Kind.Free() {
			span.Kind = SpanUnsplit
		}
		if n := len(spans); n > 0 && span.Kind == SpanUnsplit && spans[n-1].Kind == SpanUnsplit {
			spans[n-1].Bytes += span.Bytes
			continue
		}
		spans = append(spans, span)
	}
	m.Spans = spans
	s.unsplit += s.free()
	s.untouched, s.touched = 0, 0
	return s
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
