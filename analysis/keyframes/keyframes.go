// Package keyframes knows devices at single events.
//
// In a first pass over a process a [Chooser] notes which events a page shows: its keyframes. A [Recorder] remembers what
// a device was like after events that are known: in the first pass after the peak so far, in a second pass after all
// that were chosen. It knows the ledger, which passes on what is freed ([ledger.Keeper]), and the origins of blocks, from
// package attribution. Bands has the phases of a process over time.
package keyframes

import (
	"github.com/memprof/memprof/analysis/attribution"
	"github.com/memprof/memprof/analysis/ledger"
)

// Result is the keyframes of a device: instants of which the whole address space is kept: what was live, for whom, what
// was pending, mapped and untouched. The first pass chooses them without knowing what comes: the last and the first
// event, the peak, just before each growth, each failed request, and of each marked iteration and of each run of so many
// events the greatest and the least T. Where there are too many, two neighbouring windows become one and the higher peak
// and the lower trough of the two stay, so that no extreme of the course is lost. A second pass adds all but Frames.
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
