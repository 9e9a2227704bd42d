package layout

import (
	"bytes"
	"io"
	"strings"

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
	for i := range sections { // one at a time: all processes of a large job have a gigabyte of text
		if _, err := w.Write(textOf(o, sections[i:i+1])); err != nil {
			return err
		}
	}
	return nil
}

// WriteScreen is WriteText without the blank line at the end, for what has to fit into few lines.
func WriteScreen(w io.Writer, o Options, sections ...Section) error {
	text := textOf(o, sections)
	if bytes.HasSuffix(text, []byte("\n\n")) {
		text = text[:len(text)-1]
	}
	_, err := w.Write(text)
	return err
}

func textOf(o Options, sections []Section) []byte {
	var out bytes.Buffer
	p := printer{&out, o}
	for _, s := range sections {
		p.section(s)
	}
	return out.Bytes()
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
		p.line(Cell{s.Title, Strong})
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
	if len(s.After) > 0 || !s.Heading {
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
	widths := columnWidths(s)
	rule := func(left, middle, right string) {
		for i, width := range widths {
			if i > 0 {
				left = middle
			}
			p.w.WriteString(left + strings.Repeat("─", width+2))
		}
		p.w.WriteString(right + "\n")
	}
	line := func(cells []Cell) {
		for i, c := range cells {
			p.w.WriteString("│ " + p.padded(c, widths[i], s.Columns[i].Number) + " ")
		}
		p.w.WriteString("│\n")
	}
	head := make([]Cell, len(s.Columns))
	for i, c := range s.Columns {
		head[i] = Cell{c.Name, Strong}
	}
	rule("╭", "┬", "╮")
	line(head)
	if len(s.Rows) > 0 {
		rule("├", "┼", "┤")
	}
	for _, r := range s.Rows {
		line(r)
	}
	if s.Total != nil {
		rule("├", "┼", "┤")
		line(s.Total)
	}
	rule("╰", "┴", "╯")
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
