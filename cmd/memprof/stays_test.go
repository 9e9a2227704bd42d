package main

import (
	"bytes"
	"runtime"
	"testing"

	"github.com/memprof/memprof/trace/tracetest/assert"
)

// The fuzz targets run memprof in their own process, a hundred thousand times: nothing of a run may stay.
func TestNothingStaysOfARun(t *testing.T) {
	live := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	again := func(times int) {
		for range times {
			var out, errs bytes.Buffer
			code := run(&out, &errs, []string{"snapshot", "--help"})
			assert.Must(t, code == 0, "exit %d: %s", code, errs.String())
		}
	}
	again(20)
	before := live()
	again(200)
	after := live()
	assert.That(t, after <= before+1<<20, "200 runs leave %d bytes", after-before)
}
