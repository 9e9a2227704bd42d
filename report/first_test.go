package report

import (
	"bytes"
	"strings"
	"testing"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/report/layout"
	"github.com/memprof/memprof/report/reporttest"
)

// TestFirstScreen: the default report on a device fits one screen, begins with the findings, and says where
// the rest is.
func TestFirstScreen(t *testing.T) {
	for _, f := range fixtures() {
		for _, r := range f.results {
			for i := range r.Devices {
				one := *r
				one.Devices = r.Devices[i : i+1]
				var out bytes.Buffer
				if err := Text(&out, []*analysis.Result{&one}, Scope{}, layout.Options{Width: ScreenColumns}); err != nil {
					t.Fatal(err)
				}
				text := out.String()
				for line := range strings.Lines(text) {
					if n := plain.Width(strings.TrimSuffix(line, "\n")); n > ScreenColumns && !strings.Contains(line, "memprof ") {
						t.Errorf("%s: a line of %d columns, want at most %d: %s", f.name, n, ScreenColumns, line)
					}
				}
				if n := strings.Count(text, "\n"); n > ScreenLines {
					t.Errorf("%s: %d lines, want at most %d:\n%s", f.name, n, ScreenLines, text)
				}
				if !empty(&r.Devices[i]) && (!strings.Contains(text, "\nFindings\nPeak") || !strings.Contains(text, "--section list")) {
					t.Errorf("%s: no findings, or no way to the rest:\n%s", f.name, text)
				}
			}
		}
	}
	for _, name := range []string{"training", "exhausted"} {
		for _, f := range fixtures() {
			if f.name != name {
				continue
			}
			var text, markdown bytes.Buffer
			if err := Text(&text, f.results, Scope{}, layout.Options{}); err != nil {
				t.Fatal(err)
			}
			if err := Markdown(&markdown, f.results, Scope{}); err != nil {
				t.Fatal(err)
			}
			reporttest.Golden(t, "first_"+name+".txt", text.Bytes())
			reporttest.Golden(t, "first_"+name+".md", markdown.Bytes())
		}
	}
}

// TestSections: --section prints those sections of a device and no other.
func TestSections(t *testing.T) {
	results := fixtures()[0].results
	var out bytes.Buffer
	if err := Text(&out, results, Scope{Sections: []string{"peaks"}}, layout.Options{}); err != nil {
		t.Fatal(err)
	}
	if text := out.String(); !strings.Contains(text, "\nPeaks\n") || strings.Contains(text, "Findings") || strings.Contains(text, "Leaks") {
		t.Errorf("--section peaks prints\n%s", text)
	}
	names, about := SectionNames()
	if len(names) != len(about) || len(names) < 10 {
		t.Errorf("%d sections with %d descriptions", len(names), len(about))
	}
}
