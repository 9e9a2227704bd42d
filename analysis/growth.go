package analysis

import (
	"github.com/memprof/memprof/analysis/attribution"
	"github.com/memprof/memprof/analysis/ledger"
	"github.com/memprof/memprof/trace"
)

// Verdict says why a request needed new memory.
type Verdict string

const (
	// Fragmentation: as many bytes were free as the request needed.
	Fragmentation Verdict = "fragmentation"
	// Capacity: fewer bytes were free than the request needed.
	Capacity Verdict = "capacity"
)

// Growth is one growth of an arena, seen from the request that caused it. Sizes are bytes.
type Growth struct {
	Seq, Time   int64
	Arena       int32
	Iteration   int
	Request     int64 // requested bytes of the allocation that needed it; -1 if that failed
	Grown       int64 // bytes mapped
	Reserved    int64 // R of the device afterwards
	Free        int64 // F of the device before: what fits the request, TooSmall and Stranded
	LargestFree int64 // L of the arena before
	TooSmall    int64 // part of Free in chunks of the arena smaller than the request; -1 where it is not known
	Stranded    int64 // part of Free in other arenas
	Verdict     Verdict
}

// OOM is a request that failed for good. Sizes are bytes.
type OOM struct {
	Seq, Time, Request int64
	Arena              int32 // trace.NoArena if it has none: it is judged as one of the arena with the most reserved
	Free               int64 // F of the device, as for a Growth
	LargestFree        int64 // L of the arena
	TooSmall, Stranded int64 // as for a Growth
	// Used is what the device had in use, by all processes, and -1 if that was not read then. Of it, OtherLibraries
	// is what other libraries of the process had; what is neither this nor reserved is driver overhead and other
	// processes.
	Used, OtherLibraries int64
	Capturing            bool  // a CUDA graph was being captured: nothing could be unmapped
	Limit                int64 // most that the arena may reserve; -1 if it is not known
	Verdict              Verdict
	Context              string
	Origin               string // of Context: its module, or the text if it has no fields
	At                   ledger.Instant
	Held                 *attribution.Result // the live blocks, divided; of the first few only, else nil
}

const (
	// mostWaiting bounds the growths of an arena in a row whose request has not ended. When there are
	// more, their request counts as failed.
	mostWaiting = 10_000
	// mostSizes bounds the sizes of free chunks that are kept for these.
	mostSizes = 1 << 20
)

// lookBudget bounds the looks at all free chunks or segments of arenas, so that the pass stays linear in
// events: in all, fixedSteps and stepsAnEvent for each event so far.
type lookBudget struct {
	Events int64 // so far
	spent  int64
}

const (
	fixedSteps   = 1 << 24
	stepsAnEvent = 64
)

// Spend says whether a look of so many steps is within the budget, and counts it if so.
func (b *lookBudget) Spend(steps int) bool {
	if b.spent+int64(steps) > fixedSteps+stepsAnEvent*b.Events {
		return false
	}
	b.spent += int64(steps)
	return true
}

// growthTracker follows the growths of one device: it judges the requests that found too little free memory.
type growthTracker struct {
	Growing // so far, in the order in which their requests ended

	budget *lookBudget
	most   int
	sizes  []int64 // scratch
}

// newGrowthTracker is one that keeps at most so many growths.
func newGrowthTracker(most int, budget *lookBudget) *growthTracker {
	return &growthTracker{most: most, budget: budget}
}

// arenaGrowths are the growths of an arena whose request has not ended.
type arenaGrowths struct {
	waiting []waitingGrowth
	sizes   int // of free chunks, kept in them
}

// waitingGrowth is one before the event that ends its request.
type waitingGrowth struct {
	Growth
	asked  int64   // bytes that were requested from the memory
	own    int64   // F of the arena before
	sizes  []int64 // of the arena's free chunks before, if looked
	looked bool
}

// Waiting says whether a growth waits for the end of its request.
func (a *arenaGrowths) Waiting() bool { return len(a.waiting) > 0 }

// Grew takes the map event of a growth, before the memory is mapped.
func (t *growthTracker) Grew(a *arenaGrowths, ar *ledger.Arena, e *trace.Event) {
	if len(a.waiting) == mostWaiting {
		t.CutOff(a, ar)
	}
	n := len(a.waiting)
	if n == cap(a.waiting) {
		a.waiting = append(a.waiting, waitingGrowth{})
	} else {
		a.waiting = a.waiting[:n+1] // with the sizes slice of an earlier growth
	}
	d, w := ar.Device, &a.waiting[n]
	w.sizes = w.sizes[:0]
	if w.looked = a.sizes < mostSizes && t.budget.Spend(ar.Chunks()); w.looked {
		w.sizes = ar.ChunkSizes(w.sizes)
		a.sizes += len(w.sizes)
	}
	w.asked, w.own = e.Requested, ar.Split.Free()
	w.Growth = Growth{
		Seq: e.Seq, Time: e.Time, Arena: ar.Info.ID, Iteration: d.Iteration,
		Grown: e.Provided, Reserved: d.R + e.Provided,
		Free: d.Known(d.Split.Free()), LargestFree: d.Known(ar.LargestFree()), Stranded: d.Known(d.SeenBy(ar).Stranded),
	}
}

// Read takes C of the device, read by an allocator that was only observed after the event seq: it
// says what was free before a growth by that event. The request has not been served yet, so C is what
// it was.
func (a *arenaGrowths) Read(d *ledger.Device, seq, c int64) {
	if n := len(a.waiting); n > 0 && a.waiting[n-1].Seq == seq {
		w := &a.waiting[n-1]
		w.Free = w.Reserved - w.Grown - c - d.Pending
	}
}

// CutOff ends the growths of a request that has no end event: it counts as failed.
func (t *growthTracker) CutOff(a *arenaGrowths, ar *ledger.Arena) {
	if len(a.waiting) > 0 {
		t.Resolve(a, ar, a.waiting[0].asked, false)
	}
}

// Resolve ends the growths of a request of size bytes, which was served or failed.
func (t *growthTracker) Resolve(a *arenaGrowths, ar *ledger.Arena, size int64, served bool) {
	for i := range a.waiting {
		w := &a.waiting[i]
		w.Request = -1
		if served {
			w.Request = size
		}
		w.judge(size)
		t.GrowthCount++
		switch w.Verdict {
		case Fragmentation:
			t.FragmentationGrowths++
		case "":
			t.UnjudgedGrowths++
		}
		if len(t.Growths) < t.most {
			t.Growths = append(t.Growths, w.Growth)
		}
	}
	a.waiting, a.sizes = a.waiting[:0], 0
	if cap(a.waiting) > 64 { // a request takes one or two: what these had is not kept
		a.waiting = nil
	}
}

func (w *waitingGrowth) judge(size int64) {
	w.Verdict = verdictOf(w.Free, size)
	switch {
	case w.LargestFree < 0:
		w.TooSmall = -1
	case w.LargestFree < size:
		w.TooSmall = w.own
	case w.looked:
		w.TooSmall = ledger.TooSmall(w.sizes, size)
	default:
		w.TooSmall = -1
	}
}

// verdictOf is why a request of size bytes did not fit into free bytes; "" where these are not known.
func verdictOf(free, size int64) Verdict {
	switch {
	case free < 0:
		return ""
	case free >= size:
		return Fragmentation
	}
	return Capacity
}

// Judge fills in what was free for a request of an arena that failed, and the verdict; ar is nil where
// nothing is reserved on the device.
func (t *growthTracker) Judge(o *OOM, d *ledger.Device, ar *ledger.Arena) {
	o.Free, o.Stranded = o.At.Free(), d.Known(d.SeenBy(ar).Stranded)
	o.LargestFree = d.Known(0)
	if ar != nil {
		o.LargestFree = d.Known(ar.LargestFree())
	}
	switch {
	case o.LargestFree < 0:
		o.TooSmall = -1
	case ar == nil:
	case o.LargestFree < o.Request:
		o.TooSmall = ar.Split.Free()
	case t.budget.Spend(ar.Chunks()):
		t.sizes = ar.ChunkSizes(t.sizes[:0])
		o.TooSmall = ledger.TooSmall(t.sizes, o.Request)
	default:
		o.TooSmall = -1
	}
	o.Verdict = verdictOf(o.Free, o.Request)
}
