package analysis

import (
	"cmp"
	"slices"

	"github.com/memprof/memprof/analysis/attribution"
	"github.com/memprof/memprof/analysis/iterations"
	"github.com/memprof/memprof/analysis/pause"
	"github.com/memprof/memprof/analysis/trend"
)

// device sums up the arenas of one GPU.
type device struct {
	split
	DeviceResult
	ranked    byReserved
	paused    int64 // bytes that paused arenas would have mapped
	pausedT   int64 // requested by live allocations in paused arenas
	iteration int   // marks seen so far
	log       iterations.Log
	current   Iteration

	// What has changed since the peak: enough to tell what was live at it. Blocks handed
	// out later do not count, so this never outgrows what was live at the peak.
	peaks     int64 // numbers the peak instants
	died      []block
	untouched []addressRange // untouched at the peak and not any more

	trend *trend.Tracker

	series  series
	period  *iterations.Finder // nil once there is a mark
	beside  besideState
	tags    []*tagUse
	samples *samples // nil without watched arenas
	byPhase attribution.DevicePhases
	pauses  *pause.Tracker // nil without tags
	keys    *keyframes     // nil unless they are wanted
}

func newDevice(id int32, opt *Options) *device {
	return &device{
		DeviceResult: DeviceResult{Device: id, Peak: Instant{Seq: -1, Time: -1}},
		series:       series{limit: opt.MaxPoints},
		period:       &iterations.Finder{},
		beside:       besideState{greatest: Holding{At: Instant{Seq: -1, Time: -1}}},
		peaks:        1,
	}
}

// instant is the state after the event of seq.
func (d *device) instant(seq, time int64) Instant {
	return d.instantSeenBy(d.view(), seq, time)
}

// instantSeenBy is instant as requests of an arena see it.
func (d *device) instantSeenBy(ar *arena, seq, time int64) Instant {
	i := Instant{Seq: seq, Time: time, Iteration: d.iteration, Paused: d.paused}
	d.fill(&i, ar)
	return i
}

// now is the state after the event of seq, with the C that was read where chunks are not told.
func (d *device) now(seq, time int64) Instant {
	i := d.instant(seq, time)
	if d.samples != nil {
		i.C = d.samples.c
	}
	return i
}

// heldBytes are requested by live allocations, those of paused tags too.
func (d *device) heldBytes() int64 { return d.t + d.pausedT }

// observe takes note of the state after an event that changed it.
func (d *device) observe(seq, time int64) {
	t, c, r := d.t, d.c, d.r
	d.MaxT = max(d.MaxT, t)
	d.MaxC = max(d.MaxC, c)
	d.MaxR = max(d.MaxR, r)
	it := &d.current
	it.PeakT = max(it.PeakT, t)
	it.PeakC = max(it.PeakC, c)
	it.PeakR = max(it.PeakR, r)
	d.byPhase.Observe(t, c)
	peak := r > d.Peak.R || r == d.Peak.R && t > d.Peak.T
	if peak {
		d.Peak = d.instant(seq, time)
		d.peaks++
		d.died, d.untouched = d.died[:0], d.untouched[:0]
	}
	d.series.add(d, seq, time)
	d.trend.Observe(seq, time, d.heldBytes(), d.Allocs)
	if d.keys != nil {
		d.keys.observe(d, seq, time, peak)
	}
}

// touch is told that r of an arena, mapped by the event of seq, is not untouched any more.
func (d *device) touch(arena int32, r addressRange, seq int64) {
	if d.keys != nil {
		d.keys.touched(arena, r, seq)
	}
	if seq > d.Peak.Seq {
		return
	}
	// What one request leaves of a stretch the next one takes: the log stays short.
	if n := len(d.untouched); n > 0 && d.untouched[n-1].to == r.from {
		d.untouched[n-1].to = r.to
		return
	}
	d.untouched = append(d.untouched, r)
	if len(d.untouched) >= 1024 && len(d.untouched) == cap(d.untouched) {
		d.untouched = joined(d.untouched)
	}
}

// joined sorts disjoint ranges and joins those that touch, in place.
func joined(ranges []addressRange) []addressRange {
	slices.SortFunc(ranges, func(a, b addressRange) int { return cmp.Compare(a.from, b.from) })
	out := ranges[:0]
	for _, r := range ranges {
		if n := len(out); n > 0 && out[n-1].to == r.from {
			out[n-1].to = r.to
			continue
		}
		out = append(out, r)
	}
	return out
}

// leftPeak is told that a block, live or pending, is neither from now on.
func (d *device) leftPeak(s *segment) {
	if d.keys != nil {
		d.keys.blockGone(s)
	}
	if s.seq <= d.Peak.Seq {
		b := blockOf(s)
		b.Pending = s.kind == segmentPending && s.freed <= d.Peak.Seq
		d.died = append(d.died, b)
	}
}

// leftMark is told that a block is not live from now on.
func (d *device) leftMark(s *segment) {
	if s.seq <= d.trend.Bound {
		d.trend.Freed(blockOf(s))
	}
}

func blockOf(s *segment) block {
	return block{
		Addr: s.addr, Size: s.size, Requested: s.requested, Seq: s.seq, Arena: s.arena, Context: s.context,
		Label: s.label, Phase: s.phase, Within: s.within,
	}
}
