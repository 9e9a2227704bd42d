package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/memprof/memprof/analysis/gate"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// TestGateFileOfOthers: a job is not run by gates that another user may have put above the working directory.
func TestGateFileOfOthers(t *testing.T) {
	t.Setenv("CI", "")
	dir := mustMake(t, filepath.Join(t.TempDir(), "repository"))
	inner := mustMake(t, filepath.Join(dir, "inner"))
	file := filepath.Join(dir, gate.FileName)
	mustWrite(t, file, "gates:\n  - reserved.peak < 1GiB\n")
	mustMake(t, filepath.Join(dir, ".git"))
	t.Chdir(inner)
	for _, test := range []struct {
		what    string
		options checkOptions
		mode    os.FileMode // of the directory
		ci      string
		ok      bool
	}{
		{"mine", checkOptions{Run: true}, 0o755, "", true},
		{"my group's", checkOptions{Run: true}, 0o775, "", true},
		{"anybody's", checkOptions{Run: true}, 0o777, "", false},
		{"anybody's, named", checkOptions{Run: true, Config: file}, 0o777, "", true},
		{"anybody's, for a recording that is there", checkOptions{}, 0o777, "", true},
		{"anybody's, in CI", checkOptions{Run: true}, 0o777, "true", true},
	} {
		t.Setenv("CI", test.ci)
		assert.NoError(t, os.Chmod(dir, test.mode))
		found, err := test.options.gateFile()
		assert.That(t, (err == nil) == test.ok && (err != nil || len(found.Gates) == 1), "%s: %+v, %v, want it taken %v", test.what, found, err, test.ok)
		assert.That(t, err == nil || strings.Contains(err.Error(), dir+" has mode 0777: other users can change it (--config "+file+" uses it)"),
			"%s: %v", test.what, err)
	}
}

// On a terminal what a metric is goes on below itself; elsewhere a metric is a line.
func TestMetricLines(t *testing.T) {
	metrics := []listedMetric{{"reserved.peak", "bytes", "greatest R"}, {"live.peak", "count", strings.Repeat("word ", 14) + "end"}}
	const narrow = `reserved.peak  bytes  greatest R
live.peak      count  word word word word word word word word word word word
                      word word word end
`
	const wide = `reserved.peak  bytes  greatest R
live.peak      count  word word word word word word word word word word word word word word end
`
	for columns, want := range map[int]string{0: wide, 40: narrow, 80: narrow, 200: wide} {
		var out bytes.Buffer
		assert.NoError(t, printMetrics(&out, metrics, columns))
		assert.Diff(t, want, out.String(), "at %d", columns)
	}
}
