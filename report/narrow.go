package report

import (
	"slices"
	"strings"
)

// narrowest is the least width that text is fitted into; a terminal with fewer columns wraps.
const narrowest = 80

// textLeft is how far names are shortened at most before a table is divided.
const textLeft = 16

// fits says whether a table with its frame is within the width that is asked for, if any.
func (p printer) fits(s section) bool {
	if p.Width <= 0 {
		return true
	}
	total := 1
	for _, w := range columnWidths(s) {
		total += w + 3
	}
	return total <= max(p.Width, narrowest)
}

// columnWidths are what the cells of each column need.
func columnWidths(s section) []int {
	widths := make([]int, len(s.columns))
	for i, c := range s.columns {
		widths[i] = displayWidth(c.name)
		for _, r := range s.rows {
			widths[i] = max(widths[i], displayWidth(r[i].text))
		}
		if s.total != nil {
			widths[i] = max(widths[i], displayWidth(s.total[i].text))
		}
	}
	return widths
}

// narrow renders a table that is too wide for its frame: without one, then without columns that are
// implied, then with shorter names, and at last as several tables, one below the other, each of which begins with the first column.
func (p printer) narrow(s section) {
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
		all = slices.DeleteFunc(all, func(i int) bool { return s.columns[i].implied })
	}
	for over := room(all) - width; over > 0; over = room(all) - width {
		widest := -1
		for _, i := range all {
			if !s.columns[i].number && widths[i] > textLeft && (widest < 0 || widths[i] > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			break
		}
		widths[widest] = max(textLeft, displayWidth(s.columns[widest].name), widths[widest]-over)
		if displayWidth(s.columns[widest].name) >= widths[widest] {
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
func (p printer) columns(s section, columns, widths []int) {
	line := func(cells []cell) {
		var out strings.Builder
		for k, i := range columns {
			text := cells[i].text
			if displayWidth(text) > widths[i] {
				text = shorten(text, widths[i])
			}
			pad := strings.Repeat(" ", max(0, widths[i]-displayWidth(text)))
			text = p.paint(text, cells[i].tone)
			switch {
			case s.columns[i].number:
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
	head := make([]cell, len(s.columns))
	rule := make([]cell, len(s.columns))
	for i, c := range s.columns {
		head[i] = cell{c.name, strong}
		rule[i] = cell{strings.Repeat("─", widths[i]), faint}
	}
	line(head)
	line(rule)
	for _, r := range s.rows {
		line(r)
	}
	if s.total != nil {
		line(rule)
		line(s.total)
	}
}

// wrapped breaks a line at blanks where it is wider than is asked for. What follows is indented as
// the line is, and by two more.
func (p printer) wrapped(text string) []string {
	width := max(p.Width, narrowest)
	if p.Width <= 0 || displayWidth(text) <= width {
		return []string{text}
	}
	indent := text[:len(text)-len(strings.TrimLeft(text, " "))] + "  "
	var lines []string
	current := text[:len(indent)-2]
	for i, word := range strings.Fields(text) {
		if i > 0 && displayWidth(current)+1+displayWidth(word) > width {
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
