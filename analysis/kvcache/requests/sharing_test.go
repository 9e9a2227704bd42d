package requests

import (
	"context"
	"fmt"
	"testing"

	"github.com/memprof/memprof/analysis/kvcache"
)

// TestSharingBesideThePaper: what sharing saves of the blocks at Alpaca's lengths, beside what
// the vLLM paper measured with OPT-13B. Samples share their prompts, and lengths are all that
// counts. What beams share is the model's doing: its candidates forget each other more slowly
// than ours, which are drawn uniformly, so we save more than the paper, and the more the wider.
func TestSharingBesideThePaper(t *testing.T) {
	for _, test := range []struct {
		kind        kvcache.SamplingKind
		width       int
		paper       float64 // % of blocks
		below, over float64 // points
	}{
		{kvcache.Parallel, 2, 6.09, 2, 1}, {kvcache.Parallel, 4, 8.53, 2, 1}, {kvcache.Parallel, 6, 9.79, 2, 1},
		{kvcache.Beam, 2, 37.56, 0, 6}, {kvcache.Beam, 4, 53.13, 0, 11}, {kvcache.Beam, 6, 55.16, 0, 16},
	} {
		t.Run(fmt.Sprintf("%s %d", map[kvcache.SamplingKind]string{kvcache.Parallel: "samples", kvcache.Beam: "beams"}[test.kind], test.width), func(t *testing.T) {
			src, err := Synthetic("alpaca", Pace{Seed: 1})
			if err != nil {
				t.Fatal(err)
			}
			r, err := kvcache.Simulate(context.Background(), src, kvcache.Options{
				Policy: kvcache.Policy{Kind: kvcache.Paged, Block: 16}, Capacity: 15_728, MaxLength: 2048, Watermark: 0.01,
				Sampling: kvcache.Sampling{Kind: test.kind, Width: test.width}, Steps: 1500, Warmup: 300, Seed: 1, At: -1,
			})
			if err != nil {
				t.Fatal(err)
			}
			got := 100 * r.SavedBySequences / r.LogicalBlocks
			t.Logf("saves %.2f %%, in the paper %.2f %%", got, test.paper)
			if got < test.paper-test.below || got > test.paper+test.over {
				t.Errorf("saves %.2f %%, want from %.2f to %.2f", got, test.paper-test.below, test.paper+test.over)
			}
		})
	}
}
