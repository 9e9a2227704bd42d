package main

import (
	"bytes"
	"runtime"
	"testing"
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
			if code := run(&out, &errs, []string{"recover", "--help"}); code != 0 {
				t.Fatalf("exit %d: %s", code, errs.String())
			}
		}
	}
	again(20)
	before := live()
	again(200)
	if after := live(); after > before+1<<20 {
		t.Errorf("200 runs leave %d bytes", after-before)
	}
}
