package requests

import (
	"fmt"
	"testing"

	"github.com/memprof/memprof/analysis/kvcache"
	"github.com/memprof/memprof/analysis/kvcache/serving"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// onH200 serves a model of Llama-3-8B's shape with the kernel and the copies of samples/jobs/kv_blocks.py, and as many
// slots as the paper's OPT-13B has.
func onH200(t *testing.T) func(*kvcache.Options) {
	timed, err := serving.TimingNamed("h200-llama-3-8b-blocks")
	assert.NoError(t, err)
	return func(o *kvcache.Options) { o.Timing = timed }
}

// Figure 18 of the vLLM paper: small blocks keep the kernel from reading in parallel, and large ones are not filled.
// On ShareGPT blocks of 16 to 128 are best there, on Alpaca 16 and 32, as its sequences are shorter than larger
// blocks. Both sides are here: what blocks waste, and what is served.
func TestBlockSizesOfThePaper(t *testing.T) {
	for _, data := range []struct {
		name        string
		of          func(*testing.T) kvcache.Source
		best        []int
		least, most float64 // % of slots that blocks of 256 waste
	}{
		{"sharegpt", ofShareGPT, []int{32, 64, 128}, 15, 30}, {"alpaca", synthetic("alpaca"), []int{32, 64}, 45, 70},
	} {
		waste, served := map[int]float64{}, map[int]float64{}
		top := 0
		for _, block := range []int{1, 4, 16, 32, 64, 128, 256} {
			r := setting{data: data.of, policy: fmt.Sprintf("paged:%d", block), steps: 12_000, change: onH200(t)}.saturated(t)
			waste[block], served[block] = 100*(r.Mean.Internal+r.Mean.Reserve), r.Served.Requests
			if top == 0 || served[block] > served[top] {
				top = block
			}
			t.Logf("%s, %d: %.1f %% not filled, %.2f requests/s", data.name, block, waste[block], served[block])
		}
		within(t, data.name+": blocks of 256 waste", waste[256], data.least, data.most)
		assert.That(t, waste[16] <= 7 && waste[1] <= 0.1, "%s: blocks of 16 waste %.1f %%", data.name, waste[16])
		if top < data.best[0] || top > data.best[len(data.best)-1] || served[1] > 0.5*served[top] || served[256] > 0.98*served[top] {
			t.Errorf("%s: %d is best of %v, want one of %v", data.name, top, served, data.best)
		}
	}
}

// Figure 19: swapping copies each block by calls of their own, so small blocks make it slow; recomputation does not know
// blocks. With blocks of 16 to 64 both serve alike, and recomputation is never more than 20 % slower than swapping.
func TestSwapOfThePaper(t *testing.T) {
	for _, block := range []int{1, 4, 16, 64, 256} {
		var rates [2]float64
		var preempted int64
		for i, preempt := range []kvcache.Preemption{kvcache.Recompute, kvcache.Swap} {
			r := setting{data: ofShareGPT, policy: fmt.Sprintf("paged:%d", block), steps: 12_000, change: func(o *kvcache.Options) {
				onH200(t)(o)
				o.Preempt = preempt
			}}.saturated(t)
			rates[i], preempted = r.Served.Requests, r.Preemptions
		}
		ratio := rates[1] / rates[0]
		t.Logf("blocks of %d: %.2f requests/s with recomputation, %.2f with swapping, %d preemptions", block, rates[0], rates[1], preempted)
		switch {
		case block == 1:
			within(t, "blocks of 1: swapping serves", ratio, 0, 0.9)
		case block >= 16:
			within(t, fmt.Sprintf("blocks of %d: swapping serves", block), ratio, 0.9, 1.2)
		}
	}
}
