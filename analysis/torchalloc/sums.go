package torchalloc

import (
	"github.com/memprof/memprof/analysis/ledger"
	"github.com/memprof/memprof/trace"
)

// Observed is of a device whose tensors an allocator serves that was only observed. The trace has its
// requests and segments exactly, so T, R and pending bytes (as requested) are as exact as ever. C is
// known where the allocator's own sums were read: at the peaks of T, at each segment and at marks. So
//
//   - every C of the device's results is that of a sample, -1 where there was none; greatest
//     values are the greatest of the samples;
//   - internal waste and free memory have no parts: all of both is in Instant.NotRequested. Where C is
//     known so are their sums, by [ledger.Instant.Internal] and [ledger.Instant.Free];
//   - L, and how the free memory divides for a request that did not fit, are not known, -1.
type Observed struct {
	Allocator   string    // "native"
	Samples     int64     // of the allocator's sums, those that agreed with the events
	Odd         int64     // samples that contradict the events before: R differs, or C is not from T to R
	Followed    *Followed // what the model followed, which gave blocks their sizes: then nothing here is unknown; else nil
	NotFollowed string    // why the model did not follow; "" if nothing tried
}

// Sums follows the sums of one device. Of a device whose chunks are known they are nil: then C is what it is.
type Sums struct {
	Observed
	C       int64 // now; -1 when it has not been read since the last change
	Changed int64 // seq of the last event that changed the device

	peakSeq, peakC int64 // C at the peak of that seq
	maxC           int64
	iterationC     int64 // greatest of the iteration
}

// NewSums is of a device where C is c so far, and was at most iterationC in this iteration.
func NewSums(allocator string, c, iterationC int64) *Sums {
	return &Sums{Observed: Observed{Allocator: allocator}, Changed: -1, C: c, peakSeq: -1, peakC: -1, maxC: -1, iterationC: iterationC}
}

// Now is C after the event at hand, where the ledger has c; -1 if it was not read.
func (t *Sums) Now(c int64) int64 {
	if t == nil {
		return c
	}
	return t.C
}

// Change notes that the event seq changed the device: C is not known until it is read again.
func (t *Sums) Change(d *ledger.Device, seq int64) {
	if t == nil {
		return
	}
	t.Changed, t.C = seq, -1
	if d.Live == 0 {
		t.C = 0
	}
}

// Begin starts the trace after its opening rows.
func (t *Sums) Begin() {
	if t != nil {
		t.iterationC = t.C
	}
}

// Statistics takes the sums of the allocator: C and R after the events before, and the greatest C it
// has had. own are the terms of its arenas. The sums are read on the allocator's threads, so an event
// may lie between; such a sample is odd and says nothing of a moment.
func (t *Sums) Statistics(e *trace.Event, d *ledger.Device, own ledger.Split) (agrees bool) {
	reserved, provided, mostProvided := e.Statistics()
	if reserved != own.R || provided < own.T || provided > own.R {
		t.Odd++
		return false
	}
	t.Samples++
	t.C = provided + d.C - own.C
	t.maxC = max(t.maxC, t.C)
	// A C above the greatest R is of a time before the recording, or of one when the other arenas held
	// less than now.
	if most := mostProvided + d.C - own.C; most <= d.MaxR {
		t.maxC = max(t.maxC, most)
	}
	t.iterationC = max(t.iterationC, t.C)
	if d.Peak.Seq == t.Changed {
		t.peakSeq, t.peakC = t.Changed, t.C
	}
	return true
}

// Mark ends an iteration with a greatest T, where the ledger has a greatest C and one at its end: it returns both as known.
func (t *Sums) Mark(peakT, peakC, endC int64) (int64, int64) {
	if t == nil {
		return peakC, endC
	}
	peakC, endC = notBelow(t.iterationC, peakT), t.C
	t.iterationC = t.C
	return peakC, endC
}

// MaxC is the greatest C, where the greatest T is maxT and the ledger has maxC; -1 if it is not known.
func (t *Sums) MaxC(maxT, maxC int64) int64 {
	if t == nil {
		return maxC
	}
	return notBelow(t.maxC, maxT)
}

// PeakC is C at the peak; -1 if it is not known.
func (t *Sums) PeakC(peak *ledger.Instant) int64 {
	switch {
	case t == nil:
		return peak.C
	case peak.T == 0:
		return 0
	case t.peakSeq == peak.Seq:
		return t.peakC
	}
	return -1
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
