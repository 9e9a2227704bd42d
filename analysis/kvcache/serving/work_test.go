package serving

import (
	"context"
	"math"
	"testing"

	"github.com/memprof/memprof/analysis/kvcache"
	"github.com/memprof/memprof/analysis/kvcache/kvtest"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// written is a Timing that writes down the work of each step, which takes 10 ns, and 1 ns more for each token of a
// prompt.
type written struct{ steps []kvcache.Work }

func (w *written) Step(work kvcache.Work) int64 {
	w.steps = append(w.steps, work)
	return 10 + work.Prefill
}

// TestWork: what the steps of two requests compute, by hand; the second comes while the first runs.
func TestWork(t *testing.T) {
	requests := []kvcache.Request{{Prompt: 5, Output: 3}, {Arrival: 12, Prompt: 4, Output: 1}}
	for _, test := range []struct {
		name  string
		chunk int64
		want  []kvcache.Work
		time  int64
	}{
		{"whole prompts", 0, []kvcache.Work{
			{Prefill: 5, Pairs: 15},                                   // 0 to 15 ns; the first token
			{Prefill: 4, Pairs: 10, Decode: 1, Context: 7, Blocks: 2}, // to 29; the second request ends
			{Decode: 1, Context: 8, Blocks: 3},                        // to 39
		}, 39},
		{"at most 3 tokens a step", 3, []kvcache.Work{
			{Prefill: 3, Pairs: 6},                                   // 0 to 13 ns
			{Prefill: 2 + 1, Pairs: 9 + 1},                           // to 26; the first token, and the second request
			{Prefill: 2, Pairs: 5, Decode: 1, Context: 7, Blocks: 2}, // to 38
			{Prefill: 1, Pairs: 4, Decode: 1, Context: 8, Blocks: 3}, // to 49; both end
		}, 49},
	} {
		timing := &written{}
		o := kvcache.Options{Policy: kvcache.Policy{Kind: kvcache.Paged, Block: 4}, Capacity: 64, Timing: timing, Chunk: test.chunk}
		r := simulate(t, o, requests...)
		assert.Diff(t, test.want, timing.steps, "%s", test.name)
		assert.That(t, r.Time == test.time && r.Finished == 2, "%s: %d finished after %d ns, want 2 after %d", test.name, r.Finished, r.Time, test.time)
	}
}

// TestWorkOfSequences: a prompt is computed once for its samples, and each reads its own context.
func TestWorkOfSequences(t *testing.T) {
	timing := &written{}
	o := kvcache.Options{Policy: kvcache.Policy{Kind: kvcache.Paged, Block: 4}, Capacity: 64, Timing: timing, Sampling: kvcache.Sampling{Kind: kvcache.Parallel, Width: 3}}
	simulate(t, o, kvcache.Request{Prompt: 5, Output: 2, Prompts: 2})
	want := []kvcache.Work{{Prefill: 10, Pairs: 30}, {Decode: 6, Context: 6 * 7, Blocks: 6*7/4 + 6}}
	assert.Diff(t, want, timing.steps)
}

// TestWorkFound: what a prompt finds of an earlier one is not computed.
func TestWorkFound(t *testing.T) {
	timing := &written{}
	o := kvcache.Options{Policy: kvcache.Policy{Kind: kvcache.Paged, Block: 4}, Capacity: 64, Timing: timing}
	same := kvcache.Request{Prompt: 10, Output: 1, Hashes: []uint64{1, 2, 3}, HashTokens: 4}
	simulate(t, o, same, same)
	want := []kvcache.Work{{Prefill: 10 + 2, Pairs: 55 + 9 + 10}} // both are admitted in one step
	assert.Diff(t, want, timing.steps)
}

// TestWorkAgain: a preempted request is computed again, with what it had generated, or copied out and back.
func TestWorkAgain(t *testing.T) {
	requests := []kvcache.Request{{Prompt: 4, Output: 9}, {Prompt: 4, Output: 5}} // the first needs all 4 blocks in the end
	for _, preempt := range []kvcache.Preemption{kvcache.Recompute, kvcache.Swap} {
		timing := &written{}
		o := kvcache.Options{Policy: kvcache.Policy{Kind: kvcache.Paged, Block: 4}, Capacity: 16, Preempt: preempt, Timing: timing}
		r := simulate(t, o, requests...)
		var sum kvcache.Work
		for _, w := range timing.steps {
			sum.Prefill += w.Prefill
			sum.Swapped += w.Swapped
			sum.Pieces += w.Pieces
		}
		want := kvcache.Work{Prefill: 8 + 8} // the second had generated 4
		if preempt == kvcache.Swap {
			want = kvcache.Work{Prefill: 8, Swapped: 8 + 8, Pieces: 2 + 2}
		}
		assert.That(t, sum == want && r.Preemptions == 1, "preemption %d: %+v after %d, want %+v after 1", preempt, sum, r.Preemptions, want)
	}
}

// TestServed: latencies of two requests by hand, and none of a queue that is always full.
func TestServed(t *testing.T) {
	requests := kvtest.List{{Prompt: 5, Output: 2}, {Arrival: 1, Prompt: 9, Output: 4}}
	o := kvcache.Options{Policy: kvcache.Policy{Kind: kvcache.Paged, Block: 4}, Capacity: 16, Timing: &written{}}
	these := requests
	r, err := Simulate(context.Background(), &these, o)
	assert.NoError(t, err)
	// The first takes 15 and 10 ns. The second needs three blocks of four, two of which are used until then; it
	// takes 19, 10, 10 and 10 ns from 25 on.
	want := kvcache.Served{Requests: 2 / 74e-9, Tokens: 6 / 74e-9, Waiting: 12e-9, Latency: kvcache.Spread{Mean: (12.5 + 73.0/4) / 2 * 1e-9}}
	got := *r.Served
	assert.That(t, math.Abs(got.Latency.P90/(73.0/4*1e-9)-1) <= 0.005, "p90 %v, want 18.25 ns within 0.5 %%", got.Latency.P90)
	assert.That(t, got.Latency.P90 <= 73.0/4*1e-9*(1+1e-12), "p90 %v, above the greatest latency, 18.25 ns", got.Latency.P90)
	for _, v := range [][2]float64{{got.Requests, want.Requests}, {got.Tokens, want.Tokens}, {got.Waiting, want.Waiting}, {got.Latency.Mean, want.Latency.Mean}} {
		if math.Abs(v[0]/v[1]-1) > 1e-9 {
			t.Errorf("%+v\nwant %+v", got, want)
			break
		}
	}
	o.Saturated = true
	these = requests
	if r, err = Simulate(context.Background(), &these, o); err != nil || !math.IsNaN(r.Served.Latency.Mean) || r.Served.Requests == 0 {
		t.Errorf("a full queue: %+v, %v", r.Served, err)
	}
}

// TestQuantileIsReached: the middle of a bucket may be above all that is in it.
func TestQuantileIsReached(t *testing.T) {
	var l latency
	l.finished(9_950, &group{Group: kvcache.Group{Sequences: 1, Request: kvcache.Request{Output: 1}}}, true)
	assert.That(t, l.quantile(0.9) <= l.most, "p90 %v is above the only latency", l.quantile(0.9))
}
