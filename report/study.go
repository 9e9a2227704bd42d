package report

import (
	"io"
	"math"
	"slices"

	"github.com/memprof/memprof/analysis"
)

// StudyText writes the table of the BFC paper over several jobs for a terminal. It fails only
// where w does.
func StudyText(w io.Writer, s *analysis.Study, o Options) error {
	return writeText(w, o, studySections(s)...)
}

// StudyMarkdown writes what StudyText does as Markdown. It fails only where w does.
func StudyMarkdown(w io.Writer, s *analysis.Study) error {
	return writeMarkdown(w, studySections(s)...)
}

// studyTables are the measures by name, as they stand beside each other: one table of all
// would be wider than a terminal.
var studyTables = []struct {
	title    string
	before   string
	measures []string
}{
	{"Peaks as shares of R", "T: requested, C: chunks handed out; 1: the first iteration, 2: mean of the later ones",
		[]string{"t1", "c1", "t2", "c2", "idle_first", "idle_later"}},
	{"Differences", "in points of R, and relative to C: the paper does not say which of the two it printed for C − T",
		[]string{"internal_first", "internal_first_of_c", "internal_later", "internal_later_of_c", "excess", "excess_of_c"}},
	{"Idle, by each iteration's own R", "where reserved memory can shrink, each iteration's C is held against its own R",
		[]string{"own_idle_first", "own_idle_later"}},
}

func studySections(s *analysis.Study) []section {
	var sections []section
	for i, table := range studyTables {
		var measures []*analysis.StudyMeasure
		for _, name := range table.measures {
			measures = append(measures, studyMeasure(name))
		}
		sections = append(sections, studySection(s, measures, i == 0))
		sections[i].title, sections[i].before = table.title, note(table.before)
	}
	sections[0].before = append(sections[0].before, note("R: the final reserved bytes; where R shrank, the greatest")...)
	last := &sections[len(sections)-1]
	if slices.ContainsFunc(s.Jobs, func(job analysis.StudyJob) bool { return math.IsNaN(job.Result.Paper.C1) }) {
		last.after = note("C is not known of every job: mean and maximum of what follows from it are of the others")
	}
	for _, gap := range s.LeftOut {
		last.after = append(last.after, cell{"left out: " + shorten(gap.Name, 60) + ": " + gap.Why, faint})
	}
	return sections
}

// studySection has a row for each job, then mean and maximum, and the paper's below them. The
// first one also tells what the shares are of.
func studySection(s *analysis.Study, measures []*analysis.StudyMeasure, reserved bool) section {
	out := section{columns: []column{words("job")}}
	if reserved {
		out.columns = append(out.columns, numbers("iterations"), numbers("R"))
	}
	for _, m := range measures {
		out.columns = append(out.columns, numbers(m.Title))
	}
	line := func(t tone, name string, lead []string, value func(*analysis.StudyMeasure) float64) {
		texts := append([]string{shorten(name, 40)}, lead...)
		for _, m := range measures {
			texts = append(texts, FormatPercent(value(m)))
		}
		out.rows = append(out.rows, toned(t, row(texts...)))
	}
	var blank []string
	if reserved {
		blank = []string{"", ""}
	}
	for i := range s.Jobs {
		job := &s.Jobs[i]
		var lead []string
		if reserved {
			lead = []string{formatCount(job.Result.IterationCount()), FormatSize(job.Result.Paper.Of)}
		}
		line(plain, job.Name, lead, func(m *analysis.StudyMeasure) float64 { return m.Value(&job.Result.Paper) })
	}
	line(strong, "mean", blank, s.Mean)
	line(strong, "maximum", blank, s.Max)
	paperMean := func(m *analysis.StudyMeasure) float64 { return m.PaperMean }
	paperMax := func(m *analysis.StudyMeasure) float64 { return m.PaperMax }
	if printed(measures, paperMean) {
		line(faint, "the BFC paper, mean", blank, paperMean)
	}
	if printed(measures, paperMax) {
		line(faint, "the BFC paper, maximum", blank, paperMax)
	}
	return out
}

// printed says whether the paper has a figure for any of the measures.
func printed(measures []*analysis.StudyMeasure, figure func(*analysis.StudyMeasure) float64) bool {
	return slices.ContainsFunc(measures, func(m *analysis.StudyMeasure) bool { return !math.IsNaN(figure(m)) })
}

// studyMeasure is the measure of a name, which must be one of analysis.StudyMeasures.
func studyMeasure(name string) *analysis.StudyMeasure {
	all := analysis.StudyMeasures()
	return &all[slices.IndexFunc(all, func(m analysis.StudyMeasure) bool { return m.Name == name })]
}
