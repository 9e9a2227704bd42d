package keyframes

import (
	"cmp"
	"slices"

	"github.com/memprof/memprof/analysis/ledger"
)

// Bounds of what is kept, each reached by joining neighbours.
const (
	MaxWindows = 384 // of iterations, and of runs of events
	MaxGrowths = 512
	maxOOMs    = 64
)

// window is a run of iterations or events and its extremes of T, of equal ones the first.
type window struct{ peak, trough ledger.Instant }

func (w *window) join(o *window) {
	if o.peak.T > w.peak.T {
		w.peak = o.peak
	}
	if o.trough.T < w.trough.T {
		w.trough = o.trough
	}
}

// windows are of size units each, iterations or events. The last one is open if units > 0.
type windows struct {
	all   []window
	limit int // of all
	size  int64
	units int64 // of the open window, begun ones
	open  bool  // the last window has a state
}

// observe takes a state of the unit at hand.
func (w *windows) observe(d *ledger.Device, seq, time int64) {
	if !w.open {
		i := d.Instant(seq, time)
		w.all, w.open = append(w.all, window{i, i}), true
		return
	}
	last := &w.all[len(w.all)-1]
	switch {
	case d.T > last.peak.T:
		last.peak = d.Instant(seq, time)
	case d.T < last.trough.T:
		last.trough = d.Instant(seq, time)
	}
}

// end ends a unit.
func (w *windows) end() {
	if w.units++; w.units < w.size || !w.open {
		return
	}
	w.units, w.open = 0, false
	if len(w.all) >= w.limit {
		w.halve()
	}
}

// halve joins neighbours.
func (w *windows) halve() {
	n := len(w.all)
	if n%2 == 1 && !w.open { // the last has no neighbour yet
		w.open, w.units = true, w.size
	}
	for i := range n {
		if i%2 == 1 {
			w.all[i/2].join(&w.all[i])
		} else {
			w.all[i/2] = w.all[i]
		}
	}
	w.all = w.all[:(n+1)/2]
	if w.open && n%2 == 0 {
		w.units += w.size
	}
	w.size *= 2
}

// Chooser chooses the keyframes of one device.
type Chooser struct {
	device     *ledger.Device
	iterations windows
	events     windows
	marked     bool
	begun      bool
	first      ledger.Instant
	growths    []Frame
	seen       int64 // growths so far
	each       int64 // of so many growths one is kept
	ooms       []Frame
}

// NewChooser returns a Chooser that has chosen nothing. It keeps at most limit windows, and never more than MaxWindows.
func NewChooser(d *ledger.Device, limit int) *Chooser {
	all := windows{size: 1, limit: min(limit, MaxWindows)}
	return &Chooser{device: d, each: 1, iterations: all, events: all}
}

// Observe takes the state after an event that changed the device.
func (k *Chooser) Observe(seq, time int64) {
	d := k.device
	if !k.begun {
		k.begun, k.first = true, d.Instant(seq, time)
	}
	k.events.observe(d, seq, time)
	k.events.end()
	k.iterations.observe(d, seq, time)
}

// Mark ends an iteration. What it ends with the next one begins with.
func (k *Chooser) Mark(seq, time int64) {
	k.marked = true
	k.iterations.end()
	k.iterations.observe(k.device, seq, time)
}

// Growth takes the state before the event of a growth of an arena.
func (k *Chooser) Growth(ar *ledger.Arena, seq, time int64) {
	if k.seen++; k.seen%k.each != 0 {
		return
	}
	k.growths = append(k.growths, Frame{k.device.InstantSeenBy(ar, seq-1, time), IsGrowth, seq})
	if len(k.growths) > MaxGrowths {
		k.halveGrowths()
	}
}

func (k *Chooser) halveGrowths() {
	for i := 1; i < len(k.growths); i += 2 {
		k.growths[i/2] = k.growths[i]
	}
	k.growths = k.growths[:len(k.growths)/2]
	k.each *= 2
}

// OOM takes the state after a request that failed.
func (k *Chooser) OOM(at ledger.Instant) {
	if len(k.ooms) < maxOOMs {
		k.ooms = append(k.ooms, Frame{at, IsOOM, at.Seq})
	}
}

// Finish are the keyframes. IterationAt, unless nil, gives the iteration of a seq: iterations were found at the end only.
func (k *Chooser) Finish(last ledger.Instant, iterationAt func(seq int64) int) *Result {
	out := &Result{IterationsEach: k.iterations.size, EventsEach: k.events.size, GrowthsEach: k.each, Frames: k.frames()}
	if n := len(out.Frames); n > 0 && last.Seq >= out.Frames[n-1].At.Seq {
		out.Frames = mergeFrames(append(out.Frames, Frame{last, IsLast, -1}))
	}
	for i := range out.Frames {
		f := &out.Frames[i].At
		if iterationAt != nil {
			f.Iteration = iterationAt(f.Seq)
		}
	}
	return out
}

// frames are those chosen so far, in order.
func (k *Chooser) frames() []Frame {
	d := k.device
	var all []Frame
	add := func(at ledger.Instant, why Reason) { all = append(all, Frame{at, why, -1}) }
	if k.begun {
		add(k.first, IsFirst)
	}
	if d.Peak.R > 0 {
		add(d.Peak, IsPeak)
	}
	for i := range k.events.all {
		add(k.events.all[i].peak, IsHigh)
		add(k.events.all[i].trough, IsLow)
	}
	if k.marked {
		for i := range k.iterations.all {
			add(k.iterations.all[i].peak, IsIterationPeak)
			add(k.iterations.all[i].trough, IsIterationTrough)
		}
	}
	return mergeFrames(slices.Concat(all, k.growths, k.ooms))
}

// mergeFrames orders keyframes and makes those of one seq one. Where one of them is of a request,
// the free memory is as that request sees it.
func mergeFrames(all []Frame) []Frame {
	slices.SortStableFunc(all, func(a, b Frame) int { return cmp.Compare(a.At.Seq, b.At.Seq) })
	out := all[:0]
	for _, f := range all {
		n := len(out)
		if n == 0 || out[n-1].At.Seq != f.At.Seq {
			out = append(out, f)
			continue
		}
		if f.Event > out[n-1].Event {
			out[n-1].At = f.At
		}
		out[n-1].Why |= f.Why
		out[n-1].Event = max(out[n-1].Event, f.Event)
	}
	return out
}
