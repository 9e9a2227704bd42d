package fleet

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/report/layout"
)

const (
	mostSpreads  = 11 // rows of the table of spreads
	mostOutliers = 6
)

// Sections are the report, in at most 60 lines at 100 columns.
func Sections(f *Fleet) []layout.Section {
	spreads := f.Spreads()
	return []layout.Section{f.head(spreads), f.spreadSection(spreads), f.outlierSection(spreads)}
}

// head says what the fleet is, and the most important.
func (f *Fleet) head(spreads []Spread) layout.Section {
	info := &f.Info
	var fields []string
	if len(info.Command) > 0 {
		fields = append(fields, plain.Shorten(strings.Join(info.Command, " "), 60))
	}
	if !info.Start.IsZero() {
		fields = append(fields, info.Start.UTC().Format("2006-01-02 15:04 UTC"))
	}
	fields = append(fields, plain.Counted(int64(len(f.Hosts)), "host"), plain.Counted(f.Events, "event"))
	var gpus []string
	for _, name := range slices.Sorted(maps.Keys(f.GPUs)) {
		shown := plain.Shorten(name, 40)
		if shown == "" {
			shown = "GPU of unknown model"
		}
		gpus = append(gpus, fmt.Sprintf("%s x %s", plain.FormatCount(int64(f.GPUs[name])), shown))
	}
	s := layout.Section{Title: plain.Counted(int64(len(f.Members)), "rank"), Before: layout.Note(strings.Join(fields, " | "))}
	s.Before = append(s.Before, layout.Note(strings.Join(gpus, ", "))...)
	if f.Recovers > 0 {
		s.Before = append(s.Before, layout.Cell{Text: plain.Counted(int64(f.Recovers), "process") + " did not come to their own end", Tone: layout.Warned})
	}
	for _, spread := range spreads {
		switch {
		case spread.Metric == "reserved.peak":
			s.Before = append(s.Before, layout.Cell{Text: fmt.Sprintf("Reserved at most %s by %s, %.2fx of the median", spread.format(spread.Greatest), f.name(spread.greatestOf), ratio(spread.Greatest, spread.Median)), Tone: layout.Strong})
		case spread.Metric == "oom.count" && spread.Greatest > 0:
			s.Before = append(s.Before, layout.Cell{Text: fmt.Sprintf("Requests failed: %s on average, most by %s (%s)", threeDigits(spread.Mean), f.name(spread.greatestOf), spread.format(spread.Greatest)), Tone: layout.Failed})
		}
	}
	s.Before = append(s.Before, layout.Note("From the summaries of the recordings; `memprof report --process rankN` reads the events of a rank")...)
	return s
}

func ratio(a, b float64) float64 {
	if b == 0 {
		return 1
	}
	return a / b
}

func threeDigits(v float64) string { return strings.TrimSuffix(fmt.Sprintf("%.2f", v), ".00") }

// name is what a member is called: its process, with its host where there are several.
func (f *Fleet) name(member int) string {
	m := &f.Members[member]
	text := plain.Shorten(m.Process, 16)
	if m.Device != 0 && !strings.HasPrefix(m.Process, "rank") {
		text += fmt.Sprintf(" GPU %d", m.Device)
	}
	if len(f.Hosts) > 1 && m.Host != "" {
		text += " " + plain.Shorten(m.Host, 16)
	}
	return text
}

// format writes a value in the unit of the metric.
func (s *Spread) format(value float64) string {
	switch s.Unit {
	case "bytes":
		if value < 0 {
			return "-" + plain.FormatSize(int64(-value))
		}
		return plain.FormatSize(int64(value))
	case "share":
		return plain.FormatPercent(value)
	case "ns":
		return plain.FormatDuration(int64(value))
	}
	return plain.FormatCount(int64(value))
}

// spreadSection is the table of metrics that differ, widest first, and below it those that do not.
func (f *Fleet) spreadSection(spreads []Spread) layout.Section {
	s := layout.Section{
		Title: "Spread over the ranks, most unequal first",
		Columns: []layout.Column{
			layout.Words("metric"), layout.Numbers("least"), layout.Numbers("median"), {Name: "95 %", Number: true, Implied: true}, layout.Numbers("greatest"),
			layout.Words("greatest of"), {Name: "x median", Number: true, Implied: true}, layout.Numbers("outliers"),
		},
	}
	d := divide(spreads)
	alike, more := f.spreadRows(&s, d.differ)
	s.After = append(s.After, shortList("As a row above", alike)...)
	if more > 0 {
		s.After = append(s.After, layout.Note(fmt.Sprintf("%s more differ by less: --json has every metric", plain.FormatCount(int64(more))))...)
	}
	s.After = append(s.After, shortList("Equal on all", d.equal)...)
	s.After = append(s.After, shortList("0 on all", d.zero)...)
	return s
}

// divided is metrics by whether ranks differ in them.
type divided struct {
	differ []*Spread // the greatest peaks first, the others widest first
	equal  []string  // with their value
	zero   []string
}

// divide leaves out shares whose bytes are there, too.
func divide(spreads []Spread) divided {
	names := map[string]bool{}
	for i := range spreads {
		names[spreads[i].Metric] = true
	}
	var d divided
	for i := range spreads {
		switch spread := &spreads[i]; {
		case spread.Unit == "share" && names[spread.Metric+".bytes"]:
		case spread.equal && spread.Greatest == 0:
			d.zero = append(d.zero, spread.Metric)
		case spread.equal:
			d.equal = append(d.equal, spread.Metric+" "+spread.format(spread.Greatest))
		default:
			d.differ = append(d.differ, spread)
		}
	}
	slices.SortStableFunc(d.differ, func(a, b *Spread) int { return cmp.Compare(b.place(), a.place()) })
	return d
}

// place orders the rows of the table, the greatest first: the peaks are always there, and of the others those whose range is wide.
func (s *Spread) place() float64 {
	switch {
	case s.Metric == "reserved.peak" || s.Metric == "requested.peak":
		return 1e18
	case s.Median == 0:
		return 1
	}
	return (s.Greatest - s.Least) / max(abs(s.Median), 1e-9)
}

// spreadRows adds a row for each metric, of those that spread alike for the first, up to mostSpreads. alike are the
// names of the others, and more is how many had no place.
func (f *Fleet) spreadRows(s *layout.Section, differ []*Spread) (alike []string, more int) {
	seen := map[[4]float64]bool{}
	for _, spread := range differ {
		key := [4]float64{spread.Least, spread.Median, spread.P95, spread.Greatest}
		if seen[key] {
			alike = append(alike, spread.Metric)
			continue
		}
		if len(s.Rows) == mostSpreads {
			more++
			continue
		}
		seen[key] = true
		times := "-"
		if spread.Median != 0 {
			times = fmt.Sprintf("%.2f", spread.Greatest/spread.Median)
		}
		s.Rows = append(s.Rows, layout.Row(spread.Metric, spread.format(spread.Least), spread.format(spread.Median), spread.format(spread.P95),
			spread.format(spread.Greatest), f.name(spread.greatestOf), times, plain.FormatCount(int64(len(spread.outliers)))))
	}
	return alike, more
}

// shortList is a note of two lines at most, and of none if there are no texts.
func shortList(what string, texts []string) []layout.Cell {
	if len(texts) == 0 {
		return nil
	}
	const columns = 96
	line := what + ": "
	var notes []layout.Cell
	for i, text := range texts {
		if len(line)+len(text)+2 > columns {
			if len(notes) == 1 {
				return append(notes, layout.Cell{Text: line + fmt.Sprintf("… %d more", len(texts)-i)})
			}
			notes, line = append(notes, layout.Cell{Text: strings.TrimRight(line, " ")}), "  "
		}
		line += text
		if i < len(texts)-1 {
			line += ", "
		}
	}
	return append(notes, layout.Cell{Text: line})
}

func abs(v float64) float64 { return max(v, -v) }

// outlierSection are the members that lie farthest off, of the metrics in bytes first.
func (f *Fleet) outlierSection(spreads []Spread) layout.Section {
	s := layout.Section{
		Title:   "Outliers",
		Columns: []layout.Column{layout.Words("rank"), layout.Words("metric"), layout.Numbers("value"), layout.Numbers("median"), layout.Numbers("difference")},
		After:   layout.Note("farther from the median than 3.5 scaled median absolute deviations, and than 1 %"),
	}
	type off struct {
		spread *Spread
		member int
		by     float64
	}
	var all []off
	members := map[int]bool{}
	for i := range spreads {
		spread := &spreads[i]
		for _, member := range spread.outliers {
			members[member] = true
			if spread.Unit == "bytes" {
				all = append(all, off{spread, member, abs(f.values[spread.Metric][member] - spread.Median)})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b off) int { return cmp.Compare(b.by, a.by) })
	shown := map[int]int{} // rows of a member
	seen := map[[3]float64]bool{}
	for _, o := range all {
		if len(s.Rows) == mostOutliers {
			break
		}
		value := f.values[o.spread.Metric][o.member]
		key := [3]float64{float64(o.member), value, o.spread.Median}
		if seen[key] { // another metric, and the same bytes
			continue
		}
		seen[key] = true
		if shown[o.member]++; shown[o.member] > 2 {
			continue
		}
		sign := "+"
		if value < o.spread.Median {
			sign = "-"
		}
		s.Rows = append(s.Rows, layout.Row(f.name(o.member), o.spread.Metric, o.spread.format(value), o.spread.format(o.spread.Median), sign+plain.FormatSize(int64(o.by))))
	}
	if len(members) == 0 {
		return layout.Section{Title: "Outliers", After: layout.Note("none: no rank lies far from the others in any metric")}
	}
	s.After = append(s.After, layout.Note(fmt.Sprintf("%s lie far off in some metric", plain.Counted(int64(len(members)), "rank")))...)
	return s
}
