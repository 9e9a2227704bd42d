package dataset_test

import (
	"testing"
	"time"

	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/tracetest"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// Times that no clock has are refused. A free of an observed allocator is written with its next decision, at any time before.
func TestTimesOfFrees(t *testing.T) {
	const second, year = int64(time.Second) &^ (dataset.TimeStep - 1), 365 * 24 * int64(time.Hour)
	for _, c := range []struct {
		name string
		kind trace.Kind
		time int64
		ok   bool
	}{
		{"a late mark", trace.KindIteration, 51 * second, true},
		{"a mark of a clock that falls", trace.KindIteration, 49 * second, false},
		{"an allocation of such a clock", trace.KindAlloc, 49 * second, false},
		{"a late free", trace.KindFree, 0, true},
		{"its use by another stream", trace.KindStreamUse, 0, true},
		{"a free before the job", trace.KindFree, -second, false},
		{"a year later", trace.KindIteration, year, true},
		{"two years later", trace.KindIteration, 2 * year, false},
	} {
		dir := t.TempDir()
		tracetest.WriteRun(t, dir, tracetest.Process{Events: []trace.Event{
			{Kind: trace.KindArena, Time: 20 * second}, {Kind: trace.KindExternalAlloc, Arena: trace.NoArena, Time: 60 * second, Addr: 1 << 21, Provided: 1 << 21}, {Kind: c.kind, Time: c.time},
		}})
		run, err := dataset.Open(dir)
		assert.NoError(t, err)
		_, err = run.Processes[0].ReadAll()
		assert.That(t, (err == nil) == c.ok, "%s: %v", c.name, err)
	}
}
