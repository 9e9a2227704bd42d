package kvcache

import (
	"context"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// elasticPolicy has rows of two blocks of 4 tokens: pages of 80 bytes, 10 bytes a token, in two tensors.
var elasticPolicy = Policy{Kind: Elastic, Block: 4, Page: 80, TokenSize: 10, Tensors: 2}

// TestElastic: rows are mapped as blocks are taken, the lowest first, and given back but for the spare ones.
func TestElastic(t *testing.T) {
	s := newElastic(Options{Policy: elasticPolicy, Capacity: 83}, nil) // ten rows and 3 slots
	groups := map[int64]*group{}
	admit := func(id int64, prompt int) {
		groups[id] = &group{id: id, request: Request{Prompt: prompt, Output: 3}}
		if !s.admit(groups[id]) {
			t.Fatalf("no room for %d", id)
		}
	}
	check := func(what string, mapped, held int64, want Shares) {
		t.Helper()
		if got := s.shares(nil); got != want || got.Sum() != 83 {
			t.Errorf("%s: %+v, want %+v", what, got, want)
		}
		if slots, _, _ := s.mappings(); s.mapped != mapped || slots != held || s.memory.free != (10-mapped)*160 {
			t.Errorf("%s: %d rows of %d slots, %d bytes free; want %d of %d", what, s.mapped, slots, s.memory.free, mapped, held)
		}
	}
	admit(1, 9)
	check("three blocks in two rows", 2, 16, Shares{Token: 9, Reserve: 3, Idle: 68, Rounding: 3})
	admit(2, 4)
	check("the fourth is there", 2, 16, Shares{Token: 13, Reserve: 3, Idle: 64, Rounding: 3})
	admit(3, 40)
	check("five rows more", 7, 56, Shares{Token: 53, Reserve: 3, Idle: 24, Rounding: 3})
	for range 3 {
		if !s.grow(groups[1]) {
			t.Fatal("no room")
		}
	}
	if s.grow(groups[1]); s.mapped != 8 {
		t.Errorf("%d rows, want 8: the 13th token begins a block", s.mapped)
	}
	s.release(groups[1])
	s.release(groups[3])
	// Group 2 holds the second row. Of the seven others two stay.
	check("two rows are spare", 3, 24, Shares{Token: 4, Idle: 76, Rounding: 3})
	if s.maps != 8 || s.unmaps != 5 {
		t.Errorf("%d mapped, %d unmapped; want 8 and 5", s.maps, s.unmaps)
	}
}

// TestElasticSums: whatever comes and goes, rows, free blocks and the shared memory agree.
func TestElasticSums(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		memory := &rowMemory{free: 12 * 160}
		s := newElastic(Options{Policy: elasticPolicy, Capacity: 80}, memory)
		live := map[int64]*group{}
		for id := range int64(60) {
			switch {
			case rapid.Bool().Draw(t, "admit"):
				g := &group{id: id, request: Request{Prompt: rapid.IntRange(1, 40).Draw(t, "prompt"), Output: 50}}
				if s.admit(g) {
					live[id] = g
				}
			case len(live) > 0 && rapid.Bool().Draw(t, "grow"):
				s.grow(live[rapid.SampledFrom(ids(live)).Draw(t, "which")])
			case len(live) > 0:
				id := rapid.SampledFrom(ids(live)).Draw(t, "which")
				s.release(live[id])
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
			if got := s.shares(nil); got.negative() || got.Sum() != 80 {
				t.Fatalf("%+v", got)
			}
		}
	})
}

func ids(live map[int64]*group) []int64 {
	var out []int64
	for id := range int64(60) {
		if live[id] != nil {
			out = append(out, id)
		}
	}
	return out
}

// bursts are requests of so many tokens in the second half of each period, or in the first.
func bursts(n int, period int64, second bool) *list {
	random := rand.New(rand.NewPCG(7, 8))
	var l list
	for i := range n {
		at := int64(i/10)*period + int64(i%10)*period/40
		if second {
			at += period / 2
		}
		l = append(l, Request{Arrival: at, Prompt: 10 + random.IntN(30), Output: 5 + random.IntN(20)})
	}
	return &l
}

// TestTogether: two engines whose bursts alternate hold less together than each alone at its peak, and serve the same.
func TestTogether(t *testing.T) {
	const period = 100_000
	o := Options{Policy: elasticPolicy, Capacity: 800, StepTime: 1000, Watermark: 0, At: -1}
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
	for _, timing := range []Timing{nil, &written{}} {
		o := Options{Policy: elasticPolicy, Capacity: 120, StepTime: 1000, Timing: timing, At: -1}
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
	var results []*Result
	for _, kind := range []PolicyKind{VMM, VAttention} {
		o := Options{Policy: Policy{Kind: kind, Page: 80, TokenSize: 10, Tensors: 2}, Capacity: 400, StepTime: 1000, At: -1}
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
