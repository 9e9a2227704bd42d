package report

import (
	"io"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/report/layout"
	"github.com/memprof/memprof/report/page"
	"github.com/memprof/memprof/report/plain"
	"github.com/memprof/memprof/report/terms"
)

// Markdown writes what [Text] does as GitHub-flavoured Markdown, for a pull request or the summary of a CI job. It fails only if w does.
func Markdown(w io.Writer, results []*analysis.Result) error {
	return layout.WriteMarkdown(w, reportSections(results)...)
}

// JSON writes the results as one indented JSON object, {"processes": [...], "ranks": {...}}. Bytes and
// counts are integers, times integers of nanoseconds ("_ns"), shares numbers from 0 to 1; what is not known
// or does not exist is null; lists are never null. Names of contexts are as recorded. The series over time
// and the spans of the address map, which plots show, are left out. It fails only if w does.
func JSON(w io.Writer, results []*analysis.Result) error {
	out := jsonReport{Processes: []jsonProcess{}, Ranks: newJSONRanks(results)}
	for _, r := range results {
		out.Processes = append(out.Processes, newJSONProcess(r))
	}
	return plain.WriteJSON(w, out)
}

// Text writes a report on each process, device by device.
// It fails only if w does.
func Text(w io.Writer, results []*analysis.Result, o layout.Options) error {
	return layout.WriteText(w, o, reportSections(results)...)
}

// reportSections compare the ranks, if there are several devices, and have a heading and its sections for
// each device of each process.
func reportSections(results []*analysis.Result) []layout.Section {
	var sections []layout.Section
	if s, several := ranksSection(results); several {
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
			sections = append(sections, layout.Section{Title: terms.DeviceTitle(r, d), Before: deviceNotes(r, d), After: warning, Heading: true})
			sections = append(sections, deviceSections(d)...)
		}
	}
	return sections
}

// HTML writes one page that loads nothing: it shows a recording at any stored instant. It fails only if w does.
func HTML(w io.Writer, p page.Page) error {
	if s, several := ranksSection(p.Results); several {
		p.Ranks = &s
	}
	p.Sections, p.Subjects = deviceSections, pageData
	return page.Write(w, p)
}

// deviceNotes are the lines below the heading of a device.
func deviceNotes(r *analysis.Result, d *analysis.DeviceResult) []layout.Cell {
	notes := layout.Note(terms.DeviceLine(r, d))
	if line := allocatorLine(r, d); line != "" {
		notes = append(notes, layout.Note(line)...)
	}
	return notes
}
