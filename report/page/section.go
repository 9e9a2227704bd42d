package page

import (
	"slices"

	"github.com/memprof/memprof/report/layout"
)

// sectionData is a section of the report.
type sectionData struct {
	Title   string       `json:"title"`
	Before  []cellData   `json:"before"`
	Columns []columnData `json:"columns"`
	Rows    [][]cellData `json:"rows"`
	Total   []cellData   `json:"total"`
	After   []cellData   `json:"after"`
}

type columnData struct {
	Name   string `json:"name"`
	Number bool   `json:"number"`
}

// cellData is in JSON a text, or a list of a text, its tone, and its link if it has one.
type cellData struct {
	Text string
	Tone string
	Link string
}

func (c cellData) MarshalJSON() ([]byte, error) {
	switch {
	case c.Link != "":
		return mustJSON([]string{c.Text, c.Tone, c.Link}), nil
	case c.Tone != "":
		return mustJSON([]string{c.Text, c.Tone}), nil
	}
	return mustJSON(c.Text), nil
}

var toneNames = map[layout.Tone]string{layout.Faint: "faint", layout.Strong: "strong", layout.Warned: "warned", layout.Failed: "failed"}

func newCells(cells []layout.Cell) []cellData {
	out := make([]cellData, len(cells))
	for i, c := range cells {
		out[i] = cellData{c.Text, toneNames[c.Tone], c.Link}
	}
	return out
}

func newSection(s layout.Section) sectionData {
	out := sectionData{
		Title: s.Title, Before: newCells(s.Before), Columns: []columnData{}, Rows: [][]cellData{},
		Total: newCells(s.Total), After: newCells(s.After),
	}
	for _, c := range s.Columns {
		out.Columns = append(out.Columns, columnData{c.Name, c.Number})
	}
	for _, r := range s.Rows {
		out.Rows = append(out.Rows, newCells(r))
	}
	return out
}

// texts stores equal strings once.
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

// strings returns all strings, never nil.
func (t *texts) strings() []string { return slices.Concat([]string{}, t.list) }
