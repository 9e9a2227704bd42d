package stores_test

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/memprof/memprof/analysis/kvcache"
	"github.com/memprof/memprof/analysis/kvcache/kvtest"
	"github.com/memprof/memprof/analysis/kvcache/models"
	"github.com/memprof/memprof/analysis/kvcache/serving"
	"github.com/memprof/memprof/analysis/kvcache/stores"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// TestHybridServes: sequences that grow past their windows; after each step the pages in use are counted again.
func TestHybridServes(t *testing.T) {
	random := rand.New(rand.NewPCG(9, 9))
	var requests kvtest.List
	for range 60 {
		requests = append(requests, kvcache.Request{Prompt: 1 + random.IntN(300), Output: 1 + random.IntN(200)})
	}
	kinds, err := models.ParseLayers("full:2,sliding/64:5,chunked/100:2,state/3000B:3")
	assert.NoError(t, err)
	m := models.Model{KVHeads: 1, HeadSize: 50, DtypeBytes: 1}
	kinds = m.Kinds(kinds, 1)
	slots := map[kvcache.PolicyKind]float64{}
	for _, kind := range []kvcache.PolicyKind{kvcache.Hybrid, kvcache.Uniform} {
		o := kvcache.Options{Policy: kvcache.Policy{Kind: kind, Block: 16, Layers: kinds, Slot: models.SlotBytes(kinds)}, Capacity: 4000, Watermark: 0.01}
		s := stores.NewLayered(o)
		these := requests
		r, err := serving.SimulateIn(context.Background(), &these, o, &checkedHybrid{s, map[*kvcache.Group]bool{}, t})
		assert.NoError(t, err)
		assert.That(t, r.Finished == 60 && s.Used() == 0 && s.Running() == 0, "%d: %d finished, %d pages in use", kind, r.Finished, s.Used())
		kindsUsed := s.Kinds()
		for _, u := range kindsUsed {
			w := u.Waste()
			assert.That(t, u.Needed > 0 && w >= 0 && w < 1 && !math.IsNaN(w), "%d: %+v wastes %v", kind, u, w)
		}
		slots[kind] = r.Batch
		w := kindsUsed[1].Waste()
		assert.That(t, (w > 0.5) == (kind == kvcache.Uniform), "%d: sliding layers waste %v", kind, w)
	}
	assert.That(t, slots[kvcache.Hybrid] >= 1.2*slots[kvcache.Uniform], "a batch of %v, uniform has %v", slots[kvcache.Hybrid], slots[kvcache.Uniform])
}

// checkedHybrid counts pages again after each step.
type checkedHybrid struct {
	*stores.LayeredStore
	live map[*kvcache.Group]bool
	t    *testing.T
}

func (c *checkedHybrid) Admit(g *kvcache.Group) bool {
	ok := c.LayeredStore.Admit(g)
	if ok {
		c.live[g] = true
	}
	return ok
}

func (c *checkedHybrid) Release(g *kvcache.Group) {
	c.LayeredStore.Release(g)
	delete(c.live, g)
}

func (c *checkedHybrid) Shares(head *kvcache.Request) kvcache.Shares {
	var pages int64
	for g := range c.live {
		pages += c.PagesOf(int64(g.Length())) * int64(g.Request.PromptCount())
	}
	if pages != c.Used() {
		c.t.Fatalf("%d pages are in use, counted %d", pages, c.Used())
	}
	return c.LayeredStore.Shares(head)
}
