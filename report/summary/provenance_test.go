package summary

import (
	"testing"

	"github.com/memprof/memprof/report/layout"
	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// texts are the texts of cells.
func texts(cells []layout.Cell) (out []string) {
	for _, c := range cells {
		out = append(out, c.Text)
	}
	return out
}

// TestFolded: a line that is too wide is broken between its fields, and a field between its words.
func TestFolded(t *testing.T) {
	lines := layout.Row("short | line", "one | two three | four", "a field of many words | end")
	assert.Diff(t, texts(lines), texts(Folded(lines, 0)), "of any width")
	want := []string{"short | line", "one", "two three", "four", "a field of", "many words", "end"}
	assert.Diff(t, want, texts(Folded(lines, 12)), "of 12 columns")
}

// A snapshot whose history was cut off is exact from the first event that it has, after those that restate what was there.
func TestImportNotes(t *testing.T) {
	tests := []struct {
		how  dataset.Imported
		want []string
	}{
		{dataset.Imported{Format: "torch-snapshot"}, []string{"Imported from torch-snapshot: exact from its first event on"}},
		{dataset.Imported{Format: "torch-snapshot", Opening: 129, Exact: 129, Blocks: 7, Reserved: 84 << 20}, []string{
			"Imported from torch-snapshot: exact from its first event on", "The history begins with 84 MiB reserved, in it 7 blocks; earlier peaks are unknown"}},
		{dataset.Imported{Format: "torch-snapshot", Opening: 9, Exact: 40, ExactNS: 2e9}, []string{
			"Imported from torch-snapshot: exact from event 40 on, after 2.00 s; before, a block may be up to 1 MiB larger"}},
	}
	for _, test := range tests {
		assert.Diff(t, test.want, texts(importNotes(&test.how)), "%+v", test.how)
	}
}
