package analysis

import (
	"cmp"
	"slices"
)

// Keyframes are instants of a device of which the whole address space is kept: what was live,
// for whom, what was pending, mapped and untouched. They are chosen in the one pass, without
// knowing what comes: the last and the first event, the peak instant, just before each growth,
// each failed request, and of each marked iteration and of each run of so many events the greatest
// and the least T. Where there are too many, two neighbouring windows become one and
// the higher peak and the lower trough of the two stay, so that no extreme of the course is lost.
//
// Nothing is kept for a keyframe by itself. A block is remembered when it goes if a keyframe lies in
// its life, and once: what lives through all of the recording costs one [Stretch].
type Keyframes struct {
	Frames    []Keyframe // ascending by Seq, no two alike
	Stretches []Stretch  // by arena, kind and address
	Holders   []KeyHolder
	Stacks    []StackFrame
	// IterationsEach and EventsEach are how many iterations, and events that changed the device, a
	// pair of peak and trough stands for: 1, or a power of two where there were too many.
	IterationsEach, EventsEach int64
	// GrowthsEach says that of every so many growths one has a keyframe.
	GrowthsEach int64
}

// Keyframe is one of [Keyframes]. At is the state after the event At.Seq.
type Keyframe struct {
	At  Instant
	Why Reason // all that apply
	// Event is that of the growth which the state is just before, or of the failed request; -1
	// for neither.
	Event int64
}

// Essential says that the keyframe is never given up for room.
func (f *Keyframe) Essential() bool { return f.Why&essential != 0 }

// Reason says what makes an instant a keyframe. Reasons are bits.
type Reason uint16

const (
	IsFirst           Reason = 1 << iota
	IsLast                   // after the last event
	IsPeak                   // the peak instant of the device
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
// no other stretch of a frame is free and was handed out before; in an arena that was only watched, it and what is
// untouched are of no known kind.
type Stretch struct {
	Arena       int32 // index into Result.Arenas
	Kind        StretchKind
	Region      bool // mapped: chunks do not reach from the stretch below into it
	From, To    int32
	Addr, Bytes int64
	Requested   int64 // live
	Holder      int32 // live: index into Holders, else -1
}

// KeyHolder is what is told of a block's requester; it stands for all blocks of which the same is told.
type KeyHolder struct {
	Owner    string // see [Attribution].Modules
	Kind     string // the owner, numbers in a module's path taken for the same
	Module   bool   // the owner is the dotted path of a module
	Category Category
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
	maxWindows     = 384 // of iterations, and of runs of events
	fewestWindows  = 100 // of both together, that are kept for want of room for stretches: 200 instants
	maxKeyGrowths  = 512
	maxKeyOOMs     = 64
	defaultHistory = 400_000 // stretches remembered at a time
)

// window is a run of iterations or events and its extremes of T, of equal ones the first.
type window struct{ peak, trough Instant }

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
func (w *windows) observe(d *device, seq, time int64) bool {
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
	if len(w.all) >= maxWindows {
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

// keyframes choose the instants of one device.
type keyframes struct {
	device     *device
	history    *history
	iterations windows
	events     windows
	marked     bool
	begun      bool
	first      Instant
	growths    []Keyframe
	seen       int64 // growths so far
	each       int64 // of so many growths one is kept
	ooms       []Keyframe
	latest     int64 // the greatest seq that was ever chosen
}

func newKeyframes(d *device, h *history) *keyframes {
	k := &keyframes{
		device: d, history: h, each: 1, latest: -1,
		iterations: windows{size: 1}, events: windows{size: 1},
	}
	h.devices = append(h.devices, k)
	return k
}

// observe takes the state after an event that changed the device; peak says that it is the
// peak instant so far.
func (k *keyframes) observe(d *device, seq, time int64, peak bool) {
	if !k.begun {
		k.begun, k.first = true, d.Instant(seq, time)
	}
	high := k.events.observe(d, seq, time)
	k.events.end()
	if k.iterations.observe(d, seq, time) || high || peak {
		k.latest = seq
	}
}

// mark ends an iteration. What it ends with the next one begins with.
func (k *keyframes) mark(d *device, seq, time int64) {
	k.marked = true
	k.iterations.end()
	if k.iterations.observe(d, seq, time) {
		k.latest = seq
	}
}

// growth takes the state before the event of a growth of an arena.
func (k *keyframes) growth(ar *arena, seq, time int64) {
	if k.seen++; k.seen%k.each != 0 {
		return
	}
	k.growths = append(k.growths, Keyframe{ar.device.InstantSeenBy(ar.Arena, seq-1, time), IsGrowth, seq})
	k.latest = max(k.latest, seq-1)
	if len(k.growths) > maxKeyGrowths {
		k.halveGrowths()
	}
}

func (k *keyframes) halveGrowths() {
	for i := 1; i < len(k.growths); i += 2 {
		k.growths[i/2] = k.growths[i]
	}
	k.growths = k.growths[:len(k.growths)/2]
	k.each *= 2
}

func (k *keyframes) oom(at Instant) {
	if len(k.ooms) < maxKeyOOMs {
		k.ooms = append(k.ooms, Keyframe{at, IsOOM, at.Seq})
		k.latest = max(k.latest, at.Seq)
	}
}

// thin gives up some keyframes, if enough are left. It says whether it did.
func (k *keyframes) thin() bool {
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
	case len(k.growths) > maxKeyGrowths/8:
		k.halveGrowths()
	default:
		return false
	}
	return true
}

// frames are those chosen so far, in order.
func (k *keyframes) frames(d *device) []Keyframe {
	var all []Keyframe
	add := func(at Instant, why Reason) { all = append(all, Keyframe{at, why, -1}) }
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
func mergeFrames(all []Keyframe) []Keyframe {
	slices.SortStableFunc(all, func(a, b Keyframe) int { return cmp.Compare(a.At.Seq, b.At.Seq) })
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
