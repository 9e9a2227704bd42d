package report

import (
	"fmt"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/report/layout"
)

// Rows of the table of iterations before and after the gap. The first iterations differ most, so more of
// them are shown.
const iterationsHead, iterationsTail = 8, 4

// iterationSections are the table of iterations and the BFC paper's comparison of the first with later ones.
func iterationSections(d *analysis.DeviceResult) []layout.Section {
	if len(d.Iterations) == 0 {
		return []layout.Section{{
			Title:  "Iterations",
			Before: layout.Toned(layout.Faint, layout.Note("no iterations were marked: call memprof.iteration() after each step to get peaks by iteration")),
		}}
	}
	several := len(d.Iterations) > 1
	s := layout.Section{
		Title: "Iterations",
		Columns: []layout.Column{
			layout.Numbers("iteration"), layout.Numbers("duration"), layout.Numbers("peak T"), layout.Numbers("peak C"), layout.Numbers("peak R"),
			layout.Numbers("T at end"), layout.Numbers("allocations"), layout.Numbers("allocated"),
		},
	}
	for _, it := range d.Iterations {
		s.Rows = append(s.Rows, layout.Row(
			it.Name(), plain.FormatDuration(it.End-it.Start),
			plain.FormatSize(it.PeakT), plain.FormatKnown(it.PeakC), plain.FormatSize(it.PeakR),
			plain.FormatSize(it.EndT), plain.FormatCount(it.Allocs), plain.FormatSize(it.AllocBytes)))
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
	s := layout.Section{Title: "First iteration and later ones"}
	if p == nil {
		s.Before = layout.Toned(layout.Faint, layout.Note("no shares: no memory was reserved"))
		return s
	}
	s.Before = layout.Note("peaks as shares of " + paperWhole(d))
	s.Columns = []layout.Column{layout.Words("iterations"), layout.Numbers("requested (T)"), layout.Numbers("provided (C)"), layout.Numbers("internal (C − T)")}
	s.Rows = [][]layout.Cell{
		layout.Row("first", "T1 "+plain.FormatPercent(p.T1), "C1 "+plain.FormatPercent(p.C1), plain.FormatPercent(p.C1-p.T1)),
		layout.Row("mean of "+plain.Counted(d.IterationCount()-1, "later iteration"), "T2 "+plain.FormatPercent(p.T2), "C2 "+plain.FormatPercent(p.C2), plain.FormatPercent(p.C2-p.T2)),
	}
	if p.Of > d.Final.R {
		s.Rows = append(s.Rows,
			layout.Row("first, of its own peak R", plain.FormatPercent(p.OwnT1), plain.FormatPercent(p.OwnC1), plain.FormatPercent(p.OwnC1-p.OwnT1)),
			layout.Row("later, each of its own peak R", plain.FormatPercent(p.OwnT2), plain.FormatPercent(p.OwnC2), plain.FormatPercent(p.OwnC2-p.OwnT2)))
	}
	s.After = layout.Note(fmt.Sprintf("first-iteration excess C1/C2 − 1 = %s · idle in later ones 1 − C2 = %s (lower is better)",
		plain.FormatPercent(p.FirstExcess), plain.FormatPercent(p.SteadyIdle)))
	return s
}

// paperWhole names the bytes that the shares of the paper's table are of: the final R, or the greatest R
// if R shrank.
func paperWhole(d *analysis.DeviceResult) string {
	if d.Paper.Of > d.Final.R {
		return fmt.Sprintf("the most bytes ever reserved, %s (%s at the end)", plain.FormatSize(d.Paper.Of), plain.FormatSize(d.Final.R))
	}
	return "the bytes reserved at the end, " + plain.FormatSize(d.Paper.Of)
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
	More          int64  `json:"more,omitempty"` // further iterations that this row stands for
}

// jsonPaper holds the peaks of the first iteration (1) and the means of the later ones (2), as shares of
// "reserved", which is the final R, or the greatest R if R shrank. own_... are shares of each iteration's
// own peak R.
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

// jsonIterations are the iterations, and the comparison of the first with the later ones.
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
	if p := d.Paper; p != nil {
		j.Paper = &jsonPaper{
			p.Of, plain.Finite(p.T1), plain.Finite(p.C1), plain.Finite(p.T2), plain.Finite(p.C2), plain.Finite(p.FirstExcess), plain.Finite(p.SteadyIdle),
			plain.Finite(p.OwnT1), plain.Finite(p.OwnC1), plain.Finite(p.OwnT2), plain.Finite(p.OwnC2),
		}
	}
	return j
}
