package collect_test

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/tracetest"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// A process lives on after its last event, and holds memory; when it was last seen is kept.
func TestLastAlive(t *testing.T) {
	dir, spool := newRun(t)
	end := startLive(t, spool)
	c := newCollector(t, dir, dataset.WriterOptions{})
	poll := func() {
		t.Helper()
		must(t, c.Poll)
	}
	poll()
	time.Sleep(20 * time.Millisecond)
	before := clock(t)
	poll()
	after := clock(t)
	end()
	poll()
	must(t, c.Finish)
	if at := tracetest.One(t, dir).Ending.LastAlive; at < before-1000 || at > after-1000 { // 1000: the clock base
		t.Errorf("last alive at %d, want within %d and %d", at, before-1000, after-1000)
	}
}

func TestLastAliveOfTheDead(t *testing.T) {
	dir, spool := newRun(t)
	tracetest.NewSpool(t, spool, 4711, 0).Append(trace.Event{Kind: trace.KindAlloc}, "")
	recovered(t, dir)
	assert.Equal(t, tracetest.One(t, dir).Ending.LastAlive, 0, "last alive at")
}

func clock(t *testing.T) int64 {
	t.Helper()
	var now unix.Timespec
	assert.NoError(t, unix.ClockGettime(unix.CLOCK_MONOTONIC, &now))
	return now.Nano()
}
