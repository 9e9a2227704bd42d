package analysis

import (
	"slices"

	"github.com/memprof/memprof/analysis/attribution"
	"github.com/memprof/memprof/analysis/ledger"
	"github.com/memprof/memprof/trace"
)

// Live follows a process event by event while it is being recorded. It is [Run] without an end, and
// as strict.
type Live struct{ a *analyzer }

// NewLive starts with nothing.
func NewLive(opt Options) *Live {
	opt.Explore = false
	return &Live{newAnalyzer(opt)}
}

// Add takes the next event. After an error, an *[EventError], nothing more can be added.
func (l *Live) Add(e *trace.Event) error { return l.a.event(e) }

// LiveState is what a process is like after the last event added. What was before the first
// one, where a trace is joined in its middle, is in no greatest value.
type LiveState struct {
	Seq       int64 // of the last event; -1 before the first
	Time      int64
	Iteration int64  // number of the last mark; -1 before the first
	Phase     string // the innermost open one, "other" outside of all
	Devices   []LiveDevice
	Arenas    []LiveArena // not those released, in order of creation
}

// LiveDevice is a device of a process.
type LiveDevice struct {
	Device int32
	Now    ledger.Instant
	MaxT   int64
	MaxR   int64
	OOMs   int64
}

// LiveArena is an arena and its state, seen by its own requests: nothing of it is stranded.
type LiveArena struct {
	Info ledger.Info
	Now  ledger.Instant // of a paused one, as it will be when it resumes
	MaxR int64

	Paused bool // its terms are in none of the device's
}

// State is what the process is like now.
func (l *Live) State() LiveState {
	a := l.a
	state := LiveState{Seq: a.lastSeq, Time: a.lastTime, Iteration: -1, Phase: a.attribution.Phases.Name(a.attribution.Phases.Current)}
	if a.events == 0 && len(a.arenas) == 0 {
		state.Seq = -1
	}
	if number, ok := a.marks.Last(); ok {
		state.Iteration = number
	}
	for _, d := range a.devices {
		if d.MaxR == 0 && d.R == 0 && d.result.OOMCount == 0 {
			continue // other libraries alone use it
		}
		state.Devices = append(state.Devices, LiveDevice{d.ID, d.now(a.lastSeq, a.lastTime), max(d.MaxT, d.T), max(d.MaxR, d.R), d.result.OOMCount})
	}
	slices.SortFunc(state.Devices, func(x, y LiveDevice) int { return int(x.Device - y.Device) })
	for _, ar := range a.arenas {
		if ar.Released {
			continue
		}
		now := ar.now(a.lastSeq, a.lastTime)
		state.Arenas = append(state.Arenas, LiveArena{ar.Info, now, ar.MaxR, ar.Paused()})
	}
	return state
}

// Held divides the allocations of a device that are live now: by category, module and phase. It visits all of them.
func (l *Live) Held(device int32) (*attribution.Result, error) {
	for _, d := range l.a.devices {
		if d.ID == device {
			return l.a.heldNow(d, d.Instant(l.a.lastSeq, l.a.lastTime))
		}
	}
	return nil, nil
}

// Course is the greatest reserved memory of a device in n equal stretches of time from its first event until now; fewer where
// that is not known.
func (l *Live) Course(device int32, n int) []int64 {
	for _, d := range l.a.devices {
		points := d.series.points
		if d.ID != device || len(points) == 0 {
			continue
		}
		first, length := points[0].Start, max(l.a.lastTime-points[0].Start, 1)
		course := make([]int64, n)
		at, last := 0, int64(0) // the stretch that is filled, and R at its start
		for i := range points {
			for to := min(int((points[i].Start-first)*int64(n)/(length+1)), n-1); at < to; {
				at++
				course[at] = last
			}
			course[at] = max(course[at], points[i].R.Max)
			if last = d.R; i+1 < len(points) {
				last = points[i].Last.R
			}
		}
		for at++; at < n; at++ {
			course[at] = last
		}
		return course
	}
	return nil
}
