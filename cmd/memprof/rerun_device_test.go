package main

import (
	"strings"
	"testing"

	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// TestRerunOnMissingDevice: a recording may name devices that are not here, which is no fault of
// memprof's.
func TestRerunOnMissingDevice(t *testing.T) {
	tests := []struct {
		name string
		kind trace.Kind
		says string
	}{
		{"allocation", trace.KindAlloc, "alloc on device 9, but this machine has 1 device"},
		{"free", trace.KindFree, "free on device 9, but this machine has 1 device"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			b := newBench(t)
			cmd, stderr := b.memprof("record", "--device", "sim", "-o", b.path("run"), "--", b.job, "alloc", "a", "1M", "free", "a")
			if err := cmd.Run(); err != nil {
				t.Fatalf("%v\n%s", err, stderr)
			}
			run, err := dataset.Open(b.path("run"))
			assert.NoError(t, err)
			err = dataset.RewritePart(run.Processes[0].Parts[0].Path, func(rows []trace.Event, _ *dataset.Strings) []trace.Event {
				for i := range rows {
					if rows[i].Kind == test.kind {
						rows[i].Device = 9
					}
				}
				return rows
			})
			assert.NoError(t, err)
			cmd, stderr = b.memprof("record", "--device", "sim", "-o", b.path("again"), "--", "memprof", "lab", "rerun", b.path("run"))
			code := exitOf(cmd.Run())
			assert.That(t, code == exit.Usage, "exit code %d, want %d\n%s", code, exit.Usage, stderr)
			assert.That(t, strings.Contains(stderr.String(), test.says), "stderr does not say %q:\n%s", test.says, stderr)
		})
	}
}
