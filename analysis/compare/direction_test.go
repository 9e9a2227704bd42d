package compare

import (
	"slices"
	"testing"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// TestVerdict: what is better is so by the direction of the metric, and nothing within noise is.
func TestVerdict(t *testing.T) {
	change := func(metric string, base, with float64, runs int) string {
		c := Change{Direction: DirectionOf(metric), Base: Spread{Runs: runs, Min: base - 1, Median: base, Max: base + 1}, New: Spread{Runs: 1, Min: with, Median: with, Max: with}}
		if runs == 1 {
			c.Base.Min, c.Base.Max = base, base
		}
		c.Beyond = runs == 1 || with > base+2
		return c.Verdict()
	}
	for _, test := range []struct {
		metric     string
		base, with float64
		runs       int
		want       string
	}{
		{"reserved.peak", 10, 12, 1, "worse"}, {"reserved.peak", 12, 10, 1, "better"}, {"reserved.peak", 10, 10, 1, ""},
		{"reserved.peak", 10, 12, 2, ""}, {"reserved.peak", 10, 13, 2, "worse"},
		{"kv.token", 0.4, 0.6, 1, "better"}, {"kv.token", 0.6, 0.4, 1, "worse"},
		{"category.weights", 0.4, 0.6, 1, ""}, {"category.weights.bytes", 4, 6, 1, "worse"},
	} {
		got := change(test.metric, test.base, test.with, test.runs)
		assert.That(t, got == test.want, "%s from %v to %v over %d runs: %q, want %q", test.metric, test.base, test.with, test.runs, got, test.want)
	}
	var names []string
	for _, m := range analysis.Metrics() {
		names = append(names, m.Name)
	}
	for _, name := range slices.Concat(higher, neither) {
		assert.That(t, slices.Contains(names, name), "there is no metric %s", name)
	}
}
