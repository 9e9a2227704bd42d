package stores

import (
	"context"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/memprof/memprof/analysis/kvcache"
	"github.com/memprof/memprof/analysis/kvcache/kvtest"
)

// TestHitsBySize: all sizes at once find what a plain cache of each size finds.
func TestHitsBySize(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sizes := []int64{1, 2, 5, 9}
		var requests kvtest.List
		for range rapid.IntRange(1, 40).Draw(t, "requests") {
			r := kvcache.Request{Prompt: rapid.IntRange(1, 24).Draw(t, "prompt"), Output: 1, HashTokens: 4}
			conversation := rapid.Uint64Range(1, 4).Draw(t, "conversation")
			for i := range uint64(6) {
				r.Hashes = append(r.Hashes, conversation<<8+i)
			}
			requests = append(requests, r)
		}
		these := requests
		got, err := HitsBySize(context.Background(), &these, 4, sizes, 0)
		if err != nil {
			t.Fatal(err)
		}
		for i, size := range sizes {
			var cache []uint64 // the least recently used first
			var found, tokens int
			for _, r := range requests {
				tokens += r.Prompt
				missed := false
				for j := range r.Prompt / 4 {
					key := r.Hashes[j]
					at := slices.Index(cache, key)
					missed = missed || at < 0
					if !missed && j < (r.Prompt-1)/4 {
						found += 4
					}
					if at >= 0 {
						cache = slices.Delete(cache, at, at+1)
					}
					if cache = append(cache, key); len(cache) > int(size) {
						cache = cache[1:]
					}
				}
			}
			if want := float64(found) / float64(tokens); got[i].Blocks != size || math.Abs(got[i].Share-want) > 1e-12 {
				t.Fatalf("%d blocks find %v, want %v", size, got[i].Share, want)
			}
		}
	})
}
