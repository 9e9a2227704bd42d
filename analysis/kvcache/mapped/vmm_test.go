package mapped

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/memprof/memprof/analysis/kvcache"
	"github.com/memprof/memprof/analysis/kvcache/kvtest"
)

// TestVMMRows has Llama-3-8B's numbers: 2,048 bytes a token in each of 64 tensors, pages of
// 2 MiB, so rows of 1,024 tokens. A memory of 5,000 slots has 4 rows and 904 slots left over.
func TestVMMRows(t *testing.T) {
	o := kvcache.Options{
		Policy:   kvcache.Policy{Kind: kvcache.VMM, Page: 2 << 20, TokenSize: 2048, Tensors: 64},
		Capacity: 5000, SwapBlocks: 1,
	}
	s := NewVMM(o)
	a := &kvcache.Group{ID: 1, Request: kvcache.Request{Prompt: 1024, Output: 100}}
	b := &kvcache.Group{ID: 2, Request: kvcache.Request{Prompt: 1000, Output: 10, Prompts: 2}}
	if !s.Admit(a) || !s.Admit(b) {
		t.Fatal("not admitted")
	}
	kvtest.CheckShares(t, s, 5000, kvcache.Shares{Token: 3024, Reserve: 20, Internal: 28, Rounding: 904, Idle: 1024})
	for prompt, want := range map[int]kvcache.Shares{
		1024: {Token: 3024, Reserve: 20, Internal: 28, Rounding: 904, Idle: 1024},
		1025: {Token: 3024, Reserve: 20, Internal: 28, Rounding: 904, Fragmented: 1024},
	} {
		if got := s.Shares(&kvcache.Request{Prompt: prompt, Output: 1}); got != want {
			t.Errorf("with a prompt of %d waiting: %+v, want %+v", prompt, got, want)
		}
	}
	if !s.Grow(a) {
		t.Fatal("no room for the 1,025th token")
	}
	kvtest.CheckShares(t, s, 5000, kvcache.Shares{Token: 3025, Reserve: 119, Internal: 952, Rounding: 904})
	if s.Admit(&kvcache.Group{ID: 3, Request: kvcache.Request{Prompt: 1, Output: 1}}) {
		t.Error("admitted without a row")
	}
	if s.SwapOut(a) {
		t.Error("2 rows went to a host of 1")
	}
	s.Release(b)
	s.host = 2
	if !s.SwapOut(a) {
		t.Fatal("not swapped out")
	}
	kvtest.CheckShares(t, s, 5000, kvcache.Shares{Rounding: 904, Idle: 4096})
	a.Generated = 1
	if !s.Admit(a) || s.host != 2 {
		t.Fatalf("not back, or the host keeps rows: %d free", s.host)
	}
	kvtest.CheckShares(t, s, 5000, kvcache.Shares{Token: 1025, Reserve: 99, Internal: 924, Rounding: 904, Idle: 2048})
	var r kvcache.Result
	s.AddCounters(&r)
	if r.SwappedOut != 2 || r.SwappedIn != 2 {
		t.Errorf("out %d, in %d, want 2 and 2", r.SwappedOut, r.SwappedIn)
	}
	for _, test := range []struct {
		request kvcache.Request
		want    bool
	}{
		{kvcache.Request{Prompt: 4000, Output: 96}, true},
		{kvcache.Request{Prompt: 4000, Output: 97}, false},
		{kvcache.Request{Prompt: 1024, Output: 1, Prompts: 3}, false},
	} {
		if got := s.Possible(&test.request); got != test.want {
			t.Errorf("possible(%+v) = %v", test.request, got)
		}
	}
}

// TestVMMWatermark: of ten rows two stay free while something runs; growth takes them.
func TestVMMWatermark(t *testing.T) {
	s := NewVMM(kvcache.Options{Policy: kvcache.Policy{Kind: kvcache.VMM, Page: 4, TokenSize: 1, Tensors: 2}, Capacity: 40, Watermark: 0.11})
	if !s.Admit(&kvcache.Group{ID: 1, Request: kvcache.Request{Prompt: 36, Output: 4}}) {
		t.Fatal("9 of 10 rows not given while nothing runs")
	}
	s.Release(&kvcache.Group{ID: 1})
	a := &kvcache.Group{ID: 2, Request: kvcache.Request{Prompt: 12, Output: 20}}
	if !s.Admit(a) {
		t.Fatal("3 rows not given")
	}
	for prompt, want := range map[int]kvcache.Shares{
		20: {Token: 12, Idle: 28},
		21: {Token: 12, Fragmented: 28},
	} {
		if got := s.Shares(&kvcache.Request{Prompt: prompt, Output: 1}); got != want {
			t.Errorf("with a prompt of %d waiting: %+v, want %+v", prompt, got, want)
		}
	}
	if s.Admit(&kvcache.Group{ID: 3, Request: kvcache.Request{Prompt: 21, Output: 1}}) {
		t.Error("6 of 7 free rows given although 2 must stay free")
	}
	if !s.Admit(&kvcache.Group{ID: 4, Request: kvcache.Request{Prompt: 20, Output: 1}}) {
		t.Error("5 of 7 free rows not given")
	}
	if !s.Grow(a) {
		t.Error("no growth into the watermark")
	}
}

// TestVMMProperty compares each state after random operations with a count of all sequences,
// with pages that are no whole number of tokens, and smaller than one.
func TestVMMProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		page, size := rapid.Int64Range(1, 40).Draw(t, "page"), rapid.Int64Range(1, 10).Draw(t, "token size")
		o := kvcache.Options{
			Policy:   kvcache.Policy{Kind: kvcache.VMM, Page: page, TokenSize: size, Tensors: 2},
			Capacity: rapid.Int64Range(1, 300).Draw(t, "capacity"),
			Sampling: kvcache.Sampling{Kind: kvcache.Parallel, Width: rapid.IntRange(1, 3).Draw(t, "width")},
		}
		s := NewVMM(o)
		running := map[int64]*kvcache.Group{}
		for id := range rapid.Int64Range(1, 60).Draw(t, "operations") {
			which := rapid.Int64Range(0, id).Draw(t, "which")
			g := running[which]
			switch what := rapid.SampledFrom([]string{"admit", "grow", "grow", "release"}).Draw(t, "what"); {
			case what == "admit":
				n := &kvcache.Group{ID: id, Request: kvtest.RandomRequest(t)}
				if s.Possible(&n.Request) && s.Admit(n) {
					running[id] = n
				}
			case what == "grow" && g != nil && g.Length() < g.Request.Length():
				if s.Grow(g) {
					g.Generated++
				} else if len(running) == 1 {
					t.Fatal("no room although it is alone")
				}
			case what == "release" && g != nil:
				s.Release(g)
				delete(running, which)
			}
			want, rows := kvcache.Shares{Rounding: o.Capacity}, int64(0)
			for _, g := range running {
				for range g.Request.PromptCount() * o.Sampling.Width {
					var mapped int64 // slots with rows behind them
					had := int64(0)
					for had*page < int64(g.Length())*size {
						had++
					}
					for (mapped+1)*size <= had*page {
						mapped++
					}
					rows += had
					final := min(mapped, int64(g.Request.Length()))
					want.Token += int64(g.Length())
					want.Reserve += final - int64(g.Length())
					want.Internal += mapped - final
					want.Rounding -= mapped
				}
			}
			want.Idle = (o.Capacity*size/page - rows) * page / size
			want.Rounding -= want.Idle
			if got := s.Shares(nil); got != want || got.Sum() != o.Capacity || got.Rounding < 0 {
				t.Fatalf("shares %+v, counted %+v, of %d", got, want, o.Capacity)
			}
		}
	})
}
