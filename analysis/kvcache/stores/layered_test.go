package stores

import (
	"testing"

	"github.com/memprof/memprof/analysis/kvcache"
	"github.com/memprof/memprof/analysis/kvcache/models"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// TestWasteOfUniformCaches: vLLM's design of its hybrid allocator (issue 11382) names what a cache of one kind wastes:
// 25 % of Gemma-2's, 56.25 % of Ministral's at their greatest lengths, and 79.6 % of a Llama with a picture, whose 32
// text layers keep 6,193 tokens of pictures and whose 8 others 43 of text. With a table for each kind almost none.
func TestWasteOfUniformCaches(t *testing.T) {
	vision := []models.LayerKind{{Keep: models.Full, Layers: 32}, {Keep: models.Cross, Window: 6193, Layers: 8}}
	for _, test := range []struct {
		model  string
		kinds  []models.LayerKind
		tokens int64
		waste  float64
	}{
		{"gemma-2-9b", nil, 8192, 0.25}, {"ministral-8b", nil, 131072, 0.5625}, {"llama-3.2-11b-vision", vision, 43, 0.796},
	} {
		m, err := models.Named(test.model)
		assert.NoError(t, err)
		kinds := m.Kinds(test.kinds, 1)
		for _, policy := range []struct {
			kind        kvcache.PolicyKind
			block       int
			least, most float64
		}{{kvcache.Uniform, 1, test.waste - 0.0005, test.waste + 0.0005}, {kvcache.Hybrid, 16, 0, 0.03}} {
			s := newLayered(kvcache.Options{Capacity: 1 << 20, Policy: kvcache.Policy{Kind: policy.kind, Block: policy.block, Layers: kinds, Slot: models.SlotBytes(kinds)}})
			pages, held, needed := s.of(test.tokens)
			var all, used int64
			for i := range held {
				all += held[i]
				used += needed[i]
			}
			waste := 1 - float64(used)/float64(all)
			t.Logf("%s, %d: %.2f %% of %d bytes in %d pages", test.model, policy.kind, 100*waste, all, pages)
			assert.That(t, waste >= policy.least && waste <= policy.most && all <= pages*s.layout.Page,
				"%s, %d: waste %v, want %v to %v", test.model, policy.kind, waste, policy.least, policy.most)
		}
	}
}
