package main

import (
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/report"
	"github.com/memprof/memprof/report/summary"
)

// TestSamplesFitScreens: the report on each recording of samples/ fits one screen a GPU, and its summary eight lines.
func TestSamplesFitScreens(t *testing.T) {
	var recordings []string
	for _, file := range filesBelow(t, "../../samples") {
		if filepath.Base(file) == "run.json" {
			recordings = append(recordings, filepath.Dir(file))
		}
	}
	if len(recordings) < 30 {
		t.Fatalf("%d recordings in samples/, want at least 30", len(recordings))
	}
	for _, recording := range recordings {
		lines := strings.Split(strings.TrimRight(memprofIn(t, exit.Fine, "report", recording), "\n"), "\n")
		if len(lines) > report.ScreenLines {
			t.Errorf("the report on %s has %d lines, want at most %d", recording, len(lines), report.ScreenLines)
		}
		for _, line := range lines {
			if n := utf8.RuneCountInString(line); n > report.ScreenColumns {
				t.Errorf("the report on %s has a line of %d columns, want at most %d: %s", recording, n, report.ScreenColumns, line)
			}
		}
		if n := strings.Count(memprofIn(t, exit.Fine, "report", "--summary", recording), "\n"); n > summary.BriefLines {
			t.Errorf("the summary of %s has %d lines, want at most %d", recording, n, summary.BriefLines)
		}
	}
}
