package serving

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/memprof/memprof/analysis/kvcache"
	"github.com/memprof/memprof/analysis/kvcache/kvtest"
)

// elasticPolicy has rows of two blocks of 4 tokens: pages of 80 bytes, 10 bytes a token, in two tensors.
var elasticPolicy = kvcache.Policy{Kind: kvcache.Elastic, Block: 4, Page: 80, TokenSize: 10, Tensors: 2}

// bursts are requests of so many tokens in the second half of each period, or in the first.
func bursts(n int, period int64, second bool) *kvtest.List {
	random := rand.New(rand.NewPCG(7, 8))
	var l kvtest.List
	for i := range n {
		at := int64(i/10)*period + int64(i%10)*period/40
		if second {
			at += period / 2
		}
		l = append(l, kvcache.Request{Arrival: at, Prompt: 10 + random.IntN(30), Output: 5 + random.IntN(20)})
	}
	return &l
}

// TestTogether: two engines whose bursts alternate hold less together than each alone at its peak, and serve the same.
func TestTogether(t *testing.T) {
	const period = 100_000
	o := kvcache.Options{Policy: elasticPolicy, Capacity: 800, StepTime: 1000, Watermark: 0, At: -1}
	engine := func(name string, second bool) Engine {
		return Engine{Name: name, Source: bursts(100, period, second), Options: o, SlotBytes: 20}
	}
	results, held, err := Together(context.Background(), []Engine{engine("a", false), engine("b", true)}, 800*20)
	if err != nil {
		t.Fatal(err)
	}
	var peaks, means float64
	for i, r := range results {
		if r.Finished != 100 || r.Held == nil || r.Engine != []string{"a", "b"}[i] {
			t.Fatalf("%+v", r)
		}
		peaks += 20 * r.Held.Peak
		means += 20 * r.Held.Mean
		if r.Held.FloorMean > r.Held.Mean || r.Held.Peak > 800 || r.Held.Unmapped > r.Held.Mapped || r.Held.Mapped == 0 {
			t.Errorf("%+v", *r.Held)
		}
	}
	t.Logf("together %.0f bytes at most, each alone %.0f; in the mean %.0f and %.0f; floor %.0f", held.Peak, peaks, held.Mean, means, held.FloorMean)
	if held.Peak > 0.8*peaks || held.FloorPeak > held.Peak || held.FloorMean > held.Mean || held.Mean == 0 {
		t.Errorf("together %+v, peaks alone %v", *held, peaks)
	}
}

// TestTogetherWaits: an engine whose rows another one holds waits, and no request is lost; and memory that is too
// small for all at once is never exceeded.
func TestTogetherWaits(t *testing.T) {
	for _, timing := range []kvcache.Timing{nil, &written{}} {
		o := kvcache.Options{Policy: elasticPolicy, Capacity: 120, StepTime: 1000, Timing: timing, At: -1}
		var engines []Engine
		for range 3 {
			engines = append(engines, Engine{Source: bursts(60, 50_000, false), Options: o, SlotBytes: 20})
		}
		results, held, err := Together(context.Background(), engines, 120*20)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range results {
			if r.Finished != 60 {
				t.Errorf("%d of 60 finished", r.Finished)
			}
		}
		if held.Peak > 120*20 {
			t.Errorf("%v bytes are held, of %d", held.Peak, 120*20)
		}
	}
}

// TestVAttention: it serves what vmm serves, as fast, and maps less often; what it holds is not less.
func TestVAttention(t *testing.T) {
	var results []*kvcache.Result
	for _, kind := range []kvcache.PolicyKind{kvcache.VMM, kvcache.VAttention} {
		o := kvcache.Options{Policy: kvcache.Policy{Kind: kind, Page: 80, TokenSize: 10, Tensors: 2}, Capacity: 400, StepTime: 1000, At: -1}
		r, err := Simulate(context.Background(), bursts(200, 20_000, false), o)
		if err != nil {
			t.Fatal(err)
		}
		results = append(results, r)
	}
	a, b := results[0], results[1]
	if a.Mean != b.Mean || a.Steps != b.Steps || a.Finished != 200 || b.Finished != 200 {
		t.Errorf("vmm %+v, vattention %+v", a.Mean, b.Mean)
	}
	t.Logf("vmm maps %d pages and holds %.0f slots, vattention %d and %.0f", a.Held.Mapped, a.Held.Mean, b.Held.Mapped, b.Held.Mean)
	if b.Held.Mapped >= a.Held.Mapped/2 || b.Held.Mean < a.Held.Mean || b.Held.Peak > 400 || a.Held.Mapped != a.Held.Unmapped {
		t.Errorf("vmm %+v, vattention %+v", *a.Held, *b.Held)
	}
}
