package analysis

import (
	"cmp"
	"math"
	"slices"
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
		l.Requested += blocks[i].requested
		l.Provided += blocks[i].size
	}
	l.Holders = a.byContext(blocks)
	l.Sizes = a.bySize(blocks)
	l.Stacks = a.byStack(blocks)
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
			if b.seq > seq {
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

func (a *analyzer) byContext(blocks []block) []Holder {
	return group(blocks, a.opt.Top, func(b *block) string { return a.ownerOf(b.context, b.label).name },
		func(name string) Holder { return Holder{Context: name} })
}

func (a *analyzer) bySize(blocks []block) []Holder {
	return group(blocks, a.opt.Top, func(b *block) int64 { return b.requested },
		func(size int64) Holder { return Holder{Size: size} })
}

// group sums up blocks by a key and returns the top holders by requested bytes.
func group[K comparable](blocks []block, top int, key func(*block) K, holder func(K) Holder) []Holder {
	index := map[K]int{}
	var holders []Holder
	for i := range blocks {
		b := &blocks[i]
		k := key(b)
		at, ok := index[k]
		if !ok {
			at = len(holders)
			index[k] = at
			holders = append(holders, holder(k))
		}
		h := &holders[at]
		h.Blocks++
		h.Requested += b.requested
		h.Provided += b.size
	}
	slices.SortFunc(holders, func(x, y Holder) int {
		return cmp.Or(cmp.Compare(y.Requested, x.Requested), cmp.Compare(y.Provided, x.Provided),
			cmp.Compare(x.Context, y.Context), cmp.Compare(y.Size, x.Size))
	})
	return holders[:min(top, len(holders))]
}
