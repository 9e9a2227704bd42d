package analysis

import (
	"math"
)

// leak is the trend of held bytes, and what holds them.
func (a *analyzer) leak(d *device) Leak {
	var l Leak
	var ends, times []trendPoint
	place := int64(0) // of the last that an Iteration stands for
	for i := 1; i < len(d.Iterations); i++ {
		it := &d.Iterations[i]
		place += 1 + it.More
		ends = append(ends, trendPoint{float64(place), it.EndT + it.EndPaused})
		if at := float64(it.End) / 1e9; len(times) == 0 || at > times[len(times)-1].x {
			times = append(times, trendPoint{at, it.EndT + it.EndPaused})
		}
	}
	l.Iterations = trendOf(ends)
	var kind *requestKind
	if l.Requests, kind = d.requestTrend(d.lows.start, a.lastTime); kind != nil {
		l.Request = kind.name
	}
	var since int64
	marked := len(d.Iterations) > 0 && d.Period == 0
	if l.Seconds = trendOf(times); !marked && !l.Iterations.Valid {
		l.Seconds, since = d.lows.trend(d)
	}
	by := boundWindow
	switch {
	case l.Iterations.Valid:
		since, by = d.Iterations[0].EndSeq, boundMark
	case l.Requests.Valid:
		since, by = kind.first, boundRequest
	case !l.Seconds.Valid:
		return l
	}
	blocks := a.heldSince(d, since, by)
	for i := range blocks {
		l.Blocks++
		l.Requested += blocks[i].Requested
		l.Provided += blocks[i].Size
	}
	l.Holders = a.attribution.ByOrigin(blocks)
	l.Sizes = a.attribution.BySize(blocks)
	l.Stacks = a.attribution.ByStack(blocks)
	return l
}

// Trend is the one that says whether there is a leak: over iterations, else over requests, else over
// time. per is what its slope is by: "iteration", "request" or "second".
func (l *Leak) Trend() (t Trend, per string) {
	switch {
	case l.Iterations.Valid:
		return l.Iterations, "iteration"
	case l.Requests.Valid:
		return l.Requests, "request"
	}
	return l.Seconds, "second"
}

// heldSince are the blocks handed out after seq that were live at the last bound of a sort, or at
// the end where the device has no such bounds. What paused arenas hold is among them.
func (a *analyzer) heldSince(d *device, seq int64, by bound) []block {
	until := int64(math.MaxInt64)
	var blocks []block
	if d.boundBy == by && d.markSeq >= 0 {
		until = d.markSeq
		for _, b := range d.markDied {
			if b.Seq > seq {
				blocks = append(blocks, b)
			}
		}
	}
	for _, ar := range a.arenas {
		if ar.device != d || ar.over {
			continue
		}
		for i := ar.head; i != none; i = a.ledger.segments[i].next {
			// A pending block was live at the bound if it was freed since: then it is in markDied.
			if s := &a.ledger.segments[i]; s.kind == segmentLive && seq < s.seq && s.seq <= until {
				blocks = append(blocks, blockOf(s))
			}
		}
	}
	return blocks
}
