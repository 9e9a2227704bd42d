package analysis

import (
	"github.com/memprof/memprof/analysis/ledger"
	"github.com/memprof/memprof/trace"
)

// mostWaiting is of how many growths in a row it is not known yet what they were for. When there
// are more, their request counts as failed.
const mostWaiting = 10_000

// mostRuns is how many free chunks are kept for all of them.
const mostRuns = 1 << 20

// freeSteps and stepsAnEvent bound the looks at all segments of arenas, for growths, failed
// requests and pauses: in all, freeSteps segments and stepsAnEvent for each event so far.
const (
	freeSteps    = 1 << 24
	stepsAnEvent = 64
)

// walk says whether there is time for a look at so many segments, and counts it. What it denies
// is not known: how much was free in chunks too small for a request.
func (a *analyzer) walk(segments int) bool {
	if a.walked+int64(segments) > freeSteps+stepsAnEvent*a.events {
		a.unwalked++
		return false
	}
	a.walked += int64(segments)
	return true
}

// waitingGrowth is a growth before the alloc that says what it was for.
type waitingGrowth struct {
	Growth
	asked  int64   // what the memory was asked for
	own    int64   // F of the arena before
	runs   []int64 // sizes of the arena's free chunks before, if they were looked at
	walked bool
}

// grew remembers a growth, seen before the memory is mapped, until the end of the request
// says what it was for.
func (a *analyzer) grew(ar *arena, e *trace.Event) {
	if len(ar.waiting) == mostWaiting {
		a.resolve(ar, ar.waiting[0].asked, false)
	}
	if k := ar.device.keys; k != nil {
		k.Growth(ar.Arena, e.Seq, e.Time)
	}
	n := len(ar.waiting)
	if n == cap(ar.waiting) {
		ar.waiting = append(ar.waiting, waitingGrowth{})
	} else {
		ar.waiting = ar.waiting[:n+1] // with the runs slice of an earlier growth
	}
	w := &ar.waiting[n]
	w.runs = w.runs[:0]
	if w.walked = !ar.Sampled && ar.runs < mostRuns && a.walk(ar.Chunks()); w.walked {
		w.runs = ar.ChunkSizes(w.runs)
		ar.runs += len(w.runs)
	}
	w.asked, w.own = e.Requested, ar.Split.Free()
	w.Growth = Growth{
		Seq: e.Seq, Time: e.Time, Arena: ar.Info.ID, Iteration: ar.device.Iteration,
		Grown: e.Provided, Reserved: ar.device.R + e.Provided,
		Free: ar.device.Split.Free(), LargestFree: ar.LargestFree(), Stranded: ar.device.SeenBy(ar.Arena).Stranded,
	}
	if ar.Sampled {
		w.Free = -1
	}
}

// resolve ends the growths of a request of size bytes, which was served or failed.
func (a *analyzer) resolve(ar *arena, size int64, served bool) {
	d := ar.device
	for i := range ar.waiting {
		w := &ar.waiting[i]
		w.Request = -1
		if served {
			w.Request = size
		}
		w.Verdict = verdict(w.Free, size)
		if ar.Sampled {
			d.samples.judge(w, size)
		}
		switch {
		case ar.Sampled:
		case w.LargestFree < size:
			w.TooSmall = w.own
		case w.walked:
			w.TooSmall = ledger.TooSmall(w.runs, size)
		default:
			w.TooSmall = -1
		}
		d.result.GrowthCount++
		if w.Verdict == Fragmentation {
			d.result.FragmentationGrowths++
		}
		if len(d.result.Growths) < a.opt.MaxGrowths {
			d.result.Growths = append(d.result.Growths, w.Growth)
		}
	}
	ar.waiting, ar.runs = ar.waiting[:0], 0
	if cap(ar.waiting) > 64 { // a request takes one or two: what these had is not kept
		ar.waiting = nil
	}
}

// verdict is why a request of size bytes did not fit into free bytes.
func verdict(free, size int64) Verdict {
	if free >= size {
		return Fragmentation
	}
	return Capacity
}

// oom is a request that failed for good. One that belongs to no arena is judged as if the arena
// with the most reserved had asked.
func (a *analyzer) oom(d *device, ar *ledger.Arena, e *trace.Event) error {
	d.result.OOMCount++
	if a.opt.Owners && d.result.OOMCount == 1 {
		d.result.OOMOwners = a.attribution.Owners(a.liveNow(d))
	}
	a.attribution.Phases.Cut()
	if len(d.result.OOMs) == a.opt.MaxGrowths {
		return nil
	}
	if ar == nil {
		ar = d.View()
	}
	o := OOM{
		Seq: e.Seq, Time: e.Time, Request: e.Requested, Arena: e.Arena,
		Context: a.opt.Text(e.Context), At: d.InstantSeenBy(ar, e.Seq, e.Time),
	}
	o.Requester, _ = RequesterOf(o.Context)
	a.freeFor(&o, d, ar)
	o.Verdict = verdict(o.Free, e.Requested)
	if d.keys != nil {
		d.keys.OOM(o.At)
	}
	var err error
	if len(d.result.OOMs) < heldOOMs {
		o.Held, err = a.heldNow(d, o.At)
	}
	if d.samples != nil {
		d.samples.oom(&o)
	}
	d.result.OOMs = append(d.result.OOMs, o)
	return err
}

// freeFor says what was free for a request of an arena that failed.
func (a *analyzer) freeFor(o *OOM, d *device, ar *ledger.Arena) {
	o.Stranded = d.SeenBy(ar).Stranded
	o.Free = o.Stranded
	if ar == nil {
		return
	}
	o.Free += ar.Split.Free()
	o.LargestFree = ar.LargestFree()
	switch {
	case o.LargestFree < o.Request:
		o.TooSmall = ar.Split.Free()
	case a.walk(ar.Chunks()):
		a.runs = ar.ChunkSizes(a.runs[:0])
		o.TooSmall = ledger.TooSmall(a.runs, o.Request)
	default:
		o.TooSmall = -1
	}
}
