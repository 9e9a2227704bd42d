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

// Sums follows C of one device: the ledger's where chunks are known, else what the allocator's own sums say.
type Sums struct {
	Observed
	C       int64 // now; -1 when it has not been read since the last change
	Changed int64 // seq of the last event that changed the device

	peakSeq, peakC int64 // C read at the peak of that seq
	maxC           int64
	iterationC     int64 // greatest of the iteration
}

// NewSums is of a device where nothing happened.
func NewSums() Sums { return Sums{Changed: -1, peakSeq: -1, peakC: -1, maxC: -1} }

// Change notes that the event seq changed the device.
func (t *Sums) Change(d *ledger.Device, seq int64) {
	t.Changed, t.C = seq, d.Known(d.C)
	if d.Live == 0 {
		t.C = 0
	}
}

// Observe counts the state after the last change among the greatest.
func (t *Sums) Observe() {
	t.maxC, t.iterationC = max(t.maxC, t.C), max(t.iterationC, t.C)
}

// Begin starts the trace after its opening rows.
func (t *Sums) Begin() { t.iterationC = t.C }

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

// Mark ends an iteration with a greatest T. It returns the greatest C and the one at its end, -1 where they are not known.
func (t *Sums) Mark(peakT int64) (peakC, endC int64) {
	peakC, endC = ledger.KnownC(t.iterationC, peakT), t.C
	t.iterationC = t.C
	return peakC, endC
}

// MaxC is the greatest C, where the greatest T is maxT; -1 if it is not known.
func (t *Sums) MaxC(maxT int64) int64 { return ledger.KnownC(t.maxC, maxT) }

// Fill gives the instant after the last change the C that was read, if it has none.
func (t *Sums) Fill(now *ledger.Instant) {
	if now.C < 0 {
		now.C = t.C
	}
}

// FillPeak does so with the peak.
func (t *Sums) FillPeak(peak *ledger.Instant) {
	switch {
	case peak.C >= 0:
	case peak.T == 0:
		peak.C = 0
	case peak.Seq == t.peakSeq:
		peak.C = t.peakC
	}
}
