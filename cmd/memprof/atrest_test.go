package main

import (
	"regexp"
	"strconv"
	"sync"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/dataset"
)

// synchronised is a line of the simulated driver's log in which somebody waits for the device.
var synchronised = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?m)^\d+ cu(Ctx|Stream|Event)Synchronize\b`) })

// atRest demands that a job that repeats itself comes to rest on the simulated device: from an
// iteration on nothing is mapped, nothing taken for a request, nothing reclaimed, and nobody waits
// for the device: atrest RECORDING ITERATION LOG, the log being that of the simulated driver.
//
// Waits are no events. Those of our allocator come with a request that takes, or with a reclaim.
// So where the driver counts as many in all as there are of these, there are none behind the last.
//
// Excess may still go back, as the trimmer works beside the job and may be late on a machine that
// is busy. Without a map that comes to an end by itself.
func atRest(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: atrest RECORDING ITERATION LOG")
	}
	from, err := strconv.Atoi(args[1])
	ts.Check(err)
	run, err := dataset.Open(ts.MkAbs(args[0]))
	ts.Check(err)
	events, err := run.Processes[0].ReadAll()
	ts.Check(err)
	iterations, waits, allocs := 0, 0, 0
	taking := map[int32]bool{} // arenas whose request under way took something
	for i := range events {
		e := &events[i]
		takes := e.Kind == trace.KindUnmap && e.Requested > 0
		switch e.Kind {
		case trace.KindIteration:
			iterations++
		case trace.KindAlloc, trace.KindOOM:
			delete(taking, e.Arena)
		case trace.KindReclaim:
			delete(taking, e.Arena)
			waits++
		}
		if takes && !taking[e.Arena] {
			taking[e.Arena] = true
			waits++
		}
		if iterations < from {
			continue
		}
		switch e.Kind {
		case trace.KindAlloc:
			allocs++
		case trace.KindMap, trace.KindMapFailed, trace.KindGrowFailed, trace.KindReclaim, trace.KindOOM, trace.KindPause, trace.KindResume:
			ts.Fatalf("%s: event %d, %v of %d bytes at %#x, is in iteration %d: not at rest", args[0], e.Seq, e.Kind, e.Provided, e.Addr, iterations)
		}
		if takes {
			ts.Fatalf("%s: event %d takes %d bytes at %#x in iteration %d: not at rest", args[0], e.Seq, e.Provided, e.Addr, iterations)
		}
	}
	if iterations < from+5 || allocs == 0 {
		ts.Fatalf("%s: %d iterations, with %d allocations from the %dth on: nothing to tell rest by", args[0], iterations, allocs, from)
	}
	if calls := len(synchronised().FindAllString(ts.ReadFile(args[2]), -1)); calls != waits {
		ts.Fatalf("%s: the driver was waited for %d times, and the events say %d", args[0], calls, waits)
	}
}
