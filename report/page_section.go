package report

import "slices"

// pageSection is a section of the other reports, as it is there.
type pageSection struct {
	Title   string       `json:"title"`
	Before  []pageCell   `json:"before"`
	Columns []pageColumn `json:"columns"`
	Rows    [][]pageCell `json:"rows"`
	Total   []pageCell   `json:"total"`
	After   []pageCell   `json:"after"`
}

type pageColumn struct {
	Name   string `json:"name"`
	Number bool   `json:"number"`
}

// pageCell is a text, or a text and its tone.
type pageCell struct {
	Text string
	Tone string
}

func (c pageCell) MarshalJSON() ([]byte, error) {
	if c.Tone == "" {
		return mustJSON(c.Text), nil
	}
	return mustJSON([]string{c.Text, c.Tone}), nil
}

var toneNames = map[tone]string{faint: "faint", strong: "strong", warned: "warned", failed: "failed"}

func newPageCells(cells []cell) []pageCell {
	out := make([]pageCell, len(cells))
	for i, c := range cells {
		out[i] = pageCell{c.text, toneNames[c.tone]}
	}
	return out
}

func newPageSection(s section) pageSection {
	out := pageSection{
		Title: s.title, Before: newPageCells(s.before), Columns: []pageColumn{}, Rows: [][]pageCell{},
		Total: newPageCells(s.total), After: newPageCells(s.after),
	}
	for _, c := range s.columns {
		out.Columns = append(out.Columns, pageColumn{c.name, c.number})
	}
	for _, r := range s.rows {
		out.Rows = append(out.Rows, newPageCells(r))
	}
	return out
}

// shownAtPins marks sections that a page with pins shows for any instant.
func shownAtPins(sections ...section) []section {
	for i := range sections {
		sections[i].atPins = true
	}
	return sections
}

// shownWhole marks sections of which the page has the whole list.
func shownWhole(sections ...section) []section {
	for i := range sections {
		sections[i].listed = true
	}
	return sections
}

// texts are strings that are stored once.
type texts struct {
	list  []string
	index map[string]int64
}

func (t *texts) of(s string) int64 {
	if t.index == nil {
		t.index = map[string]int64{}
	}
	at, known := t.index[s]
	if !known {
		at = int64(len(t.list))
		t.index[s] = at
		t.list = append(t.list, s)
	}
	return at
}

// strings are all, never nil.
func (t *texts) strings() []string { return slices.Concat([]string{}, t.list) }
