package fit

import (
	"testing"
	"time"

	"github.com/memprof/memprof/analysis/iterations"
	"github.com/memprof/memprof/analysis/tune"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// The recorded iteration of 100 ms has 4 ms of driver calls that were measured, three times what the replay says: another allocator's replayed 3 ms
// are 9 ms in their place.
func TestSlowdownIsMeasured(t *testing.T) {
	var log iterations.CallLog
	for i := range int64(6) {
		log.Add(&trace.Event{Kind: trace.KindTotals, Addr: 40 * i, Requested: (3 * i) * int64(time.Millisecond), Provided: i * int64(time.Millisecond)}, "of=calls")
		log.Mark()
	}
	c := Comparison{Duration: 100 * time.Millisecond, Rows: []Replayed{{Recorded: true, Cost: time.Millisecond}, {Cost: 3 * time.Millisecond}, {Cost: time.Millisecond}}}
	c.measure(&Job{}, &log, &tune.Outcome{Whole: 5 * time.Millisecond})
	if c.Measured != 4*time.Millisecond || c.Scale != 3 {
		t.Errorf("measured %v an iteration, and %v of the replayed time; want 4ms and 3", c.Measured, c.Scale)
	}
	for row, want := range []float64{0, 0.05, 0} {
		assert.Equal(t, c.Slowdown(row), want, "row %d: slowdown", row)
	}
	c.measure(&Job{Simulated: true}, &log, &tune.Outcome{Whole: 5 * time.Millisecond})
	assert.That(t, c.Scale == 1, "of a simulated device: scale %v, want 1", c.Scale)
}
