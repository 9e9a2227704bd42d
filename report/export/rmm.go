package export

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"time"

	"github.com/memprof/memprof/trace"
)

// RMM writes the allocations of one process as a log of the RAPIDS Memory Manager, which RMM's replay benchmark
// and RAPIDS tools read; see package rmmlog. A block is freed when its request is, although another stream may
// still use it. Memory that is paused or mapped is not in such a log.
func RMM(w io.Writer, r *Recording, process *trace.Process) error {
	out := &writer{to: w}
	out.addString("Thread,Time,Action,Pointer,Size,Stream\n")
	l := &rmmLog{out: out, live: trace.NewLive(), start: timeOfDay(r.Run.Info.Start)}
	if i := r.Run.Info.ImportOf(process.Name); i != nil {
		l.opening = i.Opening
		if i.TimeOfDay > 0 {
			l.start = i.TimeOfDay
		}
	}
	err := process.Each(func(e *trace.Event) error {
		l.event(e)
		return out.err
	})
	if err != nil {
		return fmt.Errorf("%s: %w", process.Name, err)
	}
	return out.flush()
}

func timeOfDay(t time.Time) int64 {
	t = t.UTC()
	return int64(t.Sub(t.Truncate(24 * time.Hour)))
}

type rmmLog struct {
	out     *writer
	live    *trace.Live
	start   int64 // time of day at the clock base, ns
	opening int64 // events of this seq and above are written
}

func (l *rmmLog) event(e *trace.Event) {
	if e.Kind == trace.KindOOM {
		l.row(e, "allocate failure", &trace.Event{Requested: e.Requested, Stream: e.Stream})
		return
	}
	if e.Kind == trace.KindPoolRelease && !l.live.IsPaused(e.Arena) { // the remaining blocks of an arena of graph memory end with it
		for _, b := range l.live.BlocksOf(e.Arena) {
			if !b.Pending {
				l.row(e, "free", &b.Alloc)
			}
		}
	}
	outcome, b := l.live.Add(e)
	switch {
	case outcome == trace.Allocated || outcome == trace.Replaced:
		l.row(e, "allocate", &b.Alloc)
	case outcome == trace.Pended, outcome == trace.Freed && !b.Pending:
		freed := b.Alloc
		if e.Kind == trace.KindFree {
			freed.Stream = e.Stream
		}
		l.row(e, "free", &freed)
	}
}

// row writes a row at the time and on the thread of e.
func (l *rmmLog) row(e *trace.Event, action string, of *trace.Event) {
	if e.Seq < l.opening {
		return
	}
	const day = int64(24 * time.Hour)
	micros := (l.start + e.Time) % day / 1000
	seconds := micros / 1e6
	l.out.addString(strconv.FormatInt(int64(max(e.Thread, 0)), 10))
	l.out.addString(fmt.Sprintf(",%02d:%02d:%02d.%06d,", seconds/3600, seconds/60%60, seconds%60, micros%1e6))
	l.out.addString(action)
	l.out.addString(",0x" + strconv.FormatUint(uint64(of.Addr), 16) + "," + strconv.FormatInt(of.Requested, 10))
	l.out.addString(",0x" + strconv.FormatUint(uint64(min(max(of.Stream, 0), math.MaxInt64)), 16) + "\n")
}
