package report

import (
	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/report/layout"
	"github.com/memprof/memprof/report/terms"
)

const phasesListed = 24

// phaseSections give what each phase did over the whole run.
func phaseSections(d *analysis.DeviceResult) []layout.Section {
	if len(d.Phases) == 0 {
		return nil
	}
	s := layout.Section{
		Title:   "Phases",
		Columns: []layout.Column{layout.Words("phase"), layout.Numbers("duration"), layout.Numbers("peak T"), layout.Numbers("allocations"), layout.Numbers("allocated")},
	}
	for i := range d.Phases {
		p := &d.Phases[i]
		s.Rows = append(s.Rows, layout.Row(terms.Phase(p.Phase), plain.FormatDuration(p.Duration), plain.FormatSize(p.PeakT), plain.FormatCount(p.Allocs), plain.FormatSize(p.AllocBytes)))
	}
	s.Elide(phasesListed, 0)
	s.After = layout.Note("peak T: greatest requested bytes while the phase was the innermost one; allocated: sum of its requests")
	return []layout.Section{s}
}

type jsonPhase struct {
	Phase         string `json:"phase"`
	DurationNS    int64  `json:"duration_ns"`
	PeakRequested int64  `json:"peak_requested"`
	PeakProvided  *int64 `json:"peak_provided"`
	Allocs        int64  `json:"allocs"`
	AllocBytes    int64  `json:"alloc_bytes"`
}

func newJSONPhases(d *analysis.DeviceResult) []jsonPhase {
	out := []jsonPhase{}
	for _, u := range d.Phases {
		out = append(out, jsonPhase{u.Phase, u.Duration, u.PeakT, plain.Known(u.PeakC), u.Allocs, u.AllocBytes})
	}
	return out
}
