package layout

import (
	"math"
	"slices"
	"strings"

	"github.com/memprof/memprof/analysis/plain"
)

// narrowest is the least width that text is fitted to. Narrower terminals wrap lines.
const narrowest = 80

// textLeft is the least width of names before a table is divided.
const textLeft = 16

// fits reports whether a table with its frame fits the width of the terminal.
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

// narrow writes a table that does not fit with its frame: without the frame, then without implied columns,
// then with shorter names, and at last as several tables, one below the other, which all begin with the
// first column.
func (p printer) narrow(s Section) {
	width := max(p.Width, narrowest)
	if p.Width <= 0 {
		width = math.MaxInt
	}
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
	for room(all) > width {
		at := slices.IndexFunc(all, func(i int) bool { return s.Columns[i].Implied })
		if at < 0 {
			break
		}
		all = slices.Delete(all, at, at+1)
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

// padded returns a cell in so many columns, shortened if it is longer.
func (p printer) padded(c Cell, width int, number bool) string {
	text := plain.Shorten(c.Text, width)
	pad := strings.Repeat(" ", max(0, width-plain.Width(text)))
	if text = p.paint(text, c.Tone); number {
		return pad + text
	}
	return text + pad
}

// columns writes some columns of a table with given widths.
func (p printer) columns(s Section, columns, widths []int) {
	line := func(cells []Cell) {
		var out strings.Builder
		for k, i := range columns {
			if k > 0 {
				out.WriteString("  ")
			}
			out.WriteString(p.padded(cells[i], widths[i], s.Columns[i].Number))
		}
		p.w.WriteString(strings.TrimRight(out.String(), " ") + "\n")
	}
	head := make([]Cell, len(s.Columns))
	rule := make([]Cell, len(s.Columns))
	for i, c := range s.Columns {
		head[i] = Cell{Text: c.Name, Tone: Strong}
		rule[i] = Cell{Text: strings.Repeat("─", widths[i]), Tone: Faint}
	}
	line(head)
	if !s.Open {
		line(rule)
	}
	for _, r := range s.Rows {
		line(r)
	}
	if s.Total != nil {
		line(rule)
		line(s.Total)
	}
}

// wrapped breaks a line that is wider than the terminal at spaces. Continued lines are indented like the
// first, and by two more.
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

// columnWidths are the widths of the widest cells.
func columnWidths(s Section) []int {
	widths := make([]int, len(s.Columns))
	for i, c := range s.Columns {
		widths[i] = plain.Width(plain.Text(c.Name))
		for _, r := range s.Rows {
			widths[i] = max(widths[i], plain.Width(plain.Text(r[i].Text)))
		}
		if s.Total != nil {
			widths[i] = max(widths[i], plain.Width(plain.Text(s.Total[i].Text)))
		}
	}
	return widths
}
