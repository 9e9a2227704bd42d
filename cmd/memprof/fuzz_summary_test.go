package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/memprof/memprof/analysis/summary"
	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/tracetest"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// summaryVerbs are the command lines that read the tables of many processes.
func summaryVerbs(dir, out string) [][]string {
	return [][]string{
		{"report", dir},
		{"report", "--json", dir},
		{"report", "--markdown", dir},
		{"report", "--html", "-o", filepath.Join(out, "page.html"), dir},
		{"check", dir, "--gate", "reserved.peak < 1", "--gate", "waste.external < 5%", "--annotations"},
		{"check", dir, "--gate", "reserved.peak{phase=forward} < 1GiB", "--markdown", filepath.Join(out, "markdown")},
		{"diff", dir, dir},
		{"record", "--finish", dir},
	}
}

// FuzzSummary: a run of more processes than are read by their events, and the summary table of one changed.
func FuzzSummary(f *testing.F) {
	dir, whole := summarized(f)
	for i := range summaryVerbs("", "") {
		f.Add([]byte{0, 1, 1, 3}, byte(i))
		f.Add([]byte{1, 7, 0, 9}, byte(i))
		f.Add([]byte{2, 3, 0, 5, 0, 11}, byte(i))
	}
	f.Fuzz(func(t *testing.T, data []byte, number byte) {
		assert.NoError(t, os.WriteFile(summary.Path(dir, "rank0"), changePart(bytes.Clone(whole), data), 0o600))
		verbs := summaryVerbs(dir, t.TempDir())
		demandEnd(t, verbs[int(number)%len(verbs)]...)
	})
}

// summarized is a run of that many processes, of which only the tables are complete, and the bytes of the first table.
func summarized(f *testing.F) (dir string, whole []byte) {
	dir = f.TempDir()
	tracetest.WriteRun(f, dir, tracetest.Mixed())
	var stderr bytes.Buffer
	if code := run(&stderr, &stderr, []string{"record", "--finish", dir}); code != exit.Fine {
		f.Fatalf("summarize: %s", &stderr)
	}
	whole, err := os.ReadFile(summary.Path(dir, "rank0"))
	assert.NoError(f, err)
	info, err := dataset.ReadInfo(dir)
	assert.NoError(f, err)
	info.Processes = nil
	for i := range summary.Most + 1 {
		name := fmt.Sprintf("rank%d", i)
		info.Processes = append(info.Processes, name)
		assert.NoError(f, os.WriteFile(summary.Path(dir, name), whole, 0o600))
	}
	assert.NoError(f, dataset.WriteInfo(dir, info))
	return dir, whole
}
