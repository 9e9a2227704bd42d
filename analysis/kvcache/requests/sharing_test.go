package requests

import (
	"context"
	"fmt"
	"testing"

	"github.com/memprof/memprof/analysis/kvcache"
	"github.com/memprof/memprof/analysis/kvcache/serving"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// TestSharingBesideThePaper: what sharing saves of the blocks, beside what the vLLM paper measured with OPT-13B.
// Samples share their prompts, and lengths are all that counts. What beams share is the model's doing, which the
// chance to keep a place stands for: [kvcache.BeamKeep] for ShareGPT, 0.945 for Alpaca's shorter answers. Of
// ShareGPT the paper names the least and the greatest saving only.
func TestSharingBesideThePaper(t *testing.T) {
	const alpacaKeep = 0.945
	for _, test := range []struct {
		data        string
		kind        kvcache.SamplingKind
		width       int
		keep        float64
		paper       float64 // % of blocks
		below, over float64 // points
	}{
		{"alpaca", kvcache.Parallel, 2, 0, 6.09, 2, 1}, {"alpaca", kvcache.Parallel, 4, 0, 8.53, 2, 1}, {"alpaca", kvcache.Parallel, 6, 0, 9.79, 2, 1},
		{"alpaca", kvcache.Beam, 2, alpacaKeep, 37.56, 1, 1}, {"alpaca", kvcache.Beam, 4, alpacaKeep, 53.13, 1, 1}, {"alpaca", kvcache.Beam, 6, alpacaKeep, 55.16, 2.5, 2.5},
		{"sharegpt", kvcache.Beam, 2, kvcache.BeamKeep, 44.3, 1, 1}, {"sharegpt", kvcache.Beam, 6, kvcache.BeamKeep, 66.3, 2.5, 2.5},
	} {
		t.Run(fmt.Sprintf("%s, %s %d", test.data, map[kvcache.SamplingKind]string{kvcache.Parallel: "samples", kvcache.Beam: "beams"}[test.kind], test.width), func(t *testing.T) {
			o := kvcache.Options{
				Policy: kvcache.Policy{Kind: kvcache.Paged, Block: 16}, Capacity: 15_728, MaxLength: 2048, Watermark: 0.01,
				Sampling: kvcache.Sampling{Kind: test.kind, Width: test.width, Keep: test.keep}, Steps: 1500, Warmup: 300, Seed: 1,
			}
			src, err := Synthetic("alpaca", Pace{Seed: 1})
			if test.data == "sharegpt" {
				src, err = Draw(shareGPT(t), Pace{Seed: 1})
				o.Steps, o.Warmup = 3000, 600 // its requests run longer
			}
			assert.NoError(t, err)
			r, err := serving.Simulate(context.Background(), src, o)
			assert.NoError(t, err)
			got := 100 * r.SavedBySequences / r.LogicalBlocks
			t.Logf("saves %.2f %%, in the paper %.2f %%", got, test.paper)
			assert.That(t, got >= test.paper-test.below && got <= test.paper+test.over,
				"saves %.2f %%, want from %.2f to %.2f", got, test.paper-test.below, test.paper+test.over)
		})
	}
}
