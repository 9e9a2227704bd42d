package report

import (
	"fmt"

	"github.com/memprof/memprof/analysis"
)

// Rows of the table of iterations that are shown before and after the gap. The start is where
// iterations differ, so it gets more.
const iterationsHead, iterationsTail = 8, 4

// iterationSections are the table of iterations and the BFC paper's table.
func iterationSections(d *analysis.DeviceResult) []section {
	if len(d.Iterations) == 0 {
		return []section{{
			title:  "Iterations",
			before: toned(faint, note("none were marked: call memprof.iteration() after each step to get peaks by iteration")),
		}}
	}
	several := len(d.Iterations) > 1
	s := section{
		title: "Iterations",
		columns: []column{
			numbers("iteration"), numbers("duration"), numbers("peak T"), numbers("peak C"), numbers("peak R"),
			numbers("T at end"), numbers("allocs"), numbers("allocated"),
		},
	}
	for _, it := range d.Iterations {
		s.rows = append(s.rows, row(
			it.Name(), FormatDuration(it.End-it.Start),
			FormatSize(it.PeakT), formatLimit(it.PeakC), FormatSize(it.PeakR),
			FormatSize(it.EndT), formatCount(it.Allocs), FormatSize(it.AllocBytes)))
	}
	s.elide(iterationsHead, iterationsTail)
	s.listed = true
	if !several {
		return []section{s}
	}
	return []section{s, paperSection(d)}
}

// paperSection is the BFC paper's comparison of the first iteration with the later ones.
func paperSection(d *analysis.DeviceResult) section {
	p := d.Paper
	s := section{title: "First iteration against the later ones"}
	if !p.Valid {
		s.before = toned(faint, note("no shares: no memory was reserved"))
		return s
	}
	s.before = note("peaks as shares of " + paperWhole(d))
	s.columns = []column{words("iterations"), numbers("requested (T)"), numbers("provided (C)"), numbers("internal (C − T)")}
	s.rows = [][]cell{
		row("the first", "T1 "+FormatPercent(p.T1), "C1 "+FormatPercent(p.C1), FormatPercent(p.C1-p.T1)),
		row("mean of the "+plural(d.IterationCount()-1, "later one"), "T2 "+FormatPercent(p.T2), "C2 "+FormatPercent(p.C2), FormatPercent(p.C2-p.T2)),
	}
	if p.Of > d.Final.R {
		s.rows = append(s.rows,
			row("the first, of its own peak R", FormatPercent(p.OwnT1), FormatPercent(p.OwnC1), FormatPercent(p.OwnC1-p.OwnT1)),
			row("later ones, each of its own peak R", FormatPercent(p.OwnT2), FormatPercent(p.OwnC2), FormatPercent(p.OwnC2-p.OwnT2)))
	}
	s.after = note(fmt.Sprintf("first-iteration excess C1/C2 − 1 = %s · idle in steady state 1 − C2 = %s",
		FormatPercent(p.FirstExcess), FormatPercent(p.SteadyIdle)))
	return s
}

// paperWhole names what the shares of the paper's table are of, and says why where that is not the
// final R.
func paperWhole(d *analysis.DeviceResult) string {
	if d.Paper.Of > d.Final.R {
		return fmt.Sprintf("the greatest reserved bytes, %s: only %s were reserved at the end", FormatSize(d.Paper.Of), FormatSize(d.Final.R))
	}
	return "the final reserved bytes, " + FormatSize(d.Paper.Of)
}
