package analysis

import "github.com/memprof/memprof/trace"

// phase takes a phase_begin or phase_end.
func (a *analyzer) phase(e *trace.Event) {
	a.attribution.Phase(e)
	current := a.attribution.Phases.Current
	if a.bands != nil && !a.opening {
		a.bands.Enter(a.attribution.Phases.Name(current), e.Time)
	}
	ended := a.requests.Phase(e) && !a.opening
	for _, d := range a.devices {
		d.byPhase.Enter(current, e.Time, d.T, d.C)
		if d.pauses != nil {
			d.pauses.Phase(e.Time)
		}
		if ended {
			d.trend.RequestEnded(trace.ParseContext(e.Kind, a.opt.Text(e.Context)).Name(), e.Seq, e.Time, d.HeldBytes())
		}
	}
}

// kvEvent takes a mark of a KV cache. The end of a sequence is that of a request.
func (a *analyzer) kvEvent(e *trace.Event) {
	id, ended := a.kv.Event(e)
	if !ended || a.opening {
		return
	}
	for _, d := range a.devices {
		if d.ID == id {
			d.trend.RequestEnded(KVRequests, e.Seq, e.Time, d.HeldBytes())
		}
	}
}
