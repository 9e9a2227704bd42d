package report

import (
	"fmt"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/report/layout"
	"github.com/memprof/memprof/report/plain"
	"github.com/memprof/memprof/report/units"
)

// Rows of the table of iterations that are shown before and after the gap. The start is where
// iterations differ, so it gets more.
const iterationsHead, iterationsTail = 8, 4

// iterationSections are the table of iterations and the BFC paper's table.
func iterationSections(d *analysis.DeviceResult) []layout.Section {
	if len(d.Iterations) == 0 {
		return []layout.Section{{
			Title:  "Iterations",
			Before: layout.Toned(layout.Faint, layout.Note("none were marked: call memprof.iteration() after each step to get peaks by iteration")),
		}}
	}
	several := len(d.Iterations) > 1
	s := layout.Section{
		Title: "Iterations",
		Columns: []layout.Column{
			layout.Numbers("iteration"), layout.Numbers("duration"), layout.Numbers("peak T"), layout.Numbers("peak C"), layout.Numbers("peak R"),
			layout.Numbers("T at end"), layout.Numbers("allocs"), layout.Numbers("allocated"),
		},
	}
	for _, it := range d.Iterations {
		s.Rows = append(s.Rows, layout.Row(
			it.Name(), units.FormatDuration(it.End-it.Start),
			units.FormatSize(it.PeakT), units.FormatKnown(it.PeakC), units.FormatSize(it.PeakR),
			units.FormatSize(it.EndT), units.FormatCount(it.Allocs), units.FormatSize(it.AllocBytes)))
	}
	s.Elide(iterationsHead, iterationsTail)
	s.Listed = true
	if !several {
		return []layout.Section{s}
	}
	return []layout.Section{s, paperSection(d)}
}

// paperSection is the BFC paper's comparison of the first iteration with the later ones.
func paperSection(d *analysis.DeviceResult) layout.Section {
	p := d.Paper
	s := layout.Section{Title: "First iteration against the later ones"}
	if !p.Valid {
		s.Before = layout.Toned(layout.Faint, layout.Note("no shares: no memory was reserved"))
		return s
	}
	s.Before = layout.Note("peaks as shares of " + paperWhole(d))
	s.Columns = []layout.Column{layout.Words("iterations"), layout.Numbers("requested (T)"), layout.Numbers("provided (C)"), layout.Numbers("internal (C − T)")}
	s.Rows = [][]layout.Cell{
		layout.Row("the first", "T1 "+units.FormatPercent(p.T1), "C1 "+units.FormatPercent(p.C1), units.FormatPercent(p.C1-p.T1)),
		layout.Row("mean of the "+units.Counted(d.IterationCount()-1, "later one"), "T2 "+units.FormatPercent(p.T2), "C2 "+units.FormatPercent(p.C2), units.FormatPercent(p.C2-p.T2)),
	}
	if p.Of > d.Final.R {
		s.Rows = append(s.Rows,
			layout.Row("the first, of its own peak R", units.FormatPercent(p.OwnT1), units.FormatPercent(p.OwnC1), units.FormatPercent(p.OwnC1-p.OwnT1)),
			layout.Row("later ones, each of its own peak R", units.FormatPercent(p.OwnT2), units.FormatPercent(p.OwnC2), units.FormatPercent(p.OwnC2-p.OwnT2)))
	}
	s.After = layout.Note(fmt.Sprintf("first-iteration excess C1/C2 − 1 = %s · idle in steady state 1 − C2 = %s",
		units.FormatPercent(p.FirstExcess), units.FormatPercent(p.SteadyIdle)))
	return s
}

// paperWhole names what the shares of the paper's table are of, and says why where that is not the
// final R.
func paperWhole(d *analysis.DeviceResult) string {
	if d.Paper.Of > d.Final.R {
		return fmt.Sprintf("the greatest reserved bytes, %s: only %s were reserved at the end", units.FormatSize(d.Paper.Of), units.FormatSize(d.Final.R))
	}
	return "the final reserved bytes, " + units.FormatSize(d.Paper.Of)
}

type jsonIteration struct {
	Number        int64  `json:"number"`
	StartSeq      int64  `json:"start_seq"`
	EndSeq        int64  `json:"end_seq"`
	StartNS       int64  `json:"start_ns"`
	EndNS         int64  `json:"end_ns"`
	PeakRequested int64  `json:"peak_requested"`
	PeakProvided  *int64 `json:"peak_provided"`
	PeakReserved  int64  `json:"peak_reserved"`
	EndRequested  int64  `json:"end_requested"`
	EndProvided   *int64 `json:"end_provided"`
	EndPaused     int64  `json:"end_paused,omitempty"` // requested by allocations of paused tags
	Allocs        int64  `json:"allocs"`
	AllocBytes    int64  `json:"alloc_bytes"`
	More          int64  `json:"more,omitempty"` // iterations after this that it stands for, too
}

// jsonPaper holds the peaks of the first iteration (1) and the means of the later ones (2) as shares
// of reserved bytes: the greatest, which are the final ones unless R shrank; and as shares of each
// iteration's own peak R.
type jsonPaper struct {
	Reserved    int64    `json:"reserved"`
	T1          *float64 `json:"t1"`
	C1          *float64 `json:"c1"`
	T2          *float64 `json:"t2"`
	C2          *float64 `json:"c2"`
	FirstExcess *float64 `json:"first_excess"`
	SteadyIdle  *float64 `json:"steady_idle"`
	OwnT1       *float64 `json:"own_t1"`
	OwnC1       *float64 `json:"own_c1"`
	OwnT2       *float64 `json:"own_t2"`
	OwnC2       *float64 `json:"own_c2"`
}

// jsonIterations are the iterations, and the BFC paper's comparison of the first with the later ones.
type jsonIterations struct {
	Iterations []jsonIteration `json:"iterations"`
	Paper      *jsonPaper      `json:"paper"`
}

func newJSONIterations(d *analysis.DeviceResult) jsonIterations {
	j := jsonIterations{Iterations: []jsonIteration{}}
	for _, it := range d.Iterations {
		j.Iterations = append(j.Iterations, jsonIteration{
			Number: it.Number, StartSeq: it.StartSeq, EndSeq: it.EndSeq, StartNS: it.Start, EndNS: it.End,
			PeakRequested: it.PeakT, PeakProvided: plain.Known(it.PeakC), PeakReserved: it.PeakR,
			EndRequested: it.EndT, EndProvided: plain.Known(it.EndC), EndPaused: it.EndPaused, Allocs: it.Allocs, AllocBytes: it.AllocBytes,
			More: it.More,
		})
	}
	if p := d.Paper; p.Valid {
		j.Paper = &jsonPaper{
			p.Of, plain.Finite(p.T1), plain.Finite(p.C1), plain.Finite(p.T2), plain.Finite(p.C2), plain.Finite(p.FirstExcess), plain.Finite(p.SteadyIdle),
			plain.Finite(p.OwnT1), plain.Finite(p.OwnC1), plain.Finite(p.OwnT2), plain.Finite(p.OwnC2),
		}
	}
	return j
}
