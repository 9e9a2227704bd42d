package kv

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/memprof/memprof/analysis/kvcache"
	"github.com/memprof/memprof/analysis/kvcache/models"
	"github.com/memprof/memprof/analysis/kvcache/timing"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/report/layout"
	"github.com/memprof/memprof/report/reporttest"
)

// twoPolicies is a small memory of which every term occurs.
func twoPolicies() *Simulation {
	share := func(s kvcache.Shares) kvcache.Shares64 {
		m := kvcache.Means{}
		m.Add(s, 4)
		return m.Of(64)
	}
	a := kvcache.Shares{Token: 20, Reserve: 6, Internal: 14, Rounding: 8, Fragmented: 10, Idle: 6}
	b := kvcache.Shares{Token: 40, Reserve: 4, Internal: 4, Idle: 4, Cached: 8, Null: 4}
	return &Simulation{
		Model: "opt-13b", Ranks: 2, Memory: 64 * 409_600, BytesPerToken: 409_600, Load: "a|b.csv, saturated queue", Sampling: "parallel:2",
		Card: &models.Card{Total: 40 << 30, Weights: 12 << 30, KV: 64 * 409_600, Rest: 28<<30 - 64*409_600},
		Results: []*kvcache.Result{
			{
				Policy: "max:16", Capacity: 64, Steps: 4, Mean: share(a), Batch: 2.5, Peak: 3, Requests: 9, Finished: 7, Rejected: 2,
				Series: []kvcache.Point{{Step: 1, Running: 3, Shares: a}, {Step: 4, Running: 2, Shares: a}},
			},
			{
				Policy: "paged:4", Capacity: 64, Steps: 4, Mean: share(b), Batch: 6, Peak: 7, Requests: 9, Finished: 9,
				Preemptions: 3, Recomputed: 1234, SwappedOut: 5, SwappedIn: 4, Copies: 6,
				LogicalBlocks: 80, SavedBySequences: 20, SavedByPrefix: 8, SavedByEqual: 2, PrefixHits: 3, PrefixTokens: 24,
				Series: []kvcache.Point{{Step: 1, Time: 25e6, Running: 7, Shares: b}, {Step: 4, Time: 100e6, Running: 6, Shares: b}},
				Map: &kvcache.BlockMap{
					Step: 3, BlockSize: 4, Count: 16,
					Sequences: []kvcache.SequenceMap{{Request: 0, Sequence: 0, Tokens: 7, Table: []int32{7, 1}}, {Sequence: 1, Tokens: 6, Table: []int32{7, 3}}},
					Blocks:    []kvcache.BlockState{{Null: true}, {References: 1, Filled: 3}, {Cached: true, Filled: 4}, {References: 1, Filled: 2}, {}, {}, {}, {References: 2, Filled: 4}},
				},
			},
		},
	}
}

func TestGoldenKV(t *testing.T) {
	k := twoPolicies()
	var text, markdown, object bytes.Buffer
	if err := Text(&text, k, layout.Options{}); err != nil {
		t.Fatal(err)
	}
	if err := Markdown(&markdown, k); err != nil {
		t.Fatal(err)
	}
	if err := JSON(&object, k); err != nil {
		t.Fatal(err)
	}
	reporttest.Golden(t, "kv.txt", text.Bytes())
	reporttest.Golden(t, "kv.md", markdown.Bytes())
	reporttest.Golden(t, "kv.json", object.Bytes())
	reporttest.Golden(t, "kv.svg", []byte(reporttest.SVG(t, figures(k)[0])))
	reporttest.Golden(t, "kv-course.svg", []byte(reporttest.SVG(t, figures(k)[2])))
	reporttest.Golden(t, "kv-blocks.svg", []byte(reporttest.SVG(t, figures(k)[3])))
	for i, line := range strings.Split(text.String(), "\n") {
		if plain.Width(line) > 100 {
			t.Errorf("line %d is %d wide", i+1, plain.Width(line))
		}
	}
}

// Of many blocks the free ones at the end are not drawn, and no more than there are dots for.
func TestBlocksDrawn(t *testing.T) {
	used, cached := kvcache.BlockState{References: 1, Filled: 1}, kvcache.BlockState{Cached: true, Filled: 4}
	for _, test := range []struct {
		blocks, last int // the last that is not free
		state        kvcache.BlockState
		count        int64
		want         int
		head         string
	}{
		{8, 3, used, 8, 8, "physical blocks ×references"},
		{8, 3, used, 20, 8, "physical blocks ×references, the first 8 of 20; the others are free"},
		{1000, 3, used, 1000, 128, "physical blocks ×references, the first 128 of 1,000; the others are free"},
		{1000, 700, cached, 1000, 701, "physical blocks ×references, the first 701 of 1,000; the others are free"},
		{9000, 8999, used, 9000, 8192, "physical blocks ×references, the first 8,192 of 9,000"},
	} {
		m := &kvcache.BlockMap{Blocks: make([]kvcache.BlockState, test.blocks), Count: test.count}
		m.Blocks[test.last] = test.state
		if n, head := drawnBlocks(m); n != test.want || head != test.head {
			t.Errorf("%d blocks to %d: %d, %q; want %d, %q", test.blocks, test.last, n, head, test.want, test.head)
		}
	}
}

// The terms that JSON gives add up to the capacity.
func TestKVJSONAddsUp(t *testing.T) {
	var object bytes.Buffer
	if err := JSON(&object, twoPolicies()); err != nil {
		t.Fatal(err)
	}
	var got jsonSimulation
	if err := json.Unmarshal(object.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	for _, p := range got.Policies {
		m := p.Mean
		if sum := m.Token + m.Reserve + m.Internal + m.External + m.Idle + m.Cached + m.Null; sum != 1 {
			t.Errorf("%s: the shares are %v in all", p.Policy, sum)
		}
		if m.External != m.Rounding+m.Fragmented {
			t.Errorf("%s: external is %v, its parts are not", p.Policy, m.External)
		}
	}
}

// What no step was counted of has no mean.
func TestKVWithoutSteps(t *testing.T) {
	k := &Simulation{Ranks: 1, Memory: 64, BytesPerToken: 1, Results: []*kvcache.Result{{Policy: "max:99", Capacity: 64, Requests: 1, Rejected: 1}}}
	var text, object bytes.Buffer
	if err := Text(&text, k, layout.Options{}); err != nil {
		t.Fatal(err)
	}
	if err := JSON(&object, k); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(text.String(), "%") || !strings.Contains(object.String(), `"mean": null`) {
		t.Errorf("shares of nothing:\n%s\n%s", &text, &object)
	}
}

func TestKVPlotsAreWritten(t *testing.T) {
	dir := t.TempDir()
	k := twoPolicies()
	k.Results = append(k.Results, &kvcache.Result{Policy: "oracle/firstfit", Capacity: 64}) // nothing was served
	paths, err := WritePlots(dir, k)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, path := range paths {
		names = append(names, filepath.Base(path))
		if info, err := os.Stat(path); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", path, err)
		}
	}
	want := []string{
		"kv-policies.png", "kv-policies.svg", "kv-max_16.png", "kv-max_16.svg",
		"kv-paged_4.png", "kv-paged_4.svg",
		"kv-paged_4-blocks.png", "kv-paged_4-blocks.svg", "kv-oracle_firstfit.png", "kv-oracle_firstfit.svg",
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Error(diff)
	}
	if _, err := WritePlots(filepath.Join(dir, "none"), k); err == nil {
		t.Error("drew into a directory that is not there")
	}
}

// TestGoldenSweep: two policies at three rates, of which one is more than the first can serve.
func TestGoldenSweep(t *testing.T) {
	k := twoPolicies()
	k.Ranks, k.Card, k.Load, k.Sampling = 1, nil, "a.csv, 0.5 to 2 requests/s", "greedy"
	k.Timing = &timing.Timing{Name: "a card", Source: "measured", Model: "opt-13b", Ranks: 1, Error: 0.021}
	base := k.Results
	k.Results = nil
	for i, latency := range [][]float64{{0.05, 0.31, 4}, {0.04, 0.045, 0.06}} {
		for j, rate := range []float64{0.5, 1, 2} {
			r := *base[i]
			r.Map, r.Rate, r.Time = nil, rate, 3600e9
			r.Served = &kvcache.Served{
				Requests: min(rate, 0.9+float64(i)), Tokens: 338 * rate, Waiting: 10 * latency[j],
				Latency: kvcache.Spread{Mean: latency[j], P90: 1.5 * latency[j]},
			}
			k.Results = append(k.Results, &r)
		}
	}
	k.Results[0].Served.Latency = kvcache.Spread{Mean: math.NaN(), P90: math.NaN()} // none finished
	var text, object bytes.Buffer
	if err := Text(&text, k, layout.Options{}); err != nil {
		t.Fatal(err)
	}
	if err := JSON(&object, k); err != nil {
		t.Fatal(err)
	}
	reporttest.Golden(t, "kv-sweep.txt", text.Bytes())
	reporttest.Golden(t, "kv-sweep.json", object.Bytes())
	all := figures(k)
	if len(all) != 1 {
		t.Fatalf("%d figures of a sweep, want that of the latency", len(all))
	}
	reporttest.Golden(t, "kv-latency.svg", []byte(reporttest.SVG(t, all[0])))
}
