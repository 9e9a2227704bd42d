package analysis

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/memprof/memprof/trace"
)

// A paused arena has nothing mapped: its terms leave its device, and its blocks are in none of
// the device's numbers until it resumes. Blocks may be freed meanwhile, and granules that are
// free then are unmapped for good just before the resume.

var errPaused = errors.New("the arena is paused")

// pauseSpan is from the seq of a pause to that of its resume.
type pauseSpan struct{ from, to int64 }

func (ar *arena) paused() bool { return ar.total == &ar.away && !ar.over }

// pausedAt says whether the arena was paused after the event of seq.
func (ar *arena) pausedAt(seq int64) bool {
	if ar.over { // never anything of the device's
		return true
	}
	behind, _ := slices.BinarySearchFunc(ar.pauses, seq, func(span pauseSpan, seq int64) int {
		if span.from <= seq {
			return -1
		}
		return 1
	})
	return behind > 0 && seq < ar.pauses[behind-1].to
}

// forgetPauses forgets the pauses that nobody will ask for: what is not a keyframe is looked at
// only as it was at the peak, at the last mark and at the end.
func (ar *arena) forgetPauses() {
	d := ar.device
	if d.keys != nil {
		return
	}
	ar.pauses = slices.DeleteFunc(ar.pauses, func(span pauseSpan) bool {
		return span.to != math.MaxInt64 && !span.has(d.Peak.Seq) && !span.has(d.trend.Bound)
	})
}

func (span pauseSpan) has(seq int64) bool { return span.from <= seq && seq < span.to }

// transition takes note of a pause or a resume.
func (a *analyzer) transition(ar *arena, e *trace.Event) *Transition {
	fields := trace.ParseContext(e.Kind, a.opt.Text(e.Context))
	t := Transition{
		Seq: e.Seq, Time: e.Time, Duration: e.PauseDuration().Nanoseconds(), Arena: e.Arena, Tag: fields.Get("tag"),
		Resume: e.Kind == trace.KindResume, Bytes: e.PausedBytes(), Copied: e.CopiedBytes(), Failed: fields.Get("failed"),
	}
	t.Reserved = ar.device.r - t.Bytes
	if t.Resume {
		t.Reserved = ar.device.r + t.Bytes
	}
	if d := ar.device; !a.opening && len(d.Transitions) < a.opt.MaxGrowths {
		d.Transitions = append(d.Transitions, t)
	}
	return &t
}

func (a *analyzer) pause(e *trace.Event) error {
	ar, err := a.arenaOf(e)
	if err != nil {
		return err
	}
	t := a.transition(ar, e)
	if t.Failed != "" {
		return nil
	}
	if ar.paused() {
		return errPaused
	}
	if e.Requested != ar.r {
		return fmt.Errorf("%d bytes of an arena that has %d mapped", e.Requested, ar.r)
	}
	ar.device.changing(e.Time)
	ar.device.split = ar.device.split.minus(ar.split)
	ar.device.paused += ar.r
	ar.device.pausedT += ar.t
	ar.total, ar.away = &ar.away, ar.split
	ar.device.rerank(ar)
	ar.pauses = append(ar.pauses, pauseSpan{e.Seq, math.MaxInt64})
	a.transitioned(ar, t)
	return a.settle(ar, e)
}

func (a *analyzer) resume(e *trace.Event) error {
	ar, err := a.arenaOf(e)
	if err != nil {
		return err
	}
	t := a.transition(ar, e)
	if t.Failed != "" {
		return nil
	}
	if !ar.paused() {
		return errors.New("the arena is not paused")
	}
	if e.Requested != ar.r {
		return fmt.Errorf("%d bytes of an arena that has %d mapped", e.Requested, ar.r)
	}
	span := &ar.pauses[len(ar.pauses)-1]
	span.to = e.Seq
	ar.forgetPauses()
	ar.device.changing(e.Time)
	ar.device.split = ar.device.split.plus(ar.split)
	ar.device.paused -= ar.r
	ar.device.pausedT -= ar.t
	ar.total = &ar.device.split
	ar.device.rerank(ar)
	a.transitioned(ar, t)
	return a.settle(ar, e)
}
