package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/report"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// TestSamplesFitScreens: the report on each recording and snapshot of samples/ fits one screen a GPU and is as its golden file says, and its
// summary has eight lines. Without MEMPROF_TEST_ALL, which make campaign sets, it takes the smaller ones.
func TestSamplesFitScreens(t *testing.T) {
	notShort(t)
	var recordings []string
	for _, file := range filesBelow(t, "../../samples") {
		if filepath.Base(file) == "run.json" {
			recordings = append(recordings, filepath.Dir(file))
		} else if strings.HasSuffix(file, ".pickle.gz") {
			recordings = append(recordings, file)
		}
	}
	assert.Must(t, len(recordings) >= 30, "%d recordings in samples/, want at least 30", len(recordings))
	for _, recording := range recordings {
		if os.Getenv("MEMPROF_TEST_ALL") == "" && !*update && bytesBelow(t, recording) > 200<<10 {
			continue
		}
		text, _, _ := strings.Cut(memprofIn(t, exit.Fine, "report", recording), "\nmemprof: ") // which says that a snapshot is imported
		compareScreen(t, strings.ReplaceAll(strings.TrimPrefix(filepath.ToSlash(recording), "../../samples/"), "/", "-"), text)
		lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
		assert.That(t, len(lines) <= report.ScreenLines, "the report on %s has %d lines, want at most %d", recording, len(lines), report.ScreenLines)
		for _, line := range lines {
			if n := utf8.RuneCountInString(line); n > report.ScreenColumns {
				t.Errorf("the report on %s has a line of %d columns, want at most %d: %s", recording, n, report.ScreenColumns, line)
			}
		}
	}
}

func bytesBelow(t *testing.T, folder string) (bytes int64) {
	t.Helper()
	for _, file := range filesBelow(t, folder) {
		info, err := os.Stat(file)
		assert.NoError(t, err)
		bytes += info.Size()
	}
	return bytes
}

// compareScreen compares a first screen with its golden file.
func compareScreen(t *testing.T, name, text string) {
	t.Helper()
	file := filepath.Join("testdata", "screens", name+".txt")
	if *update {
		assert.NoError(t, os.WriteFile(file, []byte(text), 0o644))
		return
	}
	assert.Diff(t, string(mustRead(t, file)), text, "the report on %s (-want +got; -update writes it anew)", name)
}
