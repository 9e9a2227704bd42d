package layout

import (
	"slices"

	"github.com/memprof/memprof/report/units"
)

// Tone says how a cell, or a note, is meant; Text colours it where colours are wanted.
type Tone uint8

const (
	Plain  Tone = iota
	Faint       // there to be complete
	Strong      // the line the others add up to
	Warned      // memory that could be had back
	Failed      // the job was hurt
)

// Cell is one field of a table. Its text is ready for one line of a terminal.
type Cell struct {
	Text string
	Tone Tone
}

// Column is the head of a column; numbers stand at its right edge.
type Column struct {
	Name    string
	Number  bool
	Implied bool // by other columns: where there is no room for all, it is left out
}

func Words(name string) Column   { return Column{Name: name} }
func Numbers(name string) Column { return Column{Name: name, Number: true} }

// Section is one titled part of a report: notes, a table (when it has columns), more notes. It is
// what Text and Markdown render, each in its own way.
type Section struct {
	Title   string
	Before  []Cell // lines between title and table
	Columns []Column
	Rows    [][]Cell // each as long as columns
	Total   []Cell   // nil, or a last line set apart
	After   []Cell   // lines below the table

	Heading bool // of all sections up to the next heading: title and lines, no table

	AtPins bool // a page shows the same for any instant that is pinned
	Listed bool // a page has the whole list
}

// Row makes plain cells.
func Row(texts ...string) []Cell {
	cells := make([]Cell, len(texts))
	for i, text := range texts {
		cells[i].Text = text
	}
	return cells
}

// Toned sets the tone of whole rows.
func Toned(t Tone, cells []Cell) []Cell {
	for i := range cells {
		cells[i].Tone = t
	}
	return cells
}

func Note(text string) []Cell { return Row(text) }

// Elide keeps the first head and the last tail rows of a table, and puts one line between them that
// says how many are left out: in the first column of words, which has room, or else in the first.
// One row is never elided: the line would take its place.
func (s *Section) Elide(head, tail int) {
	left := len(s.Rows) - head - tail
	if left <= 1 {
		return
	}
	gap := make([]Cell, len(s.Columns))
	gap[max(slices.IndexFunc(s.Columns, func(c Column) bool { return !c.Number }), 0)].Text = "… " + units.FormatCount(int64(left)) + " more"
	rows := make([][]Cell, 0, head+1+tail)
	rows = append(rows, s.Rows[:head]...)
	rows = append(rows, Toned(Faint, gap))
	s.Rows = append(rows, s.Rows[len(s.Rows)-tail:]...)
}

// Without takes the column of a name out of sections that have one.
func Without(name string, sections []Section) []Section {
	for i := range sections {
		s := &sections[i]
		for at, c := range s.Columns {
			if c.Name != name {
				continue
			}
			s.Columns = append(s.Columns[:at:at], s.Columns[at+1:]...)
			for k, r := range s.Rows {
				s.Rows[k] = append(r[:at:at], r[at+1:]...)
			}
			break
		}
	}
	return sections
}

// ShownAtPins marks sections that a page with pins shows for any instant.
func ShownAtPins(sections ...Section) []Section {
	for i := range sections {
		sections[i].AtPins = true
	}
	return sections
}
