package stores

import (
	"testing"

	"github.com/memprof/memprof/analysis/kvcache"
	"github.com/memprof/memprof/analysis/kvcache/kvtest"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// checkTables compares the block tables and the reference counts of the blocks in use.
func checkTables(t *testing.T, s *pagedStore, when string, tables [][]int32, references map[int32]int32) {
	t.Helper()
	m := s.BlockMap()
	var got [][]int32
	for _, q := range m.Sequences {
		got = append(got, q.Table)
	}
	assert.Diff(t, tables, got, "%s: tables", when)
	count := map[int32]int32{}
	for i, b := range m.Blocks {
		if b.References > 0 {
			count[int32(i)] = b.References
		}
	}
	assert.Diff(t, references, count, "%s: references", when)
}

// TestPagedTwoSamples is the article's picture: two samples of a prompt of 7 tokens share the
// blocks 7 and 1. The first that writes the 8th token copies block 1 to block 3, the second
// finds itself alone and writes in place.
func TestPagedTwoSamples(t *testing.T) {
	o := kvcache.Options{Policy: kvcache.Policy{Kind: kvcache.Paged, Block: 4}, Capacity: 36, Sampling: kvcache.Sampling{Kind: kvcache.Parallel, Width: 2}}
	s := pagedWith(o, 7, 1, 3, 0, 2, 4, 5, 6, 8)
	g := &kvcache.Group{ID: 1, Request: kvcache.Request{Prompt: 7, Output: 3}}
	assert.Must(t, s.Admit(g), "not admitted")
	checkTables(t, s, "prompt", [][]int32{{7, 1}, {7, 1}}, map[int32]int32{7: 2, 1: 2})
	kvtest.CheckShares(t, s, 36, kvcache.Shares{Token: 7, Reserve: 1, Idle: 28})

	table := s.tables[1]
	s.extend(&table.of[0], table)
	checkTables(t, s, "first sample", [][]int32{{7, 3}, {7, 1}}, map[int32]int32{7: 2, 1: 1, 3: 1})
	kvtest.CheckShares(t, s, 36, kvcache.Shares{Token: 11, Reserve: 1, Idle: 24})
	s.extend(&table.of[1], table)
	checkTables(t, s, "second sample", [][]int32{{7, 3}, {7, 1}}, map[int32]int32{7: 2, 1: 1, 3: 1})
	kvtest.CheckShares(t, s, 36, kvcache.Shares{Token: 12, Idle: 24})
	table.length++

	assert.Must(t, s.Grow(g), "no room for the 9th token")
	checkTables(t, s, "9th token", [][]int32{{7, 3, 0}, {7, 1, 2}}, map[int32]int32{7: 2, 1: 1, 3: 1, 0: 1, 2: 1})
	var r kvcache.Result
	s.AddSharing(&r, 10)
	s.AddCounters(&r)
	assert.That(t, r.LogicalBlocks == 60 && r.SavedBySequences == 10 && r.Copies == 1,
		"of %v blocks over 10 steps %v saved, %d copies; want 60, 10, 1", r.LogicalBlocks, r.SavedBySequences, r.Copies)
}

// TestPagedCopyNeedsRoom has three samples that need two copies: with one free block nothing
// changes.
func TestPagedCopyNeedsRoom(t *testing.T) {
	for free, want := range map[int64]bool{1: false, 2: true} {
		s := newPaged(kvcache.Options{Policy: kvcache.Policy{Kind: kvcache.Paged, Block: 4}, Capacity: 8 + 4*free, Sampling: kvcache.Sampling{Kind: kvcache.Parallel, Width: 3}})
		g := &kvcache.Group{ID: 1, Request: kvcache.Request{Prompt: 6, Output: 1}}
		assert.Must(t, s.Admit(g), "not admitted")
		before := s.Shares(nil)
		assert.Equal(t, s.Grow(g), want, "with %d free blocks grow", free)
		if !want {
			kvtest.CheckShares(t, s, s.options.Capacity, before)
		}
	}
}

// TestPagedRecomputed comes back with 2 generated tokens: the full block of the prompt is
// shared, the rest is each sequence's own.
func TestPagedRecomputed(t *testing.T) {
	s := newPaged(kvcache.Options{Policy: kvcache.Policy{Kind: kvcache.Paged, Block: 4}, Capacity: 40, Sampling: kvcache.Sampling{Kind: kvcache.Parallel, Width: 2}})
	g := &kvcache.Group{ID: 1, Request: kvcache.Request{Prompt: 7, Output: 3}, Generated: 2}
	assert.Must(t, s.Admit(g), "not admitted")
	checkTables(t, s, "back", [][]int32{{0, 1, 2}, {0, 3, 4}}, map[int32]int32{0: 2, 1: 1, 2: 1, 3: 1, 4: 1})
	kvtest.CheckShares(t, s, 40, kvcache.Shares{Token: 14, Reserve: 2, Internal: 4, Idle: 20})
}

// TestPagedBeam is the figure of beam width 4: candidates 0 to 2 share the blocks 0, 1 and 3,
// candidate 3 only block 0. All next candidates go on from 1 and 2; the blocks 2, 4, 5 and 8
// become free, and the new tokens go to the blocks 9 to 12.
func TestPagedBeam(t *testing.T) {
	o := kvcache.Options{Policy: kvcache.Policy{Kind: kvcache.Paged, Block: 4}, Capacity: 52, Sampling: kvcache.Sampling{Kind: kvcache.Beam, Width: 4}}
	s := newPaged(o)
	s.parent = func(_ uint64, i int) int { return []int{1, 1, 2, 2}[i] }
	g := &kvcache.Group{ID: 1, Request: kvcache.Request{Prompt: 4, Output: 16}, Generated: 12}
	for range 9 {
		s.take(4, 4)
	}
	for block, more := range map[int32]int{0: 3, 1: 2, 3: 2} {
		for range more {
			s.share(block)
		}
	}
	s.enterGroup(g, &tables{group: g, length: 16, final: 20, of: [][]int32{{0, 1, 3, 5}, {0, 1, 3, 6}, {0, 1, 3, 7}, {0, 2, 4, 8}}})
	kvtest.CheckShares(t, s, 52, kvcache.Shares{Token: 36, Idle: 16})

	assert.Must(t, s.Grow(g), "no room")
	checkTables(t, s, "next", [][]int32{{0, 1, 3, 6, 9}, {0, 1, 3, 6, 10}, {0, 1, 3, 7, 11}, {0, 1, 3, 7, 12}},
		map[int32]int32{0: 4, 1: 4, 3: 4, 6: 2, 7: 2, 9: 1, 10: 1, 11: 1, 12: 1})
	kvtest.CheckShares(t, s, 52, kvcache.Shares{Token: 24, Reserve: 12, Idle: 16})

	// Within a block the candidates that share it get copies: 9 goes on three times, 10 to 12
	// are dropped but for one.
	s.parent = func(_ uint64, i int) int { return []int{0, 0, 0, 2}[i] }
	assert.Must(t, s.Grow(g), "no room")
	assert.That(t, s.copies == 2, "%d copies, want 2", s.copies)
	kvtest.CheckShares(t, s, 52, kvcache.Shares{Token: 28, Reserve: 8, Idle: 16})
	s.Release(g)
	kvtest.CheckShares(t, s, 52, kvcache.Shares{Idle: 52})
}
