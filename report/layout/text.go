package layout

import (
	"bytes"
	"io"
	"strings"

	"github.com/olekukonko/tablewriter"
	"github.com/olekukonko/tablewriter/renderer"
	"github.com/olekukonko/tablewriter/tw"

	"github.com/memprof/memprof/analysis/plain"
)

// Options are the colours and the width of a text report.
type Options struct {
	// Color allows terminal escape sequences for emphasis. The caller turns it off for a file, a pipe, or
	// if NO_COLOR is set. Without it the report has no escape sequences.
	Color bool
	// Width is the number of columns of the terminal, at least 80; 0 means any number. A wider table loses
	// its frame, then implied columns, then the middle of names, and is divided at last. No number is cut.
	Width int
}

// WriteText writes sections for a terminal. It fails only if w does.
func WriteText(w io.Writer, o Options, sections ...Section) error {
	for _, s := range sections { // one at a time: all processes of a large job have a gigabyte of text
		var out bytes.Buffer
		printer{&out, o}.section(s)
		if _, err := w.Write(out.Bytes()); err != nil {
			return err
		}
	}
	return nil
}

// printer writes sections for a terminal.
type printer struct {
	w *bytes.Buffer
	Options
}

// section writes one section and a blank line. A heading has a rule below its first notes, and below the
// rule its warnings about all sections that follow.
func (p printer) section(s Section) {
	if s.Title != "" {
		p.line(Cell{Text: s.Title, Tone: Strong})
	}
	for _, c := range s.Before {
		p.line(c)
	}
	switch {
	case s.Heading:
		p.rule(s)
	case len(s.Columns) == 0:
	case p.fits(s) && !s.Open:
		p.table(s)
	default:
		p.narrow(s)
	}
	for _, c := range s.After {
		p.line(c)
	}
	if !s.Last && (len(s.After) > 0 || !s.Heading) {
		p.w.WriteByte('\n')
	}
}

// rule underlines a heading, as wide as its widest line.
func (p printer) rule(s Section) {
	width := plain.Width(s.Title)
	for _, c := range s.Before {
		width = max(width, plain.Width(c.Text))
	}
	if p.Width > 0 {
		width = min(width, max(p.Width, narrowest))
	}
	p.w.WriteString(p.paint(strings.Repeat("─", width), Faint))
	p.w.WriteString("\n\n")
}

func (p printer) line(c Cell) {
	for _, text := range p.wrapped(c.Text) {
		p.w.WriteString(p.paint(text, c.Tone))
		p.w.WriteByte('\n')
	}
}

// table writes a table with a frame. Columns are as wide as their cells: text that wraps inside a cell can
// neither be read nor searched with grep.
func (p printer) table(s Section) {
	aligns := make([]tw.Align, len(s.Columns))
	names := make([]string, len(s.Columns))
	for i, c := range s.Columns {
		aligns[i] = tw.AlignLeft
		if c.Number {
			aligns[i] = tw.AlignRight
		}
		names[i] = p.paint(c.Name, Strong)
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
	for _, r := range s.Rows {
		// Neither call can fail: rows are strings and the writer is a buffer.
		_ = t.Append(p.texts(r))
	}
	if s.Total != nil {
		t.Footer(p.texts(s.Total))
	}
	_ = t.Render()
}

func (p printer) texts(cells []Cell) []string {
	out := make([]string, len(cells))
	for i, c := range cells {
		out[i] = p.paint(c.Text, c.Tone)
	}
	return out
}

// paint makes text safe to show and adds the escape sequence of its tone. All text of a report passes
// through it.
func (p printer) paint(text string, t Tone) string {
	text = plain.Text(text)
	if !p.Color || text == "" || t == Plain {
		return text
	}
	return "\x1b[" + map[Tone]string{Faint: "2", Strong: "1", Warned: "33", Failed: "1;31"}[t] + "m" + text + "\x1b[0m"
}
