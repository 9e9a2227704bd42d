package layout

import (
	"bytes"
	"io"
	"slices"
	"strings"

	"github.com/olekukonko/tablewriter"
	"github.com/olekukonko/tablewriter/renderer"
	"github.com/olekukonko/tablewriter/tw"

	"github.com/memprof/memprof/report/plain"
)

// fits says whether a table with its frame is within the width that is asked for, if any.
func (p printer) fits(s Section) bool {
	if p.Width <= 0 {
		return true
	}
	total := 1
	for _, w := range columnWidths(s) {
		total += w + 3
	}
	return total <= max(p.Width, narrowest)
}

// narrow renders a table that is too wide for its frame: without one, then without columns that are
// implied, then with shorter names, and at last as several tables, one below the other, each of which begins with the first column.
func (p printer) narrow(s Section) {
	width := max(p.Width, narrowest)
	widths := columnWidths(s)
	room := func(columns []int) int {
		total := -2
		for _, i := range columns {
			total += widths[i] + 2
		}
		return total
	}
	all := make([]int, len(widths))
	for i := range all {
		all[i] = i
	}
	if room(all) > width {
		all = slices.DeleteFunc(all, func(i int) bool { return s.Columns[i].Implied })
	}
	for over := room(all) - width; over > 0; over = room(all) - width {
		widest := -1
		for _, i := range all {
			if !s.Columns[i].Number && widths[i] > textLeft && (widest < 0 || widths[i] > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			break
		}
		widths[widest] = max(textLeft, plain.Width(s.Columns[widest].Name), widths[widest]-over)
		if plain.Width(s.Columns[widest].Name) >= widths[widest] {
			break
		}
	}
	for rest := all[1:]; len(rest) > 0; {
		columns := []int{0}
		for len(rest) > 0 && (len(columns) == 1 || room(append(slices.Clone(columns), rest[0])) <= width) {
			columns, rest = append(columns, rest[0]), rest[1:]
		}
		p.columns(s, columns, widths)
		if len(rest) > 0 {
			p.w.WriteByte('\n')
		}
	}
}

// columns writes some columns of a table, each as wide as it is told.
func (p printer) columns(s Section, columns, widths []int) {
	line := func(cells []Cell) {
		var out strings.Builder
		for k, i := range columns {
			text := cells[i].Text
			if plain.Width(text) > widths[i] {
				text = plain.Shorten(text, widths[i])
			}
			pad := strings.Repeat(" ", max(0, widths[i]-plain.Width(text)))
			text = p.paint(text, cells[i].Tone)
			switch {
			case s.Columns[i].Number:
				text = pad + text
			case k < len(columns)-1:
				text += pad
			}
			if k > 0 {
				out.WriteString("  ")
			}
			out.WriteString(text)
		}
		p.w.WriteString(strings.TrimRight(out.String(), " ") + "\n")
	}
	head := make([]Cell, len(s.Columns))
	rule := make([]Cell, len(s.Columns))
	for i, c := range s.Columns {
		head[i] = Cell{c.Name, Strong}
		rule[i] = Cell{strings.Repeat("─", widths[i]), Faint}
	}
	line(head)
	line(rule)
	for _, r := range s.Rows {
		line(r)
	}
	if s.Total != nil {
		line(rule)
		line(s.Total)
	}
}

// wrapped breaks a line at blanks where it is wider than is asked for. What follows is indented as
// the line is, and by two more.
func (p printer) wrapped(text string) []string {
	width := max(p.Width, narrowest)
	if p.Width <= 0 || plain.Width(text) <= width {
		return []string{text}
	}
	indent := text[:len(text)-len(strings.TrimLeft(text, " "))] + "  "
	var lines []string
	current := text[:len(indent)-2]
	for i, word := range strings.Fields(text) {
		if i > 0 && plain.Width(current)+1+plain.Width(word) > width {
			lines = append(lines, current)
			current = indent + word
			continue
		}
		if i > 0 {
			current += " "
		}
		current += word
	}
	return append(lines, current)
}

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

// WriteText writes sections for a terminal. It fails only where w does.
func WriteText(w io.Writer, o Options, sections ...Section) error {
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

// section writes one section and a blank line. A heading has a rule below its lines, and then what
// warns of all that follows.
func (p printer) section(s Section) {
	if s.Title != "" {
		p.line(Cell{s.Title, Strong})
	}
	for _, c := range s.Before {
		p.line(c)
	}
	switch {
	case s.Heading:
		p.rule(s)
	case len(s.Columns) == 0:
	case p.fits(s):
		p.table(s)
	default:
		p.narrow(s)
	}
	for _, c := range s.After {
		p.line(c)
	}
	if len(s.After) > 0 || !s.Heading {
		p.w.WriteByte('\n')
	}
}

// rule underlines a heading, as far as its widest line reaches.
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

// table renders the table of a section. The widths are what the cells need: cells are short by
// construction, and a table that wraps inside a cell cannot be read by eye or by grep.
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

// paint makes text safe to show and wraps it in the escape sequence of its tone. All text of a report
// comes by here.
func (p printer) paint(text string, t Tone) string {
	text = plain.Text(text)
	if !p.Color || text == "" || t == Plain {
		return text
	}
	return "\x1b[" + map[Tone]string{Faint: "2", Strong: "1", Warned: "33", Failed: "1;31"}[t] + "m" + text + "\x1b[0m"
}
