package report

import (
	"io"
	"slices"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/report/layout"
	"github.com/memprof/memprof/report/page"
	"github.com/memprof/memprof/report/summary"
	"github.com/memprof/memprof/report/terms"
)

// Scope says which sections a report has. The zero Scope is the first screen, of [ScreenLines] lines at most.
type Scope struct {
	All      bool     // every section
	Sections []string // these sections only; see [SectionNames]
	// Unrelated: the results are of jobs that have nothing to do with each other, so that none is a rank. Without All and Sections a
	// table has a row for each recording.
	Unrelated bool
}

// ScreenLines is the most lines that the first screen on a device has at [ScreenColumns] columns.
const (
	ScreenLines   = 45
	ScreenColumns = 100
)

// Markdown writes what [Text] does as GitHub-flavoured Markdown, for a pull request or the summary of a CI job. It fails only if w does.
func Markdown(w io.Writer, results []*analysis.Result, scope Scope) error {
	return layout.WriteMarkdown(w, reportSections(results, scope, 0)...)
}

// JSON writes the results as one indented JSON object, {"processes": [...], "ranks": {...}}. Bytes and
// counts are integers, times integers of nanoseconds ("_ns"), shares numbers from 0 to 1; what is not known
// or does not exist is null; lists are never null. Names of contexts are as recorded. The series over time
// and the spans of the address map, which plots show, are left out. It fails only if w does.
func JSON(w io.Writer, results []*analysis.Result, scope Scope) error {
	out := jsonReport{Processes: []jsonProcess{}}
	if !scope.Unrelated {
		out.Ranks = newJSONRanks(results)
	}
	for _, r := range results {
		out.Processes = append(out.Processes, newJSONProcess(r))
	}
	return plain.WriteJSON(w, out)
}

// Text writes a report on each process, device by device.
// It fails only if w does.
func Text(w io.Writer, results []*analysis.Result, scope Scope, o layout.Options) error {
	width := o.Width
	if width <= 0 {
		width = ScreenColumns
	}
	return layout.WriteText(w, o, reportSections(results, scope, width)...)
}

// reportSections compare the ranks, if there are several devices, and have a heading and its sections for
// each device of each process. Findings are broken into lines for a terminal of so many columns; 0 means any
// number.
func reportSections(results []*analysis.Result, scope Scope, width int) []layout.Section {
	var sections []layout.Section
	if scope.Unrelated {
		sections = append(sections, recordingsSection(results))
		if !scope.All && len(scope.Sections) == 0 {
			return sections
		}
	} else if s, several := ranksSection(results); several {
		sections = append(sections, s)
	}
	for _, r := range results {
		var warning []layout.Cell
		if text := terms.EndNote(r); text != "" {
			warning = []layout.Cell{{Text: text, Tone: layout.Warned}}
		}
		if len(r.Devices) == 0 {
			sections = append(sections,
				layout.Section{Title: plain.Shorten(r.Process, 60), Before: layout.Note(terms.ProcessLine(r)), After: warning, Heading: true},
				layout.Section{Before: layout.Note("no memory of any device was used")})
		}
		for i := range r.Devices {
			d := &r.Devices[i]
			heading := headingOf(r, d, width)
			heading.After = warning
			sections = append(sections, heading)
			sections = append(sections, scopedSections(r, d, scope, width)...)
		}
	}
	return sections
}

// headingOf says which device of a recording the sections below it are about, and where that comes from, for a terminal of
// so many columns; 0 means any number.
func headingOf(r *analysis.Result, d *analysis.DeviceResult, width int) layout.Section {
	return layout.Section{Title: terms.DeviceTitle(r, d), Before: summary.Folded(summary.Provenance(r, d, allocatorLine(r, d)), width), Heading: true}
}

// screenOf are the sections of the first screen on a device, for a terminal of so many columns; 0 means any number.
func screenOf(r *analysis.Result, d *analysis.DeviceResult, width int) []layout.Section {
	return summary.Of(r, d).Sections(width)
}

// firstSections are what a page has first: where the recording comes from, and the first screen.
func firstSections(r *analysis.Result, d *analysis.DeviceResult) []layout.Section {
	sections := []layout.Section{headingOf(r, d, 0)}
	if !empty(d) && d.Held != nil { // else the recording is still read
		sections = append(sections, screenOf(r, d, 0)...)
	}
	return sections
}

// scopedSections are the sections on a device that are wanted.
func scopedSections(r *analysis.Result, d *analysis.DeviceResult, scope Scope, width int) []layout.Section {
	switch {
	case len(scope.Sections) > 0:
		wanted := func(name string) bool { return slices.Contains(scope.Sections, name) }
		sections := namedSections(d, wanted)
		if wanted(findings) && !empty(d) {
			sections = slices.Insert(sections, 0, summary.Of(r, d).FindingSection(width))
		}
		return sections
	case empty(d):
		return deviceSections(d)
	case scope.All:
		return append(screenOf(r, d, width), deviceSections(d)...)
	}
	return screenOf(r, d, width)
}

// HTML writes one page that loads nothing: it shows a recording at any stored instant. It fails only if w does.
func HTML(w io.Writer, p page.Page) error {
	if s, several := ranksSection(p.Results); several {
		p.Ranks = &s
	}
	p.Sections, p.Subjects, p.First, p.Title = deviceSections, pageData, firstSections, p.Path
	if r := p.Results; len(r) > 0 && r[0].Job != nil && r[0].Job.Path == p.Path { // of one recording
		p.Title = summary.Title(r[0].Job, ScreenColumns)
	}
	return page.Write(w, p)
}
