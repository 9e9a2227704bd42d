package iterations_test

import (
	"testing"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/iterations"
	"github.com/memprof/memprof/analysis/modeltest"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

func logOf(list []iterations.Iteration) *iterations.Log {
	var l iterations.Log
	for _, it := range list {
		l.Add(it)
	}
	return &l
}

// stepsThatGrow are n iterations, the first with 3 MiB more than the others; each keeps 256 bytes,
// and number `greatest` takes 100 MiB more.
func stepsThatGrow(n, greatest int) []trace.Event {
	const base, mib = 1 << 40, 1 << 20
	events := []trace.Event{
		{Kind: trace.KindArena, Addr: base, Provided: 1 << 36, Requested: -1},
		{Kind: trace.KindMap, Addr: base, Requested: 1, Provided: 1 << 30},
	}
	for i := range n {
		size := int64(mib)
		switch i {
		case 0:
			size += 3 * mib
		case greatest:
			size += 100 * mib
		}
		work := trace.Event{Kind: trace.KindAlloc, Addr: base + 900*mib, Requested: size, Provided: size}
		events = append(events, work)
		work.Kind = trace.KindFree
		events = append(events, work,
			trace.Event{Kind: trace.KindAlloc, Addr: base + int64(i)*256, Requested: 256, Provided: 256},
			trace.Event{Kind: trace.KindIteration, Device: trace.NoDevice, Arena: trace.NoArena, Requested: int64(i)})
	}
	return modeltest.Numbered(events)
}

// TestManyIterations keeps a constant number of iterations of a long job, and what is said of all of
// them is exact.
func TestManyIterations(t *testing.T) {
	const n, greatest = 3*iterations.Most + 17, 2*iterations.Most + 5
	result, err := analysis.Run(modeltest.Source(stepsThatGrow(n, greatest), 1<<15), analysis.Options{})
	assert.NoError(t, err)
	d := &result.Devices[0]
	if len(d.Iterations) > iterations.Most || len(d.Iterations) < iterations.Most/2 || d.IterationCount() != n {
		t.Fatalf("%d iterations are kept for %d, want %d to %d for %d", len(d.Iterations), d.IterationCount(), iterations.Most/2, iterations.Most, n)
	}
	first, end := &d.Iterations[0], &d.Iterations[len(d.Iterations)-1]
	assert.That(t, first.More == 0 && first.PeakT == 4<<20 && end.Number+end.More == n-1 && end.EndT == n*256, "the first is %+v, the last %+v", first, end)
	seen, allocs := int64(0), int64(0)
	for _, it := range d.Iterations {
		assert.Must(t, it.Number == seen, "iteration %d comes after %d others", it.Number, seen)
		seen += 1 + it.More
		allocs += it.Allocs
		holds := it.Number <= greatest && greatest <= it.Number+it.More
		assert.That(t, holds == (it.PeakT > 100<<20 && it.Number > 0), "iteration %d and %d more have a peak of %d", it.Number, it.More, it.PeakT)
	}
	second := d.Iterations[1].Name()
	assert.That(t, first.Name() == "0" && second == "1–4", "the first are called %s and %s, want 0 and 1–4", first.Name(), second)
	assert.That(t, allocs == 2*n, "%d allocations in iterations, want %d", allocs, 2*n)
	for _, index := range []int{0, 1, 2, 3, 1000, greatest, n - 1} {
		number, ok := d.IterationNumber(index)
		assert.That(t, ok && number == int64(index), "IterationNumber(%d) = %d, %t", index, number, ok)
	}
	_, ok := d.IterationNumber(n)
	assert.That(t, !ok, "there is an iteration number %d", n)
	assert.That(t, d.Peak.Iteration == greatest, "the peak is in iteration %d, want %d", d.Peak.Iteration, greatest)
	sum := 0.0 // greatest T of the later iterations
	for i := 1; i < n; i++ {
		peak := int64(1<<20 + 256*i)
		if i == greatest {
			peak += 100 << 20
		}
		sum += float64(peak)
	}
	want := sum / (n - 1) / float64(1<<30)
	assert.That(t, d.Paper.T2 == want, "T2 = %v, want %v", d.Paper.T2, want)
	assert.That(t, d.Leak.Slope == 256, "a leak of %v an iteration, want 256", d.Leak.Slope)
}
