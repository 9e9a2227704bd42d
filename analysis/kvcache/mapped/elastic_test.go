package mapped

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/memprof/memprof/analysis/kvcache"
)

// elasticPolicy has rows of two blocks of 4 tokens: pages of 80 bytes, 10 bytes a token, in two tensors.
var elasticPolicy = kvcache.Policy{Kind: kvcache.Elastic, Block: 4, Page: 80, TokenSize: 10, Tensors: 2}

// TestElastic: rows are mapped as blocks are taken, the lowest first, and given back but for the spare ones.
func TestElastic(t *testing.T) {
	s := NewElastic(kvcache.Options{Policy: elasticPolicy, Capacity: 83}, nil) // ten rows and 3 slots
	groups := map[int64]*kvcache.Group{}
	admit := func(id int64, prompt int) {
		groups[id] = &kvcache.Group{ID: id, Request: kvcache.Request{Prompt: prompt, Output: 3}}
		if !s.Admit(groups[id]) {
			t.Fatalf("no room for %d", id)
		}
	}
	check := func(what string, mapped, held int64, want kvcache.Shares) {
		t.Helper()
		if got := s.Shares(nil); got != want || got.Sum() != 83 {
			t.Errorf("%s: %+v, want %+v", what, got, want)
		}
		if slots, _, _ := s.Mappings(); s.mapped != mapped || slots != held || s.memory.free != (10-mapped)*160 {
			t.Errorf("%s: %d rows of %d slots, %d bytes free; want %d of %d", what, s.mapped, slots, s.memory.free, mapped, held)
		}
	}
	admit(1, 9)
	check("three blocks in two rows", 2, 16, kvcache.Shares{Token: 9, Reserve: 3, Idle: 68, Rounding: 3})
	admit(2, 4)
	check("the fourth is there", 2, 16, kvcache.Shares{Token: 13, Reserve: 3, Idle: 64, Rounding: 3})
	admit(3, 40)
	check("five rows more", 7, 56, kvcache.Shares{Token: 53, Reserve: 3, Idle: 24, Rounding: 3})
	for range 3 {
		if !s.Grow(groups[1]) {
			t.Fatal("no room")
		}
	}
	if s.Grow(groups[1]); s.mapped != 8 {
		t.Errorf("%d rows, want 8: the 13th token begins a block", s.mapped)
	}
	s.Release(groups[1])
	s.Release(groups[3])
	// Group 2 holds the second row. Of the seven others two stay.
	check("two rows are spare", 3, 24, kvcache.Shares{Token: 4, Idle: 76, Rounding: 3})
	if s.maps != 8 || s.unmaps != 5 {
		t.Errorf("%d mapped, %d unmapped; want 8 and 5", s.maps, s.unmaps)
	}
}

// TestElasticSums: whatever comes and goes, rows, free blocks and the shared memory agree.
func TestElasticSums(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		memory := &Memory{free: 12 * 160}
		s := NewElastic(kvcache.Options{Policy: elasticPolicy, Capacity: 80}, memory)
		live := map[int64]*kvcache.Group{}
		for id := range int64(60) {
			switch {
			case rapid.Bool().Draw(t, "admit"):
				g := &kvcache.Group{ID: id, Request: kvcache.Request{Prompt: rapid.IntRange(1, 40).Draw(t, "prompt"), Output: 50}}
				if s.Admit(g) {
					live[id] = g
				}
			case len(live) > 0 && rapid.Bool().Draw(t, "grow"):
				s.Grow(live[rapid.SampledFrom(ids(live)).Draw(t, "which")])
			case len(live) > 0:
				id := rapid.SampledFrom(ids(live)).Draw(t, "which")
				s.Release(live[id])
				delete(live, id)
			}
			var mapped, free, empty int64
			for _, used := range s.used {
				if used >= 0 {
					mapped++
					free += s.perRow - int64(used)
				}
				if used == 0 {
					empty++
				}
			}
			if mapped != s.mapped || free != s.free || empty != s.empty || empty > spareRows || memory.free != (12-mapped)*160 || mapped > s.rows {
				t.Fatalf("%d rows, %d free blocks, %d empty, %d bytes left; counted %d, %d, %d", mapped, free, empty, memory.free, s.mapped, s.free, s.empty)
			}
			if got := s.Shares(nil); got.Negative() || got.Sum() != 80 {
				t.Fatalf("%+v", got)
			}
		}
	})
}

func ids(live map[int64]*kvcache.Group) []int64 {
	var out []int64
	for id := range int64(60) {
		if live[id] != nil {
			out = append(out, id)
		}
	}
	return out
}
