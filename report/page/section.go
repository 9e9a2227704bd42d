package page

import (
	"slices"

	"github.com/memprof/memprof/report/layout"
)

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

var toneNames = map[layout.Tone]string{layout.Faint: "faint", layout.Strong: "strong", layout.Warned: "warned", layout.Failed: "failed"}

func newPageCells(cells []layout.Cell) []pageCell {
	out := make([]pageCell, len(cells))
	for i, c := range cells {
		out[i] = pageCell{c.Text, toneNames[c.Tone]}
	}
	return out
}

func newPageSection(s layout.Section) pageSection {
	out := pageSection{
		Title: s.Title, Before: newPageCells(s.Before), Columns: []pageColumn{}, Rows: [][]pageCell{},
		Total: newPageCells(s.Total), After: newPageCells(s.After),
	}
	for _, c := range s.Columns {
		out.Columns = append(out.Columns, pageColumn{c.Name, c.Number})
	}
	for _, r := range s.Rows {
		out.Rows = append(out.Rows, newPageCells(r))
	}
	return out
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
