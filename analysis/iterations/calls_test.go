package iterations

import (
	"testing"
	"time"

	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// The steady iterations begin behind the fourth mark; before it the last iteration stands for all, and other totals are none of calls.
func TestCallLog(t *testing.T) {
	var l CallLog
	if calls, n := l.Steady(); l.Known || n != 0 || calls != (Calls{}) {
		t.Errorf("nothing counted: %v in %d iterations", calls, n)
	}
	at := func(count, ns, waited int64) {
		l.Add(&trace.Event{Kind: trace.KindTotals, Addr: count, Requested: ns, Provided: waited}, "of=calls")
		l.Add(&trace.Event{Kind: trace.KindTotals, Addr: 99}, "of=events")
		l.Mark()
	}
	for i, want := range []struct {
		count, ns, waited int64
		calls             Calls
		iterations        int64
	}{
		{100, 9000, 700, Calls{100, 9000, 700}, 1},
		{110, 9500, 700, Calls{10, 500, 0}, 1},
		{111, 9600, 750, Calls{1, 100, 50}, 1},
		{120, 9700, 750, Calls{9, 100, 0}, 1},
		{123, 9900, 760, Calls{3, 200, 10}, 1},
		{129, 9950, 760, Calls{9, 250, 10}, 2},
	} {
		at(want.count, want.ns, want.waited)
		if calls, n := l.Steady(); calls != want.calls || n != want.iterations {
			t.Errorf("after iteration %d: %v in %d iterations, want %v in %d", i, calls, n, want.calls, want.iterations)
		}
	}
	want := (Calls{129, 9950 * time.Nanosecond, 760})
	assert.That(t, l.Known && l.Total == want, "in all %v, want %v", l.Total, want)
}
