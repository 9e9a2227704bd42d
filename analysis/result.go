package analysis

import (
	"time"

	"github.com/memprof/memprof/analysis/accounting"
	"github.com/memprof/memprof/analysis/attribution"
	"github.com/memprof/memprof/analysis/graphs"
	"github.com/memprof/memprof/analysis/iterations"
	"github.com/memprof/memprof/analysis/keyframes"
	"github.com/memprof/memprof/analysis/kv"
	"github.com/memprof/memprof/analysis/ledger"
	"github.com/memprof/memprof/analysis/pause"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/analysis/torchalloc"
	"github.com/memprof/memprof/trace/dataset"
)

// Result is everything one pass over one process's events found out. Sizes are bytes,
// times nanoseconds since the run's clock base; -1 stands for "never happened".
type Result struct {
	Process   string // "rank0", "pid4711"
	Events    int64
	Duration  int64 // time of the last event
	LastSeq   int64 // of the last event
	Recovered bool  // the trace has a lost event, or ends before the process did
	Live      bool  // the process is still recorded: there will be more events
	Devices   []DeviceResult
	Arenas    []ledger.Info      // in order of creation
	Bands     []keyframes.Band   // the phases over time; nil unless Options.Explore
	Calls     iterations.CallLog // of the driver, by memprof's allocator
	Job       *Job               // nil unless package recording analyzed the process
}

// Job is what the description of a recording says of the job.
type Job struct {
	Path       string // of the recording, as the user named it
	Command    []string
	Host       string
	Start      time.Time // zero where it is not known
	Exit       *int      // status of the command, 128+n for signal n; nil while it runs, or where it is not known
	Running    bool      // it was running when the recording was read or, for a snapshot, written
	Frameworks []string  // "torch 2.11.0+cu130"
	Version    string    // of the memprof that recorded

	DryRun      bool     // it ran without a GPU
	Assumptions []string // of a dry run, one line each

	Imported *dataset.Imported // how the process was imported; nil if it was recorded
	Snapshot *dataset.Snapshot // when and why the recording was written while its job ran; nil if it ran to its end
	Dropped  int64             // events before the first, which a ring dropped
}

// DeviceResult has what each subject found out about one GPU, all its arenas summed. A subject that is a pointer or a list is
// nil where the device has nothing of it. Metrics ask the subjects: see [Subjects].
type DeviceResult struct {
	Device        int32
	Allocs, Frees int64 // events
	*Memory
	*Failures
	*Growing
	Iterations []iterations.Iteration // see [DeviceResult.IterationCount]
	// Period is 0 if iterations come from marks. Otherwise there were none, and it is
	// the number of allocations after which the sequence of requests repeats.
	Period         int64
	Paper          *iterations.Paper
	Leak           *iterations.Leak
	Series         Series
	Map            ledger.AddressMap             // at the peak
	TopContexts    []attribution.AllocationGroup // live at the peak, by bytes, greatest first
	TopSizes       []attribution.AllocationGroup
	Transitions    []pause.Transition // pauses and resumes in order; at most MaxGrowths are kept
	Pauses         *pause.Result      // what tags did; nil where no memory has one
	OtherLibraries *accounting.OtherLibraries
	Holdings       accounting.Holdings // the process's memory on the device, in arenas and outside of them
	Account        *accounting.Account // Holdings compared with the device's used memory; nil before [Reconcile]
	Held           *attribution.Result // the live allocations at the peak, by category, phase, origin and stack
	// PeakLive and FinalLive are the groups of all blocks that are live at the peak and after the last event, by
	// requested bytes, greatest first; nil unless [Options.LiveGroups].
	PeakLive, FinalLive []attribution.LiveGroup
	// OOMLive are the same at the first request that failed, by the labels and phases up to then; nil if none failed.
	OOMLive []attribution.LiveGroup
	Phases  []attribution.PhaseUse // of the whole trace; nil where it has none

	// Card tells the GPU from every other one of all runs, GPU and Driver name its model and driver, and
	// Total is its memory in bytes; "" and 0 where the recording does not say. Package recording fills them in.
	Card, GPU, Driver string
	Total             int64
	// Remedy is what would have served the requests that failed, by replays; nil where that was not tried.
	Remedy *Remedy
	// Replays are the allocators that a user can choose, by replays; nil before [recording.Recording.Replay].
	Replays []Replay
	// Requested is what the greatest sum of requested bytes may be where a dry run does not know all sizes; empty before that.
	Requested plain.Band

	// Savings are changes that need less memory, by replays, the greatest first.
	Savings []Saving

	// Graphs is nil unless something was captured, or there was a graph memory.
	Graphs *graphs.Result
	// KV are the KV caches that engines marked, in the order of their first event.
	KV        []*kv.Result
	Keyframes *keyframes.Result // nil unless Options.Explore
	// ByCategory is the course of requested bytes by category, ascending; nil unless Options.Explore.
	ByCategory []attribution.CategoryPoint
	Lives      *attribution.Lives // the category of each allocation; nil unless Options.Lives

	Stored *Stored // the values of metrics, if they were stored with the recording; else nil

	Tags []TagUse // in order of appearance; see [Result.OfTag]

	// Native is of PyTorch's own allocator, where that was only observed: then chunks are known only if a model
	// followed it. Nil of memprof's.
	Native *torchalloc.Observed
}

// Chunks is what is known of a device by the chunks of its allocators. Where there is none, the parts of internal waste
// and of free memory are not known, nor what single allocations were provided with.
type Chunks struct {
	LargestFree int64 // L at the peak, or at another moment: the largest free chunk, mapped bytes
}

// at is what is known at a moment, with its largest free chunk.
func (c *Chunks) at(largest int64) *Chunks {
	if c == nil {
		return nil
	}
	return &Chunks{largest}
}

// Largest is LargestFree; -1 where chunks are not known.
func (c *Chunks) Largest() int64 {
	if c == nil {
		return -1
	}
	return c.LargestFree
}

// Known is a number that only chunks tell; -1 where they are not known.
func (c *Chunks) Known(n int64) int64 {
	if c == nil {
		return -1
	}
	return n
}

// Replay is what it takes to hold a device's memory under one allocator, by replays of the recording.
type Replay struct {
	Allocator string // "memprof" or "torch"
	// Setting is the flags of `memprof record` for memprof's, "--preset compact"; for torch's "native", or
	// the text of PYTORCH_ALLOC_CONF.
	Setting   string
	Reserved  int64   // the greatest, in bytes
	LeastCard int64   // bytes that a card must have free before the job begins
	Step      float64 // predicted time of an iteration divided by the recorded one; 0: not known
	Simulated bool    // Step is not known, since the device was simulated
	Refused   int64   // requests
	Recorded  bool    // the job ran under it
	// ReservedBand and CardBand are what Reserved and LeastCard may be where a dry run does not know all sizes.
	ReservedBand, CardBand plain.Band
	// LeftOut is why it was not replayed; then the numbers are 0.
	LeftOut string
}

// Saving is a change of the job or of its allocator, and what a replay of the recording with it needs less. Sizes are bytes.
type Saving struct {
	ID        string // "checkpoint"
	Text      string // what to do, and where
	Variable  string // of the environment, with its value, that makes the change; "" if no variable does
	Bytes     int64  // requested at the peak, that the change is about
	Reserved  int64  // less
	LeastCard int64  // less
	// Allocator and Setting are those of a [Replay] that the change is; "" of a change of the job's code.
	Allocator, Setting string
}

// Name names the allocator in a sentence.
func (r *Replay) Name() string {
	switch {
	case r.Allocator == "memprof":
		return "memprof's allocator, " + r.Setting
	case r.Setting == "native":
		return "PyTorch's own allocator"
	}
	return "PyTorch's own allocator, " + r.Setting
}

// Remedy is the smallest change under which all requests of a recording are served, those too that failed.
type Remedy struct {
	Replay           // the allocator that suffices; without a Setting none that was tried does, and the memory is too small
	Missing int64    // without a Setting: bytes that the card lacks under the recorded allocator
	Tried   []string // settings that do not suffice
}

// Series is the course of a device's numbers, reduced to at most MaxPoints intervals so
// that no peak is lost: each point has the least and greatest value in its interval.
//
// Points are in order of time and do not overlap. Between them nothing happens: from the
// End of one to the Start of the next every number is what the first one's Last says.
type Series struct {
	Points []Point
}

// Point covers the events in [Start, End], the times of its first and last event. These
// are less than one width apart, the same for all points of a Series, so that a stretch of
// silence longer than that is never inside a point.
type Point struct {
	Start, End int64
	Iteration  int // of the first event
	// The least and greatest values after any of its events; T, C and R of At and Last lie
	// within them. What was before the first event is not in them.
	T, C, R Range
	At      ledger.Instant // after the event of greatest R, among those of greatest T, of them the first
	Last    ledger.Instant // after the last event
}

// Range is the least and greatest value in an interval; -1 and -1 where none is known.
type Range struct{ Min, Max int64 }

// IterationCount is how many iterations there were: more than are in Iterations where those stand
// for several.
func (d *DeviceResult) IterationCount() int64 { return iterations.Count(d.Iterations) }

// IterationNumber is the number of the iteration with an index among all, as Instants have it; not ok
// behind the last.
func (d *DeviceResult) IterationNumber(index int) (number int64, ok bool) {
	return iterations.Number(d.Iterations, index)
}
