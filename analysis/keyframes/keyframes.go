// Package keyframes keeps the whole address space of a device at chosen instants, for a page that shows
// any of them, and the phases of the process over time.
//
// It knows the ledger, which passes on what is freed ([ledger.Keeper]), and the origins of blocks, from package
// attribution.
package keyframes

import (
	"cmp"
	"slices"

	"github.com/tidwall/btree"

	"github.com/memprof/memprof/analysis/attribution"
	"github.com/memprof/memprof/analysis/ledger"
)

// Result is the keyframes of a device: instants of a device of which the whole address space is kept: what was live,
// for whom, what was pending, mapped and untouched. They are chosen in the one pass, without
// knowing what comes: the last and the first event, the peak, just before each growth,
// each failed request, and of each marked iteration and of each run of so many events the greatest
// and the least T. Where there are too many, two neighbouring windows become one and
// the higher peak and the lower trough of the two stay, so that no extreme of the course is lost.
//
// Nothing is kept for a keyframe by itself. A block is remembered when it goes if a keyframe lies in
// its life, and once: what lives through all of the recording costs one [Stretch].
type Result struct {
	Frames    []Frame   // ascending by Seq, no two alike
	Stretches []Stretch // by arena, kind and address
	Origins   []Origin
	Stacks    []StackFrame
	// IterationsEach and EventsEach are how many iterations, and events that changed the device, a
	// pair of peak and trough stands for: 1, or a power of two where there were too many.
	IterationsEach, EventsEach int64
	// GrowthsEach says that of every so many growths one has a keyframe.
	GrowthsEach int64
	// Exact has every event of some spans; nil unless they were asked for.
	Exact *Exact
	// Largest are the allocations with most bytes times time, at most MaxStripes, in order of birth.
	Largest []Stripe
}

// Frame is one of [Result]. At is the state after the event At.Seq.
type Frame struct {
	At  ledger.Instant
	Why Reason // all that apply
	// Event is that of the growth which the state is just before, or of the failed request; -1
	// for neither.
	Event int64
}

// Essential says that the keyframe is never given up for room.
func (f *Frame) Essential() bool { return f.Why&essential != 0 }

// Reason says what makes an instant a keyframe. Reasons are bits.
type Reason uint16

const (
	IsFirst           Reason = 1 << iota
	IsLast                   // after the last event
	IsPeak                   // the peak of the device
	IsIterationPeak          // greatest T of an iteration
	IsIterationTrough        // least T of an iteration
	IsGrowth                 // just before a growth: what its request found
	IsOOM                    // a request that failed
	IsHigh                   // greatest T of a run of events
	IsLow                    // least T of a run of events
)

// essential are the reasons for which a keyframe is never given up.
const essential = IsFirst | IsLast | IsPeak | IsOOM

// StretchKind says what a [Stretch] is.
type StretchKind uint8

const (
	StretchMapped    StretchKind = iota // physical memory; all others lie within
	StretchUntouched                    // never handed out since it was mapped
	StretchPending
	StretchLive
)

// Stretch is a range of addresses that was the same at Frames[From:To]. What is mapped and in
// no other stretch of a frame is free and was handed out before; in an arena of a native allocator, it and what is
// untouched are of no known kind.
type Stretch struct {
	Arena       int32 // index into Result.Arenas
	Kind        StretchKind
	Region      bool // mapped: chunks do not reach from the stretch below into it
	From, To    int32
	Addr, Bytes int64
	Requested   int64 // live
	Origin      int32 // live: index into Origins, else -1
}

// Origin is the recorded origin of a block; blocks with equal origins share one.
type Origin struct {
	Name     string // see [Attribution].Modules
	Kind     string // the name, with numbers in a module path replaced: repeated layers share it
	Module   bool   // the name is the dotted path of a module
	Category attribution.Category
	Phase    string
	Stack    int32 // index into Stacks of the innermost frame; -1 for none
}

// StackFrame is a node of the tree of call stacks.
type StackFrame struct {
	Frame  string
	Parent int32 // the caller, a smaller index; -1 for the outermost
}

// Bounds of what is kept, each reached by joining neighbours.
const (
	MaxWindows     = 384 // of iterations, and of runs of events
	fewestWindows  = 100 // of both together, that are kept for want of room for stretches: 200 instants
	MaxGrowths     = 512
	maxOOMs        = 64
	DefaultHistory = 400_000 // stretches remembered at a time
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
	size  int64
	units int64 // of the open window, begun ones
	open  bool  // the last window has a state
}

// observe takes a state of the unit at hand. It says whether the state is an extreme.
func (w *windows) observe(d *ledger.Device, seq, time int64) bool {
	if !w.open {
		i := d.Instant(seq, time)
		w.all, w.open = append(w.all, window{i, i}), true
		return true
	}
	last := &w.all[len(w.all)-1]
	switch {
	case d.T > last.peak.T:
		last.peak = d.Instant(seq, time)
	case d.T < last.trough.T:
		last.trough = d.Instant(seq, time)
	default:
		return false
	}
	return true
}

// end ends a unit.
func (w *windows) end() {
	if w.units++; w.units < w.size || !w.open {
		return
	}
	w.units, w.open = 0, false
	if len(w.all) >= MaxWindows {
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

// Tracker chooses the instants of one device.
type Tracker struct {
	device     *ledger.Device
	history    *History
	iterations windows
	events     windows
	marked     bool
	begun      bool
	first      ledger.Instant
	growths    []Frame
	seen       int64 // growths so far
	each       int64 // of so many growths one is kept
	ooms       []Frame
	latest     int64                                // the greatest seq that was ever chosen
	mappings   map[int32]*btree.Map[int64, mapping] // by arena and address, each as it was mapped
	largest    stripes
	paused     []pausedSince
	pausedNow  int64
}

// New is a Tracker of a device, whose Keeper it becomes.
func New(d *ledger.Device, h *History) *Tracker {
	k := &Tracker{
		device: d, history: h, each: 1, latest: -1, mappings: map[int32]*btree.Map[int64, mapping]{},
		iterations: windows{size: 1}, events: windows{size: 1},
	}
	h.devices = append(h.devices, k)
	d.Keeper = k
	return k
}

// Observe takes the state after an event that changed the device; peak says that it is the
// peak so far.
func (k *Tracker) Observe(seq, time int64, peak bool) {
	d := k.device
	if !k.begun {
		k.begun, k.first = true, d.Instant(seq, time)
	}
	high := k.events.observe(d, seq, time)
	k.events.end()
	if k.iterations.observe(d, seq, time) || high || peak {
		k.latest = seq
	}
}

// Mark ends an iteration. What it ends with the next one begins with.
func (k *Tracker) Mark(seq, time int64) {
	d := k.device
	k.marked = true
	k.iterations.end()
	if k.iterations.observe(d, seq, time) {
		k.latest = seq
	}
}

// Growth takes the state before the event of a growth of an arena.
func (k *Tracker) Growth(ar *ledger.Arena, seq, time int64) {
	if k.seen++; k.seen%k.each != 0 {
		return
	}
	k.growths = append(k.growths, Frame{k.device.InstantSeenBy(ar, seq-1, time), IsGrowth, seq})
	k.latest = max(k.latest, seq-1)
	if len(k.growths) > MaxGrowths {
		k.halveGrowths()
	}
}

func (k *Tracker) halveGrowths() {
	for i := 1; i < len(k.growths); i += 2 {
		k.growths[i/2] = k.growths[i]
	}
	k.growths = k.growths[:len(k.growths)/2]
	k.each *= 2
}

// OOM takes the state after a request that failed.
func (k *Tracker) OOM(at ledger.Instant) {
	if len(k.ooms) < maxOOMs {
		k.ooms = append(k.ooms, Frame{at, IsOOM, at.Seq})
		k.latest = max(k.latest, at.Seq)
	}
}

// thin gives up some keyframes, if enough are left. It says whether it did.
func (k *Tracker) thin() bool {
	most, other := &k.events, &k.iterations
	if k.marked && len(other.all) > len(most.all) {
		most, other = other, most
	}
	windows := len(most.all) / 2
	if k.marked {
		windows += len(other.all)
	}
	switch {
	case windows >= fewestWindows:
		most.halve()
	case len(k.growths) > MaxGrowths/8:
		k.halveGrowths()
	default:
		return false
	}
	return true
}

// frames are those chosen so far, in order.
func (k *Tracker) frames() []Frame {
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
