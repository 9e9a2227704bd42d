package report

import (
	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/attribution"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/report/layout"
	"github.com/memprof/memprof/report/terms"
)

// phaseSections give the peak and the allocated bytes of each phase in each iteration.
func phaseSections(d *analysis.DeviceResult) []layout.Section {
	if len(d.Phases) == 0 {
		return nil
	}
	phases := d.Phases
	var after []layout.Cell
	if len(phases) > phasesShown {
		after = layout.Toned(layout.Faint, layout.Note(plain.Counted(int64(len(phases)-phasesShown), "more phase")+" not shown"))
		phases = phases[:phasesShown]
	}
	peaks := layout.Section{Title: "Peak of requested, by iteration and phase", Columns: []layout.Column{layout.Numbers("iteration")}, After: after}
	bytes := layout.Section{Title: "Allocated, by iteration and phase", Columns: []layout.Column{layout.Numbers("iteration")}, After: after}
	for _, p := range phases {
		name := layout.Numbers(plain.Shorten(terms.Phase(p.Phase), 10))
		peaks.Columns = append(peaks.Columns, name)
		bytes.Columns = append(bytes.Columns, name)
	}
	for i := range d.PhaseIterations {
		it := &d.PhaseIterations[i]
		number := terms.Iteration(d, it.Iteration)
		peaks.Rows = append(peaks.Rows, phaseRow(number, phases, it.Uses, func(u *attribution.PhaseUse) int64 { return u.PeakT }))
		bytes.Rows = append(bytes.Rows, phaseRow(number, phases, it.Uses, func(u *attribution.PhaseUse) int64 { return u.AllocBytes }))
	}
	peaks.Elide(iterationsHead, iterationsTail)
	bytes.Elide(iterationsHead, iterationsTail)
	peaks.Total = layout.Toned(layout.Strong, phaseRow("maximum", phases, phases, func(u *attribution.PhaseUse) int64 { return u.PeakT }))
	bytes.Total = layout.Toned(layout.Strong, phaseRow("sum", phases, phases, func(u *attribution.PhaseUse) int64 { return u.AllocBytes }))
	return []layout.Section{peaks, bytes}
}

// phaseRow has a number for each phase, "–" if the phase was not entered.
func phaseRow(first string, phases, uses []attribution.PhaseUse, of func(*attribution.PhaseUse) int64) []layout.Cell {
	line := layout.Row(first)
	for _, p := range phases {
		text := plain.Absent
		for i := range uses {
			if uses[i].Phase == p.Phase {
				text = plain.FormatSize(of(&uses[i]))
			}
		}
		line = append(line, layout.Cell{Text: text})
	}
	return line
}

type jsonPhase struct {
	Phase         string `json:"phase"`
	DurationNS    int64  `json:"duration_ns"`
	PeakRequested int64  `json:"peak_requested"`
	PeakProvided  *int64 `json:"peak_provided"`
	Allocs        int64  `json:"allocs"`
	AllocBytes    int64  `json:"alloc_bytes"`
}

// jsonByPhase is an iteration by phase; of many iterations the first and the last are listed.
type jsonByPhase struct {
	Iteration *int64      `json:"iteration"`
	Phases    []jsonPhase `json:"phases"`
}

func newJSONPhaseUses(uses []attribution.PhaseUse) []jsonPhase {
	out := []jsonPhase{}
	for _, u := range uses {
		out = append(out, jsonPhase{u.Phase, u.Duration, u.PeakT, plain.Known(u.PeakC), u.Allocs, u.AllocBytes})
	}
	return out
}

func newJSONByPhase(d *analysis.DeviceResult) []jsonByPhase {
	out := []jsonByPhase{}
	for _, it := range d.PhaseIterations {
		out = append(out, jsonByPhase{jsonIterationNumber(d, it.Iteration), newJSONPhaseUses(it.Uses)})
	}
	return out
}

// jsonPhases are the uses of each phase, of the whole run and by iteration.
type jsonPhases struct {
	Phases  []jsonPhase   `json:"phases"`
	ByPhase []jsonByPhase `json:"phase_iterations"`
}

func newJSONPhases(d *analysis.DeviceResult) jsonPhases {
	return jsonPhases{newJSONPhaseUses(d.Phases), newJSONByPhase(d)}
}
