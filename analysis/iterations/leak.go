package iterations

import (
	"math"

	"github.com/memprof/memprof/analysis/attribution"
	"github.com/memprof/memprof/analysis/ledger"
)

// Leak says whether held bytes keep rising.
type Leak struct {
	Iterations Trend // at the ends of iterations, without the first; bytes an iteration
	// Requests is at the ends of requests, without the first; bytes a request. Request is the kind of
	// request: a phase by its name, or KVRequests.
	Requests Trend
	Request  string
	// Seconds is over time, bytes a second: at the ends of iterations where those have a trend, else
	// the least bytes in windows of time.
	Seconds Trend
	// The blocks that were allocated after the first point and are live at the last one, of the trend
	// that [Leak.Trend] returns: their count, requested and provided bytes, and the greatest groups by
	// origin, requested size and stack. 0 and nil where no trend is valid.
	Blocks, Requested, Provided int64
	Allocations                 []attribution.AllocationGroup
	Sizes                       []attribution.AllocationGroup
	Stacks                      attribution.Breakdown
}

// Trend is the one that decides whether there is a leak: over iterations, else over requests, else
// over time. per is the unit of x: "iteration", "request" or "second".
func (l *Leak) Trend() (t Trend, per string) {
	switch {
	case l.Iterations.Valid:
		return l.Iterations, "iteration"
	case l.Requests.Valid:
		return l.Requests, "request"
	}
	return l.Seconds, "second"
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

// Observe takes the bytes held after an event, and the allocs of the device so far.
func (t *LeakTracker) Observe(seq, time, held, allocs int64) {
	if l := &t.lows; time < l.next && held >= l.low { // most events
		l.held = held
	} else if l.observe(seq, time, held, allocs) {
		t.bounded(boundWindow, seq)
	}
}

// Mark takes the end of an iteration.
func (t *LeakTracker) Mark(seq int64) { t.bounded(boundMark, seq) }

// RequestEnded takes the end of a request, with the bytes held.
func (t *LeakTracker) RequestEnded(name string, seq, time, held int64) {
	t.bounded(boundRequest, seq)
	if k := t.kind(name, seq); k != nil {
		k.add(held, time)
	}
}

// bounded makes the state after an event the last bound, unless the trace has bounds of a better kind.
func (t *LeakTracker) bounded(by bound, seq int64) {
	if by >= t.boundBy {
		t.boundBy, t.Bound, t.died = by, seq, t.died[:0]
	}
}

// Freed takes a block that was live at the last bound and is freed.
func (t *LeakTracker) Freed(b ledger.Block) { t.died = append(t.died, b) }

// LeakedBlocks bounds the blocks that leak.
type LeakedBlocks struct {
	Since int64 // allocated after this event
	Until int64 // and up to this one
	// Freed are those that were freed since. All others are still live, in paused arenas too.
	Freed []ledger.Block
}

// Finish returns the trends, and the blocks that leak; found is false where no trend is valid.
// marked: the iterations come from marks. end is the time of the last event.
func (t *LeakTracker) Finish(list []Iteration, marked bool, end int64) (l Leak, b LeakedBlocks, found bool) {
	ends, times := endPoints(list)
	l.Iterations = trendOf(ends)
	var kind *requestKind
	if l.Requests, kind = t.requestTrend(t.lows.start, end); kind != nil {
		l.Request = kind.name
	}
	if l.Seconds = trendOf(times); !marked && !l.Iterations.Valid {
		l.Seconds, b.Since = t.lows.trend()
	}
	by := boundWindow
	switch {
	case l.Iterations.Valid:
		b.Since, by = list[0].EndSeq, boundMark
	case l.Requests.Valid:
		b.Since, by = kind.first, boundRequest
	case !l.Seconds.Valid:
		return l, b, false
	}
	b.Until = math.MaxInt64
	if t.boundBy == by && t.Bound >= 0 {
		b.Until = t.Bound
		for _, died := range t.died {
			if died.Seq > b.Since {
				b.Freed = append(b.Freed, died)
			}
		}
	}
	return l, b, true
}

// endPoints are the bytes held at the ends of iterations but the first, by place and by seconds.
func endPoints(list []Iteration) (ends, times []trendPoint) {
	place := int64(0) // of the last iteration that an entry stands for
	for i := 1; i < len(list); i++ {
		it := &list[i]
		place += 1 + it.More
		ends = append(ends, trendPoint{float64(place), it.EndT + it.EndPaused})
		if at := float64(it.End) / 1e9; len(times) == 0 || at > times[len(times)-1].x {
			times = append(times, trendPoint{at, it.EndT + it.EndPaused})
		}
	}
	return ends, times
}
