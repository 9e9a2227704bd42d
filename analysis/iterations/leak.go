package iterations

import (
	"math"

	"github.com/memprof/memprof/analysis/attribution"
	"github.com/memprof/memprof/analysis/ledger"
)

// Verdict says whether a device leaks.
type Verdict string

const (
	NoLeak   Verdict = "none"
	Leaks    Verdict = "leak"
	TooShort Verdict = "too short" // fewer than [LeastIterations], and less than [LeastTime]
)

// LeastIterations and LeastTime are what a recording must have of one of for a verdict.
const (
	LeastIterations = 8
	LeastTime       = 10e9 // ns
)

// Leak says whether held bytes keep rising: the one verdict that the report, gates and metrics have.
type Leak struct {
	Verdict Verdict
	// Per is what lies between two points: "iteration", "request" or "second"; "" if the verdict is TooShort. Request is the kind of
	// request: a phase by its name, or KVRequests.
	Per, Request string
	Points       int
	// Slope is in bytes per iteration, request or second, and PerSecond in bytes per second; 0 unless the verdict is Leaks.
	Slope, PerSecond float64
	// Module and Line are the origin with most of what leaks; "" where no origin, no stack is known.
	Module, Line string
	// The blocks that leak: allocated after the points began to count and live at the last one, in groups that rise. Their count,
	// requested and provided bytes, and the greatest groups by origin, requested size and stack. 0 and nil unless the verdict is Leaks.
	Blocks, Requested, Provided int64
	Allocations                 []attribution.AllocationGroup
	Stacks                      attribution.Breakdown
}

// bound is a kind of event at whose end the tracker remembers the live blocks: those that leak are
// live at the last bound. A device uses the best kind that its trace has, the greatest.
type bound uint8

const (
	boundWindow bound = 1 + iota
	boundRequest
	boundMark
)

// LeakTracker follows the held bytes of one device.
type LeakTracker struct {
	// Bound is the seq of the last bound, -1 before the first: Freed wants the blocks allocated up to it.
	Bound int64

	boundBy bound
	died    []ledger.Block // freed since the last bound, and live at it
	lows    lows
	held    holdings
	marks   course
	kinds   []*requestKind
}

// NewLeakTracker is one of a device without events. marked: iterations were marked before.
func NewLeakTracker(marked bool) *LeakTracker {
	t := &LeakTracker{Bound: -1, lows: lows{next: math.MinInt64}}
	if marked {
		t.boundBy = boundMark
	}
	return t
}

// Allocated takes a block that became live, by the context of its alloc event.
func (t *LeakTracker) Allocated(context int32, requested int64) {
	t.held.add(context, 1, requested)
	t.held.work += requested
}

// Freed takes a block that is freed.
func (t *LeakTracker) Freed(s *ledger.Segment) {
	t.held.add(s.Context, -1, -s.Requested)
	if s.Seq <= t.Bound {
		t.died = append(t.died, s.Block())
	}
}

// Observe takes the bytes held after an event, and the allocs of the device so far.
func (t *LeakTracker) Observe(seq, time, held, allocs int64) {
	if l := &t.lows; time < l.next && held >= l.low { // most events
		l.held = held
	} else if l.observe(seq, time, held, allocs) {
		t.bounded(boundWindow, seq)
	}
}

// Mark takes the end of an iteration, with the bytes that each other library holds, in order of first use.
func (t *LeakTracker) Mark(seq, time int64, others []int64) {
	t.bounded(boundMark, seq)
	t.marks.add(seq, time, others, &t.held)
}

// RequestEnded takes the end of a request, with the bytes that each other library holds, in order of first use.
func (t *LeakTracker) RequestEnded(name string, seq, time int64, others []int64) {
	if t.boundBy == boundMark {
		return // iterations decide
	}
	t.bounded(boundRequest, seq)
	if k := t.kind(name); k != nil {
		k.add(seq, time, others, &t.held)
	}
}

// bounded makes the state after an event the last bound, unless the trace has bounds of a better kind.
func (t *LeakTracker) bounded(by bound, seq int64) {
	if by >= t.boundBy {
		t.boundBy, t.Bound, t.died = by, seq, t.died[:0]
	}
}

// Points are the like points of a trace that a verdict goes by, and what was held at each.
type Points struct {
	Per, Request string
	Count        int64 // of the points, of which neighbours may be joined
	// Until is the last event whose blocks count; Freed are those that were freed since. All others are still live, in paused arenas too.
	Until int64
	Freed []ledger.Block

	points []point
}

// Finish chooses the points. ok is false where there are too few of each kind: the verdict is TooShort. marked: the iterations of list
// come from marks. end is the time of the last event.
func (t *LeakTracker) Finish(list []Iteration, marked bool, end int64) (p Points, ok bool) {
	by := boundWindow
	kind := t.requestKind(t.lows.start, end)
	switch {
	case marked && t.marks.count >= LeastIterations:
		p, by = Points{Per: "iteration", Count: t.marks.count, points: t.marks.points}, boundMark
	case !marked && Count(list) >= LeastIterations:
		p, by = Points{Per: "iteration", Count: Count(list), points: pointsOf(list)}, 0
	case !marked && kind != nil:
		p, by = Points{Per: "request", Request: kind.name, Count: kind.count, points: kind.points}, boundRequest
	case end-t.lows.start >= LeastTime:
		if p.points = t.lows.points(); len(p.points) == 0 {
			return p, false
		}
		p.Per, p.Count = "second", int64(len(p.points))
	default:
		return p, false
	}
	p.Until = math.MaxInt64
	if t.boundBy == by && t.Bound >= 0 {
		p.Until, p.Freed = t.Bound, t.died
	}
	return p, true
}

// pointsOf are the ends of iterations that were found by their period, but the first.
func pointsOf(list []Iteration) []point {
	var points []point
	at, work := int64(0), int64(0)
	for i := range list {
		it := &list[i]
		work += it.AllocBytes
		if i == 0 {
			continue
		}
		at += 1 + it.More
		points = append(points, point{x: float64(at), seq: it.EndSeq, time: it.End, work: work, held: []holding{{everything, 0, it.EndT + it.EndPaused}}})
	}
	return points
}
