package summary

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/report/layout"
	"github.com/memprof/memprof/trace/dataset"
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
	if diff := cmp.Diff(texts(lines), texts(Folded(lines, 0))); diff != "" {
		t.Errorf("of any width (-want +got):\n%s", diff)
	}
	want := []string{"short | line", "one", "two three", "four", "a field of", "many words", "end"}
	if diff := cmp.Diff(want, texts(Folded(lines, 12))); diff != "" {
		t.Errorf("of 12 columns (-want +got):\n%s", diff)
	}
}

// TestNext: commands that say more are whole, whatever the recording is called, and only about what was found.
func TestNext(t *testing.T) {
	path := "/scratch/" + strings.Repeat("long/", 30) + "my run"
	d := sound()
	d.Result.Job = &analysis.Job{Path: path}
	found := []Finding{{Rule: "leak", Severity: Grows}, {Rule: "failed-request", Severity: Lost}}
	quoted := plain.ShellQuote(path)
	want := []string{"Next: memprof report --section failures " + quoted, "      memprof report --section leaks " + quoted, "      memprof tune " + quoted}
	if diff := cmp.Diff(want, texts(next(d.Result, d.DeviceResult, found))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	d.Chunks = nil
	if got := next(d.Result, d.DeviceResult, nil); got != nil {
		t.Errorf("of PyTorch's own allocator, without findings: %q, want nothing", texts(got))
	}
}

// A snapshot whose history was cut off is exact from the first event that it has, after those that restate what was there.
func TestImportNotes(t *testing.T) {
	tests := []struct {
		how  dataset.Imported
		want []string
	}{
		{dataset.Imported{Format: "torch-snapshot"}, []string{"Imported from torch-snapshot: exact from its first event on"}},
		{dataset.Imported{Format: "torch-snapshot", Opening: 129, Exact: 129, Blocks: 7, Reserved: 84 << 20}, []string{
			"Imported from torch-snapshot: exact from event 129 on", "Before event 129: 84 MiB reserved, with 7 blocks; earlier peaks are unknown"}},
		{dataset.Imported{Format: "torch-snapshot", Opening: 9, Exact: 40, ExactNS: 2e9}, []string{
			"Imported from torch-snapshot: exact from event 40 on, after 2.00 s; before, a block may be up to 1 MiB larger"}},
	}
	for _, test := range tests {
		if diff := cmp.Diff(test.want, texts(importNotes(&test.how))); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", test.how, diff)
		}
	}
}
