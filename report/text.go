package report

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"github.com/olekukonko/tablewriter"
	"github.com/olekukonko/tablewriter/renderer"
	"github.com/olekukonko/tablewriter/tw"

	"github.com/memprof/memprof/analysis"
)

// Options say how a text report looks.
type Options struct {
	// Color allows terminal escape sequences for emphasis. The caller turns it off for a file, a
	// pipe, or where NO_COLOR is set; without it the report has no escape sequence at all.
	Color bool
	// Width is how many columns there are, at least 80; 0 is as many as are needed. A table that is
	// wider loses its frame, then columns that others imply, then the middle of names, and is divided
	// at last; no number is cut.
	Width int
}

// Text writes a report on each process, device by device.
// It fails only where w does.
func Text(w io.Writer, results []*analysis.Result, o Options) error {
	return writeText(w, o, reportSections(results)...)
}

// reportSections are the comparison of ranks, where there are several, and a heading and its
// sections for each device of each process.
func reportSections(results []*analysis.Result) []section {
	var sections []section
	if s, several := ranksSection(results); several {
		sections = append(sections, s)
	}
	for _, r := range results {
		var warning []cell
		if text := endNote(r); text != "" {
			warning = []cell{{text, warned}}
		}
		if len(r.Devices) == 0 {
			sections = append(sections,
				section{title: shorten(r.Process, 60), before: note(processLine(r)), after: warning, heading: true},
				section{before: note("no memory of any device was used")})
		}
		for i := range r.Devices {
			d := &r.Devices[i]
			sections = append(sections, section{title: deviceTitle(r, d), before: note(deviceLine(r, d)), after: warning, heading: true})
			sections = append(sections, deviceSections(d)...)
		}
	}
	return sections
}

// writeText writes sections for a terminal. It fails only where w does.
func writeText(w io.Writer, o Options, sections ...section) error {
	var out bytes.Buffer
	p := printer{&out, o}
	for _, s := range sections {
		p.section(s)
	}
	_, err := w.Write(out.Bytes())
	return err
}

// printer renders sections for a terminal.
type printer struct {
	w *bytes.Buffer
	Options
}

// recoveredNote is shown with a trace that was cut off.
const recoveredNote = "the trace ends before the process did: what follows holds up to its last event"

// endNote says where a trace ends that is not of the whole process; "" of one that is.
func endNote(r *analysis.Result) string {
	switch {
	case r.Live:
		return fmt.Sprintf("the recording is in progress: what follows holds up to event %s, at %s", formatCount(r.LastSeq), FormatDuration(r.Duration))
	case r.Recovered:
		return recoveredNote
	}
	return ""
}

// deviceTitle names a device of a process.
func deviceTitle(r *analysis.Result, d *analysis.DeviceResult) string {
	return fmt.Sprintf("%s · GPU %d", shorten(r.Process, 60), d.Device)
}

func processLine(r *analysis.Result) string {
	return fmt.Sprintf("%s · %s", FormatDuration(r.Duration), plural(r.Events, "event"))
}

func deviceLine(r *analysis.Result, d *analysis.DeviceResult) string {
	line := fmt.Sprintf("%s · %s · %s", processLine(r), plural(d.Allocs, "allocation"), plural(d.IterationCount(), "iteration"))
	if arenas := deviceArenas(r, d.Device); arenas > 0 {
		line += " · " + plural(arenas, "arena")
	}
	if len(d.OOMs) > 0 {
		line += " · " + plural(int64(len(d.OOMs)), "request") + " failed"
	}
	return line
}

func deviceArenas(r *analysis.Result, device int32) (n int64) {
	for _, a := range r.Arenas {
		if a.Device == device {
			n++
		}
	}
	return n
}

// section writes one section and a blank line. A heading has a rule below its lines, and then what
// warns of all that follows.
func (p printer) section(s section) {
	if s.title != "" {
		p.line(cell{s.title, strong})
	}
	for _, c := range s.before {
		p.line(c)
	}
	switch {
	case s.heading:
		p.rule(s)
	case len(s.columns) == 0:
	case p.fits(s):
		p.table(s)
	default:
		p.narrow(s)
	}
	for _, c := range s.after {
		p.line(c)
	}
	if len(s.after) > 0 || !s.heading {
		p.w.WriteByte('\n')
	}
}

// rule underlines a heading, as far as its widest line reaches.
func (p printer) rule(s section) {
	width := displayWidth(s.title)
	for _, c := range s.before {
		width = max(width, displayWidth(c.text))
	}
	if p.Width > 0 {
		width = min(width, max(p.Width, narrowest))
	}
	p.w.WriteString(p.paint(strings.Repeat("─", width), faint))
	p.w.WriteString("\n\n")
}

func (p printer) line(c cell) {
	for _, text := range p.wrapped(c.text) {
		p.w.WriteString(p.paint(text, c.tone))
		p.w.WriteByte('\n')
	}
}

// table renders the table of a section. The widths are what the cells need: cells are short by
// construction, and a table that wraps inside a cell cannot be read by eye or by grep.
func (p printer) table(s section) {
	aligns := make([]tw.Align, len(s.columns))
	names := make([]string, len(s.columns))
	for i, c := range s.columns {
		aligns[i] = tw.AlignLeft
		if c.number {
			aligns[i] = tw.AlignRight
		}
		names[i] = p.paint(c.name, strong)
	}
	cells := tw.CellConfig{
		Formatting: tw.CellFormatting{AutoFormat: tw.Off, AutoWrap: tw.WrapNone},
		Alignment:  tw.CellAlignment{PerColumn: aligns},
	}
	settings := tw.Settings{
		Lines:      tw.Lines{ShowTop: tw.On, ShowBottom: tw.On, ShowHeaderLine: tw.On, ShowFooterLine: tw.On},
		Separators: tw.Separators{BetweenRows: tw.Off, BetweenColumns: tw.On},
	}
	t := tablewriter.NewTable(p.w,
		tablewriter.WithConfig(tablewriter.Config{Header: cells, Row: cells, Footer: cells}),
		tablewriter.WithRenderer(renderer.NewBlueprint(tw.Rendition{
			Symbols:  tw.NewSymbols(tw.StyleRounded),
			Settings: settings,
		})),
		// Box-drawing characters have one column on terminals of every locale we draw for.
		tablewriter.WithEastAsian(tw.Off),
	)
	t.Header(names)
	for _, r := range s.rows {
		// Neither call can fail: rows are strings and the writer is a buffer.
		_ = t.Append(p.texts(r))
	}
	if s.total != nil {
		t.Footer(p.texts(s.total))
	}
	_ = t.Render()
}

func (p printer) texts(cells []cell) []string {
	out := make([]string, len(cells))
	for i, c := range cells {
		out[i] = p.paint(c.text, c.tone)
	}
	return out
}

// paint makes text safe to show and wraps it in the escape sequence of its tone. All text of a report
// comes by here.
func (p printer) paint(text string, t tone) string {
	text = clean(text)
	if !p.Color || text == "" || t == plain {
		return text
	}
	return "\x1b[" + map[tone]string{faint: "2", strong: "1", warned: "33", failed: "1;31"}[t] + "m" + text + "\x1b[0m"
}
