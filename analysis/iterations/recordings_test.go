package iterations_test

import (
	"errors"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/modeltest"
	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// recording are the events of a recorded sample, those with marks and those without.
func recording(t *testing.T, name string) (marked, plain []trace.Event, texts *dataset.Strings) {
	run, err := dataset.Open("../../samples/" + name)
	assert.NoError(t, err)
	reader, err := run.Processes[0].NewReader()
	assert.NoError(t, err)
	defer reader.Close()
	for {
		b, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return marked, plain, run.Processes[0].Strings()
		}
		assert.NoError(t, err)
		for i := range b.Seq {
			e := b.Event(i)
			marked = append(marked, e)
			if e.Kind != trace.KindIteration {
				plain = append(plain, e)
			}
		}
	}
}

// span is an iteration by the allocations in it.
type span struct {
	first, last  int64 // seq
	requests     int64
	bytes        int64
	peakT, peakR int64
}

// spans are the iterations of a device, and the allocations in each.
func spans(events []trace.Event, d *analysis.DeviceResult) []span {
	var out []span
	next := 0
	for _, it := range d.Iterations {
		s := span{first: -1, requests: it.Allocs, bytes: it.AllocBytes, peakT: it.PeakT, peakR: it.PeakR}
		for ; next < len(events) && events[next].Seq <= it.EndSeq; next++ {
			if e := &events[next]; e.Kind == trace.KindAlloc {
				if s.first < 0 {
					s.first = e.Seq
				}
				s.last = e.Seq
			}
		}
		out = append(out, s)
	}
	return out
}

func analyze(t *testing.T, events []trace.Event, opt analysis.Options) *analysis.DeviceResult {
	t.Helper()
	result, err := analysis.Run(modeltest.Source(events, 4096), opt)
	assert.NoError(t, err)
	return &result.Devices[0]
}

// With the marks taken out of a recording, its iterations have the same allocations, from the
// first to the last. AlexNet's job drops its gradients in the middle of an iteration, where
// fewer bytes are live than at its end.
func TestPeriodOfRecordings(t *testing.T) {
	for name, period := range map[string]int64{"alexnet": 80, "resnet50": 681, "gpt2": 1324} {
		t.Run(name, func(t *testing.T) {
			marked, plain, texts := recording(t, name)
			opt := analysis.Options{Text: texts.Text}
			want := analyze(t, marked, opt)
			assert.Must(t, len(want.Iterations) == 20 && want.Period == 0, "%d iterations were marked, period %d", len(want.Iterations), want.Period)
			got := analyze(t, plain, opt)
			assert.That(t, got.Period == period, "period %d, want %d", got.Period, period)
			assert.Diff(t, spans(marked, want), spans(plain, got), cmp.AllowUnexported(span{}), "marks (-) and period (+)")
			for _, at := range []int{1, 3, 4, 6, 7} { // eighths of an iteration, where the recording ends
				cut := want.Iterations[17].EndSeq + period*2*int64(at)/8
				opt.Recovered = true
				want := analyze(t, until(marked, cut), opt)
				got := analyze(t, until(plain, cut), opt)
				diff := cmp.Diff(spans(marked, want), spans(plain, got), cmp.AllowUnexported(span{}))
				assert.That(t, diff == "" && len(got.Iterations) == 18, "cut off at seq %d, marks (-) and period (+):\n%s", cut, diff)
			}
		})
	}
}

// until are the events up to a seq.
func until(events []trace.Event, seq int64) []trace.Event {
	for i := range events {
		if events[i].Seq > seq {
			return events[:i]
		}
	}
	return events
}

// steps is a job that makes a model of so many parameters, and in each step loads its inputs,
// drops the gradients, goes forward and backward. The first may make the optimizer's state.
func steps(t *testing.T, parameters, layers int, state bool) *modeltest.Recorder {
	r := modeltest.New()
	a := newArena(t, r, bfc.Options{Limit: bfc.NoLimit}, bfc.DeviceOptions{VMM: true, Granularity: 2 * mib})
	for i := range parameters {
		alloc(t, a, uint64(1000+i), "")
	}
	var input, target uint64
	var gradients []uint64
	for n := range 12 {
		old := []uint64{input, target}
		input, target = alloc(t, a, 200_000, ""), alloc(t, a, 300, "")
		if n > 0 {
			a.Free(old[0], false)
			a.Free(old[1], false)
		}
		for _, g := range gradients {
			a.Free(g, false)
		}
		var saved []uint64
		for i := range layers {
			saved = append(saved, alloc(t, a, uint64(50_000+i), ""))
		}
		gradients = nil
		for i := range layers {
			gradients = append(gradients, alloc(t, a, uint64(900+i), ""))
			a.Free(saved[layers-1-i], false)
		}
		if n == 0 && state {
			alloc(t, a, 777, "state")
		}
		r.Mark(int64(n))
	}
	return r
}

// Where fewest is live is not always where an iteration ends: the job's own end tells, if it came
// to it. And a long setting up is no iteration, though no shorter than one.
func TestPeriodEndsWithTheJob(t *testing.T) {
	const layers = 30
	for i := range 6 {
		parameters, state := []int{5, 2 * layers, 20 * layers}[i%3], i < 3
		r := steps(t, parameters, layers, state)
		var plain []trace.Event
		for _, e := range r.Events {
			if e.Kind != trace.KindIteration {
				plain = append(plain, e)
			}
		}
		want := spans(r.Events, analyze(t, r.Events, analysis.Options{Text: r.Strings.Text}))
		got := analyze(t, plain, analysis.Options{Text: r.Strings.Text})
		diff := cmp.Diff(want, spans(plain, got), cmp.AllowUnexported(span{}))
		assert.That(t, diff == "" && len(want) == 12, "%d parameters, state %v: marks (-) and period (+):\n%s", parameters, state, diff)
		if !state {
			continue
		}
		// Of a job that was killed the cut is where the gradients are dropped, two requests later.
		got = analyze(t, plain, analysis.Options{Text: r.Strings.Text, Recovered: true})
		for i, s := range spans(plain, got) {
			if requests := int64(2*layers + 2); i > 0 && s.requests != requests || i == 0 && s.requests != int64(parameters)+requests+1+2 {
				t.Errorf("%d parameters: iteration %d of a killed job has %d requests", parameters, i, s.requests)
			}
		}
	}
}
