package report

import (
	"bytes"
	"strings"
	"testing"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/report/layout"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// TestFirstScreen: the default report on a device fits one screen, begins with the categories, and says where the rest is.
func TestFirstScreen(t *testing.T) {
	for _, f := range fixtures() {
		for _, r := range f.results {
			for i := range r.Devices {
				one := *r
				one.Devices = r.Devices[i : i+1]
				var out bytes.Buffer
				assert.NoError(t, Text(&out, []*analysis.Result{&one}, Scope{}, layout.Options{Width: ScreenColumns}))
				text := out.String()
				for line := range strings.Lines(text) {
					if n := plain.Width(strings.TrimSuffix(line, "\n")); n > ScreenColumns && !strings.Contains(line, "memprof ") {
						t.Errorf("%s: a line of %d columns, want at most %d: %s", f.name, n, ScreenColumns, line)
					}
				}
				if n := strings.Count(text, "\n"); n > ScreenLines {
					t.Errorf("%s: %d lines, want at most %d:\n%s", f.name, n, ScreenLines, text)
				}
				if !empty(&r.Devices[i]) && (!strings.Contains(text, "\nWhere the memory went at the peak") || !strings.Contains(text, "\nNext: memprof report ")) {
					t.Errorf("%s: no categories, or no way to the rest:\n%s", f.name, text)
				}
			}
		}
	}
}

// TestSections: --section prints those sections of a device and no other.
func TestSections(t *testing.T) {
	results := fixtures()[0].results
	var out bytes.Buffer
	assert.NoError(t, Text(&out, results, Scope{Sections: []string{"peaks"}}, layout.Options{}))
	if text := out.String(); !strings.Contains(text, "\nPeaks\n") || strings.Contains(text, "Where the memory") || strings.Contains(text, "Leaks") {
		t.Errorf("--section peaks prints\n%s", text)
	}
	for i, want := range []string{"none: no change", "#"} { // the first fixture has none
		out.Reset()
		err := Text(&out, fixtures()[i].results, Scope{Sections: []string{"findings"}}, layout.Options{})
		assert.That(t, err == nil && strings.Contains(out.String(), "Findings\n"+want) && !strings.Contains(out.String(), "Where the memory"), "--section findings prints\n%s", &out)
	}
	names, about := SectionNames()
	assert.That(t, len(names) == len(about) && len(names) >= 10, "%d sections with %d descriptions", len(names), len(about))
}
