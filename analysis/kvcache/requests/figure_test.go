package requests

import (
	"context"
	"math"
	"os"
	"testing"

	"github.com/memprof/memprof/analysis/kvcache"
	"github.com/memprof/memprof/analysis/kvcache/timing"
)

// shareGPT are ShareGPT's conversations' first turns with a prompt of at most 1,024 tokens and at most
// 2,048 in all: 5,362; see samples/README.md.
func shareGPT(t *testing.T) []kvcache.Request {
	t.Helper()
	const path = "../../../samples/jobs/sharegpt_first_turns.csv"
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	src, err := NewCSV(file, path)
	if err != nil {
		t.Fatal(err)
	}
	all, err := ReadAll(src)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 5362 {
		t.Fatalf("%d first turns, want 5,362", len(all))
	}
	return all
}

// Figure 2 of the vLLM paper, in percent of 12 GiB at 819,200 bytes a token: OPT-13B on a card of
// 40 GB, under a queue that is never empty. Of vLLM the paper says the tokens alone.
func TestFigureOfThePaper(t *testing.T) {
	lengths := shareGPT(t)
	const capacity = 12 << 30 / 819200
	if capacity != 15728 {
		t.Fatalf("%d slots, want 15,728", capacity)
	}
	none := math.NaN()
	for _, test := range []struct {
		policy                             kvcache.Policy
		token, reserve, internal, external float64
		within                             float64 // points
	}{
		{kvcache.Policy{Kind: kvcache.Max, Length: 2048}, 20.4, 13.3, 57.3, 8.9, 3},
		{kvcache.Policy{Kind: kvcache.Pow2}, 26.8, 17.9, 13.6, 41.6, 7},
		{kvcache.Policy{Kind: kvcache.Oracle}, 38.2, 25.2, 0, 36.6, 3},
		{kvcache.Policy{Kind: kvcache.Paged, Block: 16}, 96.3, none, none, none, 1},
	} {
		src, err := Draw(lengths, Pace{Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		r, err := kvcache.Simulate(context.Background(), src, kvcache.Options{
			Policy: test.policy, Capacity: capacity, MaxLength: 2048, Watermark: 0.01, Steps: 200_000, Warmup: 2_000, At: -1,
		})
		if err != nil {
			t.Fatal(err)
		}
		m := r.Mean
		external := m.Rounding + m.Fragmented + m.Idle
		t.Logf("%v: token %.1f, reserve %.1f, internal %.1f, external %.1f; %.2f run", test.policy,
			100*m.Token, 100*m.Reserve, 100*m.Internal, 100*external, r.Batch)
		for _, share := range []struct {
			name      string
			got, want float64
		}{
			{"token", m.Token, test.token}, {"reserve", m.Reserve, test.reserve}, {"internal", m.Internal, test.internal},
			{"external", external, test.external},
		} {
			if math.Abs(100*share.got-share.want) > test.within {
				t.Errorf("%v: %s is %.1f %%, want %.1f within %v points", test.policy, share.name, 100*share.got, share.want, test.within)
			}
		}
		// Seven reservations of 2,048 fit, and what is beyond them can never be used.
		if test.policy.Kind == kvcache.Max && (r.Batch != 7 || r.Peak != 7 || external != 1392.0/capacity) {
			t.Errorf("%v requests of 2,048 run, and %v can never be used; want 7 and 1,392 of 15,728 slots", r.Batch, external)
		}
	}
}

// sustained returns the requests a second that a policy finishes while the queue is full, and the mean batch.
func sustained(t *testing.T, policy kvcache.Policy) (requests, batch float64) {
	t.Helper()
	timed, err := timing.Named("a100-40gb-opt-13b")
	if err != nil {
		t.Fatal(err)
	}
	src, err := Draw(shareGPT(t), Pace{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	r, err := kvcache.Simulate(context.Background(), src, kvcache.Options{
		Policy: policy, Capacity: 15_728, MaxLength: 2048, Watermark: 0.01, Timing: timed, Saturated: true, Steps: 60_000, Warmup: 2_000, At: -1,
	})
	if err != nil {
		t.Fatal(err)
	}
	return r.Served.Requests, r.Batch
}

// Figure 12 of the vLLM paper: OPT-13B and ShareGPT, by which factor more requests vLLM sustains than the policies
// of Orca. Sustained is what a policy finishes with a queue that is never empty: beyond that rate latency grows
// without end, which is where the curves of the figure rise.
func TestRatesOfThePaper(t *testing.T) {
	paged, batch := sustained(t, kvcache.Policy{Kind: kvcache.Paged, Block: 16})
	if batch < 30 || batch > 37 {
		t.Errorf("paged: a batch of %.2f, the paper's figure 13 has 30.42 at 2 requests/s", batch)
	}
	for _, test := range []struct {
		policy      kvcache.Policy
		least, most float64 // the paper's factors, over its models and data
		batch       float64 // figure 13
	}{
		{kvcache.Policy{Kind: kvcache.Oracle}, 1.7, 2.7, 13.62},
		{kvcache.Policy{Kind: kvcache.Max, Length: 2048}, 2.7, 8, 7},
	} {
		requests, batch := sustained(t, test.policy)
		t.Logf("%v: %.3f requests/s with a batch of %.2f; paged %.3f, %.2f times as many", test.policy, requests, batch, paged, paged/requests)
		if factor := paged / requests; factor < test.least || factor > test.most {
			t.Errorf("paged sustains %.2f times the requests of %v, in the paper %.1f to %.1f", factor, test.policy, test.least, test.most)
		}
		if math.Abs(batch/test.batch-1) > 0.1 {
			t.Errorf("%v: a batch of %.2f, in the paper %.2f", test.policy, batch, test.batch)
		}
	}
}
