package report

import (
	"bytes"
	"io"
	"slices"
	"strings"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/report/kv"
	"github.com/memprof/memprof/report/layout"
	"github.com/memprof/memprof/report/page"
	"github.com/memprof/memprof/report/summary"
	"github.com/memprof/memprof/report/terms"
)

// Scope says which sections a report has. The zero Scope is the first screen: findings, and as many summary
// tables as fit in [ScreenLines] lines.
type Scope struct {
	All      bool     // every section
	Sections []string // these sections only; see [SectionNames]
	Summary  bool     // each recording in [summary.BriefLines] lines instead
}

// ScreenLines is the most lines that the first screen on a device has at [ScreenColumns] columns.
const (
	ScreenLines   = 60
	ScreenColumns = 100
)

// Markdown writes what [Text] does as GitHub-flavoured Markdown, for a pull request or the summary of a CI job. It fails only if w does.
func Markdown(w io.Writer, results []*analysis.Result, scope Scope) error {
	if scope.Summary {
		return layout.WriteMarkdownList(w, briefs(results, 0)...)
	}
	return layout.WriteMarkdown(w, reportSections(results, scope, 0)...)
}

// JSON writes the results as one indented JSON object, {"processes": [...], "ranks": {...}}. Bytes and
// counts are integers, times integers of nanoseconds ("_ns"), shares numbers from 0 to 1; what is not known
// or does not exist is null; lists are never null. Names of contexts are as recorded. The series over time
// and the spans of the address map, which plots show, are left out. It fails only if w does.
func JSON(w io.Writer, results []*analysis.Result) error {
	out := jsonReport{Processes: []jsonProcess{}, Ranks: newJSONRanks(results), KVRanks: kv.Ranks(results)}
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
	if scope.Summary {
		return layout.WriteScreen(w, o, briefs(results, o.Width)...)
	}
	return layout.WriteText(w, o, reportSections(results, scope, width)...)
}

// briefs are the summaries of the recordings that results come from. A line is cut to so many columns; 0 means any
// number.
func briefs(results []*analysis.Result, width int) []layout.Section {
	var sections []layout.Section
	for len(results) > 0 {
		n := 1
		for n < len(results) && results[0].Job != nil && results[n].Job != nil && results[n].Job.Path == results[0].Job.Path {
			n++
		}
		sections = append(sections, layout.Section{Before: summary.Brief(results[:n], allocatorLine, width)})
		results = results[n:]
	}
	return sections
}

// reportSections compare the ranks, if there are several devices, and have a heading and its sections for
// each device of each process. Findings are broken into lines for a terminal of so many columns; 0 means any
// number.
func reportSections(results []*analysis.Result, scope Scope, width int) []layout.Section {
	var sections []layout.Section
	if s, several := ranksSection(results); several {
		sections = append(sections, s)
	}
	if s, several := kv.RanksSection(results); several {
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
			sections = append(sections, scopedSections(r, d, scope, width, lines(heading))...)
		}
	}
	return sections
}

// headingOf says which device of a recording the sections below it are about, and where that comes from, for a terminal of
// so many columns; 0 means any number.
func headingOf(r *analysis.Result, d *analysis.DeviceResult, width int) layout.Section {
	return layout.Section{Title: terms.DeviceTitle(r, d), Before: summary.Folded(summary.Provenance(r, d, allocatorLine(r, d)), width), Heading: true}
}

// findingsOf are the findings on a device, broken into lines for a terminal of so many columns; 0 means any number.
func findingsOf(r *analysis.Result, d *analysis.DeviceResult, width int) layout.Section {
	return summary.Section(r, d, summary.Find(summary.Device{DeviceResult: d, Result: r}), width)
}

// firstSections are what a page has first: where the recording comes from, and the findings.
func firstSections(r *analysis.Result, d *analysis.DeviceResult) []layout.Section {
	sections := []layout.Section{headingOf(r, d, 0)}
	if !empty(d) {
		sections = append(sections, findingsOf(r, d, 0))
	}
	return sections
}

// scopedSections are the sections on a device that are wanted, below a heading of so many lines.
func scopedSections(r *analysis.Result, d *analysis.DeviceResult, scope Scope, width, headed int) []layout.Section {
	if len(scope.Sections) > 0 {
		return namedSections(d, func(name string) bool { return slices.Contains(scope.Sections, name) })
	}
	if empty(d) {
		return deviceSections(d)
	}
	findings := findingsOf(r, d, width)
	if scope.All {
		return append([]layout.Section{findings}, deviceSections(d)...)
	}
	return append([]layout.Section{findings}, summarySections(d, findings, width, ScreenLines-headed)...)
}

// summarySections are the first sections of subjects that fit in so many lines with the findings, those that
// matter most chosen first; then where the rest is. Notes are broken for a terminal of so many columns; 0 means any number.
func summarySections(d *analysis.DeviceResult, findings layout.Section, width, left int) []layout.Section {
	rest := layout.Section{Before: layout.Note("More: memprof report --all, or --section NAME (--section list names them)")}
	left -= lines(findings) + lines(rest)
	chosen := make([]*layout.Section, len(subjects))
	for order := 1; order <= len(subjects); order++ {
		at := slices.IndexFunc(subjects, func(s subject) bool { return s.first == order })
		if at < 0 {
			break
		}
		all := subjects[at].sections(d)
		if len(all) == 0 {
			continue
		}
		s := all[0]
		s.Before, s.After = summary.Folded(s.Before, width), summary.Folded(s.After, width)
		if n := lines(s); n <= left {
			chosen[at] = &s
			left -= n
		}
	}
	var sections []layout.Section
	for _, s := range chosen {
		if s != nil {
			sections = append(sections, *s)
		}
	}
	return append(sections, rest)
}

// lines returns how many lines a section has on a screen, where a longer one takes several.
func lines(s layout.Section) (n int) {
	var out bytes.Buffer
	_ = layout.WriteText(&out, layout.Options{Width: ScreenColumns}, s) // a buffer does not fail
	for line := range strings.Lines(out.String()) {
		n += max(1, (plain.Width(strings.TrimSuffix(line, "\n"))+ScreenColumns-1)/ScreenColumns)
	}
	return n
}

// HTML writes one page that loads nothing: it shows a recording at any stored instant. It fails only if w does.
func HTML(w io.Writer, p page.Page) error {
	if s, several := ranksSection(p.Results); several {
		p.Ranks = &s
	}
	p.Sections, p.Subjects, p.First = deviceSections, pageData, firstSections
	return page.Write(w, p)
}
