package report

import (
	"slices"

	"github.com/memprof/memprof/analysis"
)

// tone says how a cell, or a note, is meant; Text colours it where colours are wanted.
type tone uint8

const (
	plain  tone = iota
	faint       // there to be complete
	strong      // the line the others add up to
	warned      // memory that could be had back
	failed      // the job was hurt
)

// cell is one field of a table. Its text is ready for one line of a terminal.
type cell struct {
	text string
	tone tone
}

// column is the head of a column; numbers stand at its right edge.
type column struct {
	name    string
	number  bool
	implied bool // by other columns: where there is no room for all, it is left out
}

func words(name string) column   { return column{name: name} }
func numbers(name string) column { return column{name: name, number: true} }

// section is one titled part of a report: notes, a table (when it has columns), more notes. It is
// what Text and Markdown render, each in its own way.
type section struct {
	title   string
	before  []cell // lines between title and table
	columns []column
	rows    [][]cell // each as long as columns
	total   []cell   // nil, or a last line set apart
	after   []cell   // lines below the table

	heading bool // of all sections up to the next heading: title and lines, no table

	atPins bool // a page shows the same for any instant that is pinned
	listed bool // a page has the whole list
}

// row makes plain cells.
func row(texts ...string) []cell {
	cells := make([]cell, len(texts))
	for i, text := range texts {
		cells[i].text = text
	}
	return cells
}

// toned sets the tone of whole rows.
func toned(t tone, cells []cell) []cell {
	for i := range cells {
		cells[i].tone = t
	}
	return cells
}

func note(text string) []cell { return row(text) }

// elide keeps the first head and the last tail rows of a table, and puts one line between them that
// says how many are left out: in the first column of words, which has room, or else in the first.
// One row is never elided: the line would take its place.
func (s *section) elide(head, tail int) {
	left := len(s.rows) - head - tail
	if left <= 1 {
		return
	}
	gap := make([]cell, len(s.columns))
	gap[max(slices.IndexFunc(s.columns, func(c column) bool { return !c.number }), 0)].text = "… " + formatCount(int64(left)) + " more"
	rows := make([][]cell, 0, head+1+tail)
	rows = append(rows, s.rows[:head]...)
	rows = append(rows, toned(faint, gap))
	s.rows = append(rows, s.rows[len(s.rows)-tail:]...)
}

// deviceSections is the report on one device, in reading order.
func deviceSections(d *analysis.DeviceResult) []section {
	if d.Allocs == 0 && d.MaxR == 0 {
		sections := []section{{title: "No memory was allocated on this device"}}
		if d.External.Calls > 0 {
			sections = append(sections, externalSection(d))
		}
		sections = append(sections, booksSections(d)...)
		sections = append(sections, recordedKVSections(d)...)
		return append(sections, oomSections(d)...)
	}
	sections := append(shownWhole(oomSections(d)...), oomStories(d)...)
	sections = append(sections, watchedSections(d)...)
	sections = append(sections, shownAtPins(splitSection(d))...)
	sections = append(sections, peaksSection(d))
	sections = append(sections, booksSections(d)...)
	sections = append(sections, shownAtPins(heldSections(d)...)...)
	sections = append(sections, iterationSections(d)...)
	sections = append(sections, phaseSections(d)...)
	sections = append(sections, sleepSections(d)...)
	sections = append(sections, graphSections(d)...)
	sections = append(sections, shownWhole(growthSection(d))...)
	holders := append(shownAtPins(holderSections(d)...), leakSection(d))
	if d.Sampled != nil {
		holders = without("provided", holders)
	}
	sections = append(append(sections, holders...), leakStacks(d)...)
	return append(append(sections, externalSection(d)), recordedKVSections(d)...)
}
