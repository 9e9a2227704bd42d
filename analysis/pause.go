package analysis

import (
	"github.com/memprof/memprof/trace"
)

// transition takes note of a pause or a resume.
func (a *analyzer) transition(ar *arena, e *trace.Event) *Transition {
	fields := trace.ParseContext(e.Kind, a.opt.Text(e.Context))
	t := Transition{
		Seq: e.Seq, Time: e.Time, Duration: e.PauseDuration().Nanoseconds(), Arena: e.Arena, Tag: fields.Get("tag"),
		Resume: e.Kind == trace.KindResume, Bytes: e.PausedBytes(), Copied: e.CopiedBytes(), Failed: fields.Get("failed"),
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

func (a *analyzer) pause(e *trace.Event) error {
	ar, err := a.arenaOf(e)
	if err != nil {
		return err
	}
	t := a.transition(ar, e)
	if t.Failed != "" {
		return nil
	}
	ar.device.changing(e.Time)
	if err := a.ledger.Pause(ar.Arena, e.Seq, e.Requested); err != nil {
		return err
	}
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
	ar.device.changing(e.Time)
	if err := a.ledger.Resume(ar.Arena, e.Seq, e.Requested); err != nil {
		return err
	}
	if ar.device.keys == nil { // what is no keyframe is looked at only as it was at the peak, the last bound and the end
		ar.ForgetPauses(ar.device.trend.Bound)
	}
	a.transitioned(ar, t)
	return a.settle(ar, e)
}
