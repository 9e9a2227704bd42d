package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/tracetest"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// plant makes name in a recording a link to a new file elsewhere, and checks at the test's end that the
// file has not changed.
func plant(t *testing.T, dir, name string) {
	t.Helper()
	precious := filepath.Join(t.TempDir(), "precious")
	assert.NoError(t, os.WriteFile(precious, []byte("precious"), 0o600))
	assert.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
	assert.NoError(t, os.Symlink(precious, filepath.Join(dir, name)))
	t.Cleanup(func() {
		text, err := os.ReadFile(precious)
		assert.That(t, err == nil && string(text) == "precious", "the file that %s leads to: %.60q, %v, want it unchanged", name, text, err)
	})
}

// memprofIn runs a verb in this process and demands its exit code; what it printed is returned.
func memprofIn(t *testing.T, code int, args ...string) string {
	t.Helper()
	var stdout, stderr strings.Builder
	got := run(&stdout, &stderr, args)
	assert.Must(t, got == code, "memprof %s: exit code %d, want %d\n%s%s", strings.Join(args, " "), got, code, &stdout, &stderr)
	return stdout.String() + stderr.String()
}

// TestReportFollowsNoLink: a recording from somebody else may hold links with the names of what report
// writes.
func TestReportFollowsNoLink(t *testing.T) {
	dir := t.TempDir()
	events, texts := tracetest.Training(500)
	tracetest.WriteRun(t, dir, tracetest.Process{Meta: dataset.ProcessMeta{Name: "pid7", Rank: -1}, Events: events, Texts: texts})
	planted := map[string]fs.FileMode{"pid7-gpu0-timeline.png": 0o600, "pid7-gpu0-timeline.svg": 0o600, "report.html": 0o640}
	for name := range planted {
		plant(t, dir, name)
	}
	memprofIn(t, exit.Fine, "report", "--plots", dir, dir)
	memprofIn(t, exit.Fine, "report", "--html", dir)
	for name, mode := range planted {
		stat, err := os.Lstat(filepath.Join(dir, name))
		assert.That(t, err == nil && stat.Mode().IsRegular() && stat.Mode().Perm() == mode && stat.Size() >= 1000,
			"%s: %v, %v, want the output itself, of mode %o", name, stat, err, mode)
	}
}
