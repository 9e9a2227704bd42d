package analysis

import "github.com/memprof/memprof/trace"

// phase takes a phase_begin or phase_end.
func (a *analyzer) phase(e *trace.Event) {
	a.attribution.Phase(e)
	current := a.attribution.Phases.Current
	if a.bands != nil && !a.opening {
		a.bands.enter(a.attribution.Phases.Name(current), e.Time)
	}
	ended := a.requests.phase(e) && !a.opening
	for _, d := range a.devices {
		d.byPhase.Enter(current, e.Time, d.t, d.c)
		a.enterStage(d, e.Time)
		if ended {
			d.requestEnded(trace.ParseContext(e.Kind, a.opt.Text(e.Context)).Name(), e)
		}
	}
}
