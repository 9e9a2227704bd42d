package report

import (
	"math"
	"slices"

	"github.com/memprof/memprof/analysis/compare"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/report/layout"
)

// A study reports several jobs at once: the tables and figures of the BFC paper.

// studyTables are the measures of each table. A single table would be wider than a terminal.
var studyTables = []struct {
	title    string
	before   string
	measures []string
}{
	{"Peaks as shares of R", "T: requested, C: provided (chunks); 1: first iteration, 2: mean of the later ones; idle: lower is better",
		[]string{"t1", "c1", "t2", "c2", "idle_first", "idle_later"}},
	{"Differences", "in points of R, and relative to C: the paper does not say which of the two its C − T is",
		[]string{"internal_first", "internal_first_of_c", "internal_later", "internal_later_of_c", "excess", "excess_of_c"}},
	{"Idle, by each iteration's own R (lower is better)", "for jobs whose reserved memory shrinks: 1 − C/R, with the R of each iteration",
		[]string{"own_idle_first", "own_idle_later"}},
}

// StudySections are the tables of the BFC paper over several jobs.
func StudySections(s *compare.Study) []layout.Section {
	var sections []layout.Section
	for i, table := range studyTables {
		var measures []*compare.StudyMeasure
		for _, name := range table.measures {
			measures = append(measures, studyMeasure(name))
		}
		sections = append(sections, studySection(s, measures, i == 0))
		sections[i].Title, sections[i].Before = table.title, layout.Note(table.before)
	}
	sections[0].Before = append(sections[0].Before, layout.Note("R: reserved at the end, or the most ever reserved if R shrank")...)
	last := &sections[len(sections)-1]
	if slices.ContainsFunc(s.Jobs, func(job compare.StudyJob) bool { return math.IsNaN(job.Result.Paper.C1) }) {
		last.After = layout.Note("C is not known of every job: mean and maximum of measures that need it are of the others")
	}
	for _, gap := range s.LeftOut {
		last.After = append(last.After, layout.Cell{Text: "left out: " + plain.Shorten(gap.Name, 60) + ": " + gap.Why, Tone: layout.Faint})
	}
	return sections
}

// studySection has a row for each job, then mean and maximum, and below them those of the paper. With
// reserved it has columns for the number of iterations and R.
func studySection(s *compare.Study, measures []*compare.StudyMeasure, reserved bool) layout.Section {
	out := layout.Section{Columns: []layout.Column{layout.Words("job")}}
	if reserved {
		out.Columns = append(out.Columns, layout.Numbers("iterations"), layout.Numbers("R"))
	}
	for _, m := range measures {
		out.Columns = append(out.Columns, layout.Numbers(m.Title))
	}
	line := func(t layout.Tone, name string, lead []string, value func(*compare.StudyMeasure) float64) {
		texts := append([]string{plain.Shorten(name, 40)}, lead...)
		for _, m := range measures {
			texts = append(texts, plain.FormatPercent(value(m)))
		}
		out.Rows = append(out.Rows, layout.Toned(t, layout.Row(texts...)))
	}
	var blank []string
	if reserved {
		blank = []string{"", ""}
	}
	for i := range s.Jobs {
		job := &s.Jobs[i]
		var lead []string
		if reserved {
			lead = []string{plain.FormatCount(job.Result.IterationCount()), plain.FormatSize(job.Result.Paper.Of)}
		}
		line(layout.Plain, job.Name, lead, func(m *compare.StudyMeasure) float64 { return m.Value(job.Result.Paper) })
	}
	line(layout.Strong, "mean", blank, s.Mean)
	line(layout.Strong, "maximum", blank, s.Max)
	paperMean := func(m *compare.StudyMeasure) float64 { return m.PaperMean }
	paperMax := func(m *compare.StudyMeasure) float64 { return m.PaperMax }
	if printed(measures, paperMean) {
		line(layout.Faint, "the BFC paper, mean", blank, paperMean)
	}
	if printed(measures, paperMax) {
		line(layout.Faint, "the BFC paper, maximum", blank, paperMax)
	}
	return out
}

// printed reports whether the paper has a number for any of the measures.
func printed(measures []*compare.StudyMeasure, figure func(*compare.StudyMeasure) float64) bool {
	return slices.ContainsFunc(measures, func(m *compare.StudyMeasure) bool { return !math.IsNaN(figure(m)) })
}

// studyMeasure is the measure with a name of [compare.StudyMeasures].
func studyMeasure(name string) *compare.StudyMeasure {
	all := compare.StudyMeasures()
	return &all[slices.IndexFunc(all, func(m compare.StudyMeasure) bool { return m.Name == name })]
}
