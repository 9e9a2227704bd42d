// Package layout prints sections of a report: titles, notes and tables, as text for a terminal of any width
// and as Markdown.
package layout

import (
	"slices"

	"github.com/memprof/memprof/analysis/plain"
)

// Tone is the emphasis of a cell or a note. Text shows it as a colour, Markdown partly in bold.
type Tone uint8

const (
	Plain  Tone = iota
	Faint       // of little interest, such as zeros
	Strong      // sums and headings
	Warned      // waste that settings can avoid, or a doubt about the numbers
	Failed      // the job lost something
)

// Cell is one field of a table, or one note: a single line.
type Cell struct {
	Text string
	Tone Tone
	Link string // the id of the page's section with the evidence, as "leaks" or "allocations/weights", which shows that category alone; "" without
}

// Column is a column of a table. Numbers are aligned to the right.
type Column struct {
	Name    string
	Number  bool
	Implied bool // follows from other columns: left out first if the table is too wide
}

// Words is a column of text.
func Words(name string) Column { return Column{Name: name} }

// Numbers is a column of numbers.
func Numbers(name string) Column { return Column{Name: name, Number: true} }

// Section is one titled part of a report: notes, a table if it has columns, more notes.
type Section struct {
	Title   string
	Before  []Cell // lines between title and table
	Columns []Column
	Rows    [][]Cell // each as long as columns
	Total   []Cell   // nil, or a last row below a rule
	After   []Cell   // lines below the table

	Open    bool // the table has no frame, and no rule below its names
	Heading bool // heads the sections up to the next heading: a title and notes, no table
	Last    bool // nothing follows: text has no blank line below it

	AtPins bool // a page shows this for the pinned instant in a way of its own
	Listed bool // a page shows the whole list in a way of its own
}

// Row returns plain cells with texts.
func Row(texts ...string) []Cell {
	cells := make([]Cell, len(texts))
	for i, text := range texts {
		cells[i].Text = text
	}
	return cells
}

// Toned sets the tone of cells and returns them.
func Toned(t Tone, cells []Cell) []Cell {
	for i := range cells {
		cells[i].Tone = t
	}
	return cells
}

// Note returns one line for the notes of a section.
func Note(text string) []Cell { return Row(text) }

// Elide keeps the first head and the last tail rows of a table. A row between them says how many are left
// out, in the first column of words, or else in the first column. A single row is never left out, because
// that row would take its place.
func (s *Section) Elide(head, tail int) {
	left := len(s.Rows) - head - tail
	if left <= 1 {
		return
	}
	gap := make([]Cell, len(s.Columns))
	gap[max(slices.IndexFunc(s.Columns, func(c Column) bool { return !c.Number }), 0)].Text = "… " + plain.FormatCount(int64(left)) + " more"
	rows := make([][]Cell, 0, head+1+tail)
	rows = append(rows, s.Rows[:head]...)
	rows = append(rows, Toned(Faint, gap))
	s.Rows = append(rows, s.Rows[len(s.Rows)-tail:]...)
}

// Known removes the column with a name from sections in which no cell of it is known, and returns them.
func Known(name string, sections []Section) []Section {
	for i := range sections {
		s := &sections[i]
		at := slices.IndexFunc(s.Columns, func(c Column) bool { return c.Name == name })
		unknown := func(r []Cell) bool { return len(r) > at && r[at].Text == plain.Absent }
		if at < 0 || !slices.ContainsFunc(s.Rows, unknown) || slices.ContainsFunc(s.Rows, func(r []Cell) bool { return !unknown(r) && r[at].Text != "" }) {
			continue
		}
		s.Columns = append(s.Columns[:at:at], s.Columns[at+1:]...)
		for k, r := range s.Rows {
			s.Rows[k] = append(r[:at:at], r[at+1:]...)
		}
		if len(s.Total) > at {
			s.Total = append(s.Total[:at:at], s.Total[at+1:]...)
		}
	}
	return sections
}

// ShownAtPins sets AtPins of sections and returns them.
func ShownAtPins(sections ...Section) []Section {
	for i := range sections {
		sections[i].AtPins = true
	}
	return sections
}
