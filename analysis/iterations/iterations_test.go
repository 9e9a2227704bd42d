package iterations_test

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/iterations"
	"github.com/memprof/memprof/analysis/modeltest"
	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

func TestIterationsAndPaper(t *testing.T) {
	r := modeltest.New()
	a := newArena(t, r, bfc.Options{Limit: bfc.NoLimit}, bfc.DeviceOptions{VMM: true, Granularity: 2 * mib})
	model := alloc(t, a, 1000, "") // seq 2, after the arena and a map of 2 MiB
	x := alloc(t, a, 500_000, "")
	a.Free(x, false)
	r.Mark(0) // seq 5
	y := alloc(t, a, 300_000, "")
	r.Mark(1)
	a.Free(y, false)
	z := alloc(t, a, 100_000, "")
	r.Mark(2)
	a.Free(z, false)
	a.Free(model, false) // after the last mark

	d := run(t, r, analysis.Options{}).Devices[0]
	want := []iterations.Iteration{
		{Number: 0, StartSeq: 0, EndSeq: 5, Start: 0, End: 5000, PeakT: 501_000, PeakC: 1024 + 500_224, PeakR: 2 * mib, EndT: 1000, EndC: 1024, Allocs: 2, AllocBytes: 501_000},
		{Number: 1, StartSeq: 6, EndSeq: 7, Start: 5000, End: 7000, PeakT: 301_000, PeakC: 1024 + 300_032, PeakR: 2 * mib, EndT: 301_000, EndC: 301_056, Allocs: 1, AllocBytes: 300_000},
		{Number: 2, StartSeq: 8, EndSeq: 10, Start: 7000, End: 10000, PeakT: 301_000, PeakC: 301_056, PeakR: 2 * mib, EndT: 101_000, EndC: 1024 + 100_096, Allocs: 1, AllocBytes: 100_000},
	}
	assert.Diff(t, want, d.Iterations)
	assert.That(t, d.Final.Iteration == 3 && d.Peak.Iteration == 0 && d.Period == 0,
		"final in iteration %d, peak in %d, period %d; want 3, 0, 0", d.Final.Iteration, d.Peak.Iteration, d.Period)
	rf := float64(2 * mib)
	paper := &iterations.Paper{
		Of: 2 * mib, T1: 501_000 / rf, C1: 501_248 / rf, T2: 301_000 / rf, C2: 301_056 / rf,
		FirstExcess: 501_248./301_056 - 1, SteadyIdle: 1 - 301_056/rf,
		OwnT1: 501_000 / rf, OwnC1: 501_248 / rf, OwnT2: 301_000 / rf, OwnC2: 301_056 / rf,
	}
	close := cmp.Comparer(func(x, y float64) bool { return math.Abs(x-y) < 1e-12 })
	assert.Diff(t, paper, d.Paper, close)
	assert.That(t, d.Leak.Verdict == iterations.TooShort, "three iterations have a verdict")
}

// Where R shrank, the final R is less than the peaks: shares of it would exceed 1.
func TestPaperWhereMemoryWasGivenBack(t *testing.T) {
	p := modeltest.NewPausing(t)
	p.Take(t, p.Tagged, 30*mib)
	kept := p.Take(t, p.Main, 10*mib)
	p.Mark(0)
	p.Main.Free(p.Take(t, p.Main, 20*mib), false)
	p.Mark(1)
	p.Transition(trace.KindPause, 30*mib, "tag=kv")
	p.Main.Trim(mib * 20)
	p.Mark(2)
	p.Main.Free(kept, false)
	p.Main.Trim(mib * 10)
	d := &run(t, p.Recorder, analysis.Options{}).Devices[0]
	assert.Must(t, d.MaxR == 60*mib && d.Final.R == 0, "R was at most %d and is %d at the end", d.MaxR, d.Final.R)
	// T = C: 40 of 40 MiB; then 60 of 60; then 40 of 60, as nothing is trimmed before the pause.
	want := &iterations.Paper{
		Of: 60 * mib, T1: 40. / 60, C1: 40. / 60, T2: 50. / 60, C2: 50. / 60, FirstExcess: 40./50 - 1, SteadyIdle: 1 - 50./60,
		OwnT1: 1, OwnC1: 1, OwnT2: (1 + 40./60) / 2, OwnC2: (1 + 40./60) / 2,
	}
	assert.Diff(t, want, d.Paper, cmp.Comparer(func(x, y float64) bool { return math.Abs(x-y) < 1e-12 }))
}

// An iteration in which nothing is reserved has no share of its own, and where later ones provide
// nothing there is no excess over them.
func TestPaperOfNothing(t *testing.T) {
	p := logOf([]iterations.Iteration{{PeakT: 5, PeakC: 8, PeakR: 10}, {}, {}}).Paper(10)
	assert.That(t, math.IsNaN(p.FirstExcess) && math.IsNaN(p.OwnC2) && math.IsNaN(p.OwnT2) && p.SteadyIdle == 1 && p.C1 == 0.8, "%+v", p)
	d := analysis.DeviceResult{Memory: &analysis.Memory{Chunks: &analysis.Chunks{}, MaxR: 10}, Allocs: 1, Iterations: make([]iterations.Iteration, 3), Paper: p}
	for name, why := range map[string]string{
		"iteration.first_excess": "no chunk was live in the 2 later iterations",
		"iteration.own_idle":     "no memory was reserved in the later iterations",
	} {
		m, _ := analysis.LookupMetric(name)
		_, _, ok := m.Value(d.Subjects())
		assert.That(t, !ok && m.Unknown(d.Subjects()) == why, "%s: known %v, unknown since %q, want %q", name, ok, m.Unknown(d.Subjects()), why)
	}
	p = logOf([]iterations.Iteration{{PeakT: 5, PeakC: 8, PeakR: 10}, {}, {PeakT: 1, PeakC: 4, PeakR: 5}}).Paper(10)
	assert.That(t, p.C2 == 0.2 && p.OwnC2 == 0.8 && p.FirstExcess == 3, "%+v", p)
}

// Without marks, the iterations are the marked ones, shifted by a constant.
func TestPeriodFindsTheMarks(t *testing.T) {
	for i := range 6 {
		layers := []int{9, 40, 200}[i/2]
		marked := job(t, 12, layers, 0, i%2 == 0)
		plain := modeltest.New()
		plain.Strings = marked.Strings
		requests, ends := 0, []int{} // allocs before each mark
		for _, e := range marked.Events {
			if e.Kind == trace.KindIteration {
				ends = append(ends, requests)
				continue
			}
			if e.Kind == trace.KindAlloc {
				requests++
			}
			plain.Add(e)
		}
		want := run(t, marked, analysis.Options{}).Devices[0]
		got := run(t, plain, analysis.Options{}).Devices[0]
		if got.Period != int64(layers) {
			t.Errorf("%d layers: period %d", layers, got.Period)
			continue
		}
		if len(got.Iterations) != len(want.Iterations) {
			t.Errorf("%d layers: %d iterations, want %d", layers, len(got.Iterations), len(want.Iterations))
			continue
		}
		count := int64(0)
		shift := got.Iterations[0].Allocs - int64(ends[0])
		for i, it := range got.Iterations {
			count += it.Allocs
			assert.That(t, count-int64(ends[i]) == shift,
				"%d layers: iteration %d ends after %d allocs, marked %d, shift %d", layers, i, count, ends[i], shift)
			w := want.Iterations[i]
			if it.PeakT != w.PeakT || it.PeakC != w.PeakC || it.PeakR != w.PeakR || it.EndT != w.EndT || it.EndC != w.EndC || it.AllocBytes != w.AllocBytes {
				t.Errorf("%d layers: iteration %d\n %+v\nmarked\n %+v", layers, i, it, w)
			}
		}
		assert.Diff(t, want.Paper, got.Paper)
	}
}
