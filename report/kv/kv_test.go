package kv

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/memprof/memprof/analysis/kvcache"
	"github.com/memprof/memprof/analysis/kvcache/models"
	"github.com/memprof/memprof/analysis/kvcache/serving"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/report/layout"
	"github.com/memprof/memprof/report/reporttest"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// twoPolicies is a small memory of which every term occurs.
func twoPolicies() *Simulation {
	share := func(s kvcache.Shares) kvcache.Shares64 {
		m := kvcache.Means{}
		m.Add(s, 4)
		return m.Of(64)
	}
	a := kvcache.Shares{Token: 20, Reserve: 6, Internal: 14, Rounding: 8, Fragmented: 4, Blocked: 6, Idle: 6}
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
				Preemptions: 3, Recomputed: 1234, SwappedOut: 5, SwappedIn: 4,
				Sharing: kvcache.Sharing{LogicalBlocks: 80, SavedBySequences: 20, SavedByPrefix: 8, SavedByEqual: 2, Copies: 6, PrefixHits: 3, PrefixTokens: 24},
				Series:  []kvcache.Point{{Step: 1, Time: 25e6, Running: 7, Shares: b}, {Step: 4, Time: 100e6, Running: 6, Shares: b}},
			},
		},
	}
}

func TestGoldenKV(t *testing.T) {
	k := twoPolicies()
	var text, markdown, object bytes.Buffer
	assert.NoError(t, layout.WriteText(&text, layout.Options{}, Sections(k)...))
	assert.NoError(t, layout.WriteMarkdown(&markdown, Sections(k)...))
	assert.NoError(t, JSON(&object, k))
	reporttest.Golden(t, "kv.txt", text.Bytes())
	reporttest.Golden(t, "kv.md", markdown.Bytes())
	reporttest.Golden(t, "kv.json", object.Bytes())
	for i, line := range strings.Split(text.String(), "\n") {
		assert.That(t, plain.Width(line) <= 100, "line %d is %d wide", i+1, plain.Width(line))
	}
}

// The terms that JSON gives add up to the capacity.
func TestKVJSONAddsUp(t *testing.T) {
	var object bytes.Buffer
	assert.NoError(t, JSON(&object, twoPolicies()))
	var got jsonSimulation
	assert.NoError(t, json.Unmarshal(object.Bytes(), &got))
	for _, p := range got.Policies {
		m := p.Mean
		sum := m.Token + m.Reserve + m.Internal + m.External + m.Blocked + m.Idle + m.Cached + m.Null
		assert.That(t, sum == 1, "%s: the shares are %v in all", p.Policy, sum)
		assert.That(t, m.External == m.Rounding+m.Fragmented, "%s: external is %v, its parts are not", p.Policy, m.External)
	}
}

// What no step was counted of has no mean.
func TestKVWithoutSteps(t *testing.T) {
	k := &Simulation{Ranks: 1, Memory: 64, BytesPerToken: 1, Results: []*kvcache.Result{{Policy: "max:99", Capacity: 64, Requests: 1, Rejected: 1}}}
	var text, object bytes.Buffer
	assert.NoError(t, layout.WriteText(&text, layout.Options{}, Sections(k)...))
	assert.NoError(t, JSON(&object, k))
	assert.That(t, !strings.Contains(text.String(), "%") && strings.Contains(object.String(), `"mean": null`), "shares of nothing:\n%s\n%s", &text, &object)
}

// TestGoldenSweep: two policies at three rates, of which one is more than the first can serve.
func TestGoldenSweep(t *testing.T) {
	k := twoPolicies()
	k.Ranks, k.Card, k.Load, k.Sampling = 1, nil, "a.csv, 0.5 to 2 requests/s", "greedy"
	k.Timing = &serving.Timing{Measured: serving.Measured{Name: "a card", Source: "measured", Model: "opt-13b", Ranks: 1, Error: 0.021}}
	base := k.Results
	k.Results = nil
	for i, latency := range [][]float64{{0.05, 0.31, 4}, {0.04, 0.045, 0.06}} {
		for j, rate := range []float64{0.5, 1, 2} {
			r := *base[i]
			r.Rate, r.Time = rate, 3600e9
			r.Served = &kvcache.Served{
				Requests: min(rate, 0.9+float64(i)), Tokens: 338 * rate, Waiting: 10 * latency[j],
				Latency: kvcache.Spread{Mean: latency[j], P90: 1.5 * latency[j]},
			}
			k.Results = append(k.Results, &r)
		}
	}
	k.Results[0].Served.Latency = kvcache.Spread{Mean: math.NaN(), P90: math.NaN()} // none finished
	var text, object bytes.Buffer
	assert.NoError(t, layout.WriteText(&text, layout.Options{}, Sections(k)...))
	assert.NoError(t, JSON(&object, k))
	reporttest.Golden(t, "kv-sweep.txt", text.Bytes())
	reporttest.Golden(t, "kv-sweep.json", object.Bytes())
}
