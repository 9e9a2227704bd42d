package analysis

import (
	"github.com/memprof/memprof/analysis/ledger"
	"github.com/memprof/memprof/analysis/pause"
	"github.com/memprof/memprof/trace"
)

// transition notes a pause or a resume.
func (a *analyzer) transition(ar *arena, e *trace.Event) *pause.Transition {
	fields := trace.ParseContext(e.Kind, a.opt.Text(e.Context))
	t := pause.Transition{
		Seq: e.Seq, Time: e.Time, Duration: e.PauseDuration().Nanoseconds(), Arena: e.Arena, Tag: fields.Get("tag"),
		Resume: e.Kind == trace.KindResume, Bytes: e.PausedBytes(), Copied: e.CopiedBytes(), Failed: fields.Get("failed"),
	}
	if t.Tag == "" { // the allocator that a pool takes its memory from did it
		t.Tag = "pool " + ar.Info.Options["pool"]
	}
	t.Reserved = ar.device.R - t.Bytes
	if t.Resume {
		t.Reserved = ar.device.R + t.Bytes
	}
	if d := ar.device; !a.opening && len(d.result.Transitions) < a.opt.MaxGrowths {
		d.result.Transitions = append(d.result.Transitions, t)
	}
	return &t
}

// followTags joins a new arena to the tags of its device, which are followed from the first one on.
func (a *analyzer) followTags(ar *arena) {
	d, tag := ar.device, ar.Info.Options["tag"]
	if tag != "" && d.pauses == nil {
		d.pauses = pause.New(pause.Options{MaxPoints: a.opt.MaxPoints, Top: a.opt.Top}, a.attribution)
		for _, other := range a.arenas {
			if other.device == d {
				other.tag = d.pauses.Arena("")
				other.followFree()
			}
		}
		d.pauses.Phase(a.lastTime)
	}
	if d.pauses != nil {
		ar.tag = d.pauses.Arena(tag)
	}
}

// followFree hands on what is free in an arena after an event, on a device with tags.
func (ar *arena) followFree() {
	ar.device.pauses.Free(ar.tag, ar.R-ar.C-ar.Pending)
}

// residency hands on that something of an arena was mapped, unmapped, paused or resumed.
func (a *analyzer) residency(ar *arena, time int64) {
	if d := ar.device; d.pauses != nil {
		d.pauses.Mapped(ar.tag, ar.R, ar.Paused(), d.R, time, !a.opening)
	}
}

// transitioned hands on a pause or resume that succeeded, after it.
func (a *analyzer) transitioned(ar *arena, t *pause.Transition) {
	d := ar.device
	if d.pauses == nil || !ar.tag.Tagged() {
		return
	}
	d.pauses.Transition(ar.tag, t)
	a.residency(ar, t.Time)
	d.pauses.Resumed(t.Time)
	if !t.Resume && !a.opening {
		a.lookUntagged(d, t)
	}
}

// lookUntagged has the untagged blocks divided, after a pause that left more of them than any before.
func (a *analyzer) lookUntagged(d *device, t *pause.Transition) {
	var live int64
	segments := len(a.arenas)
	for _, ar := range a.arenas {
		if ar.device != d || ar.Released {
			continue
		}
		segments += ar.Segments()
		if !ar.tag.Tagged() {
			live += ar.T
		}
	}
	look := d.pauses.Look(live)
	if look == nil || !a.budget.Spend(segments) {
		return
	}
	for _, ar := range a.arenas {
		if ar.device != d || ar.Released {
			continue
		}
		a.ledger.Each(ar.Arena, func(s *ledger.Segment) {
			if s.Kind == ledger.LiveSegment {
				b := s.Block()
				look.Add(ar.tag, &b)
			}
		})
	}
	look.Done(t.Seq, t.Time, live)
}
