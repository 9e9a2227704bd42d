package stores

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/memprof/memprof/analysis/kvcache"
	"github.com/memprof/memprof/analysis/kvcache/kvtest"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// hashed is a request whose prompt is full pieces of 4 tokens with the names given.
func hashed(id int64, names ...uint64) *kvcache.Group {
	return &kvcache.Group{ID: id, Request: kvcache.Request{Prompt: 4 * len(names), Output: 4, Hashes: names, HashTokens: 4}}
}

// TestPagedPrefix goes through a block's life: in use, cached, found, shared, lost.
func TestPagedPrefix(t *testing.T) {
	s := newPaged(kvcache.Options{Policy: kvcache.Policy{Kind: kvcache.Paged, Block: 4}, Capacity: 40})
	admit := func(g *kvcache.Group) {
		t.Helper()
		assert.Must(t, s.Admit(g), "request %d not admitted", g.ID)
	}
	a, b, c, d := hashed(1, 1, 2, 3), hashed(2, 1, 2, 3), hashed(3, 1, 2, 9), hashed(4, 7, 2, 9)
	admit(a)
	s.Release(a)
	kvtest.CheckShares(t, s, 40, kvcache.Shares{Idle: 28, Cached: 12})

	// The last token is computed again, and block 2 stays cached beside its new twin.
	admit(b)
	checkTables(t, s, "b", [][]int32{{0, 1, 3}}, map[int32]int32{0: 1, 1: 1, 3: 1})
	kvtest.CheckShares(t, s, 40, kvcache.Shares{Token: 12, Idle: 24, Cached: 4})
	admit(c)
	checkTables(t, s, "c", [][]int32{{0, 1, 3}, {0, 1, 4}}, map[int32]int32{0: 2, 1: 2, 3: 1, 4: 1})
	admit(d)
	checkTables(t, s, "d", [][]int32{{0, 1, 3}, {0, 1, 4}, {5, 6, 7}},
		map[int32]int32{0: 2, 1: 2, 3: 1, 4: 1, 5: 1, 6: 1, 7: 1})

	var r kvcache.Result
	s.AddSharing(&r, 1)
	s.AddCounters(&r)
	want := kvcache.Result{Sharing: kvcache.Sharing{LogicalBlocks: 9, SavedByPrefix: 2, SavedByEqual: 2, PrefixHits: 2, PrefixTokens: 16}}
	assert.Diff(t, want, r, "counters")

	// With c and b gone, the blocks 2, 4, 3, 1, 0 are cached, in this order of loss.
	s.Release(c)
	s.Release(b)
	kvtest.CheckShares(t, s, 40, kvcache.Shares{Token: 12, Idle: 8, Cached: 20})
	assert.That(t, s.crossing == 0 && s.equal == 0, "crossing %d, equal %d, want none", s.crossing, s.equal)
	admit(&kvcache.Group{ID: 5, Request: kvcache.Request{Prompt: 16, Output: 1}})
	checkTables(t, s, "e", [][]int32{{5, 6, 7}, {8, 9, 2, 4}},
		map[int32]int32{5: 1, 6: 1, 7: 1, 8: 1, 9: 1, 2: 1, 4: 1})
	kvtest.CheckShares(t, s, 40, kvcache.Shares{Token: 28, Cached: 12})

	// A prompt that goes on behind the known one finds block 3, the twin that is left.
	admit(hashed(6, 1, 2, 3))
	s.Release(s.tables[6].group)
	long := hashed(7, 1, 2, 3)
	long.Request.Prompt++
	assert.That(t, !s.Admit(long), "the 13th token got a block, but none is left")
	s.Release(s.tables[5].group)
	admit(long)
	got := s.tables[7].of[0][:3]
	assert.That(t, cmp.Equal(got, []int32{0, 1, 3}), "the known prompt is in %v, want 0, 1, 3", got)
}

// TestPagedPrefixLosesItsEnd takes one block of three cached ones: it is the last of the prompt.
func TestPagedPrefixLosesItsEnd(t *testing.T) {
	s := newPaged(kvcache.Options{Policy: kvcache.Policy{Kind: kvcache.Paged, Block: 4}, Capacity: 16})
	a := hashed(1, 1, 2, 3)
	b := &kvcache.Group{ID: 2, Request: kvcache.Request{Prompt: 8, Output: 1}}
	assert.Must(t, s.Admit(a), "not admitted")
	s.Release(a)
	assert.Must(t, s.Admit(b), "not admitted")
	checkTables(t, s, "b", [][]int32{{3, 2}}, map[int32]int32{3: 1, 2: 1})
	kvtest.CheckShares(t, s, 16, kvcache.Shares{Token: 8, Cached: 8})
	s.Release(b)
	assert.That(t, s.Admit(hashed(3, 1, 2, 3)) && s.hitTokens == 8, "%d tokens found, want the 8 that were left", s.hitTokens)
}

// TestPagedPrefixPieces has pieces that are not the size of a block: a block is known if all
// pieces it touches are, and equal if they are equal.
func TestPagedPrefixPieces(t *testing.T) {
	tests := []struct {
		name   string
		first  kvcache.Request
		second kvcache.Request
		tokens int64
	}{
		{"pieces of 6", kvcache.Request{Prompt: 20, Hashes: []uint64{1, 2, 3, 4}, HashTokens: 6},
			kvcache.Request{Prompt: 20, Hashes: []uint64{1, 2, 9, 4}, HashTokens: 6}, 12},
		{"a block over a piece that differs", kvcache.Request{Prompt: 20, Hashes: []uint64{1, 2, 3, 4}, HashTokens: 6},
			kvcache.Request{Prompt: 20, Hashes: []uint64{1, 9, 3, 4}, HashTokens: 6}, 4},
		{"pieces of 2", kvcache.Request{Prompt: 12, Hashes: []uint64{1, 2, 3, 4, 5, 6}, HashTokens: 2},
			kvcache.Request{Prompt: 12, Hashes: []uint64{1, 2, 3, 9, 5, 6}, HashTokens: 2}, 4},
		{"names end early", kvcache.Request{Prompt: 20, Hashes: []uint64{1, 2}, HashTokens: 4},
			kvcache.Request{Prompt: 20, Hashes: []uint64{1, 2}, HashTokens: 4}, 8},
		{"the last token", kvcache.Request{Prompt: 16, Hashes: []uint64{1}, HashTokens: 16},
			kvcache.Request{Prompt: 16, Hashes: []uint64{1}, HashTokens: 16}, 12},
		{"several prompts", kvcache.Request{Prompt: 16, Prompts: 2, Hashes: []uint64{1}, HashTokens: 16},
			kvcache.Request{Prompt: 16, Prompts: 2, Hashes: []uint64{1}, HashTokens: 16}, 0},
		{"no names", kvcache.Request{Prompt: 16}, kvcache.Request{Prompt: 16}, 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := newPaged(kvcache.Options{Policy: kvcache.Policy{Kind: kvcache.Paged, Block: 4}, Capacity: 400})
			s.Admit(&kvcache.Group{ID: 1, Request: test.first})
			s.Admit(&kvcache.Group{ID: 2, Request: test.second})
			assert.That(t, s.hitTokens == test.tokens, "%d tokens found, want %d", s.hitTokens, test.tokens)
		})
	}
}
