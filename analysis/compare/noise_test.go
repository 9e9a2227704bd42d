package compare

import (
	"math/rand/v2"
	"testing"

	"github.com/memprof/memprof/trace/tracetest/assert"
)

// found is in how many of 4,000 comparisons of normal values around 100 and 100+shift, of a standard deviation, differ sees a change.
func found(n, m int, shift, deviation float64) float64 {
	source := rand.New(rand.NewPCG(39, uint64(n*100+m)))
	draw := func(n int, mean float64) []float64 {
		values := make([]float64, n)
		for i := range values {
			values[i] = mean + deviation*source.NormFloat64()
		}
		return values
	}
	const rounds = 4000
	hits := 0
	for range rounds {
		if _, beyond := differ(draw(n, 100), draw(m, 100+shift)); beyond {
			hits++
		}
	}
	return float64(hits) / rounds
}

// TestNoise: at most 5 % of comparisons of one job with itself are changes. A change of 2 % at five standard deviations is found in 98 %,
// and more runs find smaller ones.
func TestNoise(t *testing.T) {
	for _, n := range []int{2, 3, 4, 5, 8, 20} {
		got := found(n, n, 0, 1)
		assert.That(t, got <= 0.05, "%d against %d: %.3f are false alarms", n, n, got)
		if got := found(n, n, 2, 0.4); n > 2 && got < 0.98 {
			t.Errorf("%d against %d: %.3f of changes of 5 standard deviations are found", n, n, got)
		}
	}
	got := found(3, 20, 0, 1)
	assert.That(t, got <= 0.05, "3 against 20: %.3f are false alarms", got)
	few, many := found(3, 3, 5, 5), found(20, 20, 5, 5)
	assert.That(t, many >= 0.7 && few <= 0.3, "a change of one standard deviation is found in %.3f with 3 runs and in %.3f with 20", few, many)
}

func TestDiffer(t *testing.T) {
	for _, test := range []struct {
		base, with []float64
		effect     float64
		beyond     bool
	}{
		{[]float64{1}, []float64{2}, 1, true},
		{[]float64{1}, []float64{1}, 0, false},
		{[]float64{5, 5, 5}, []float64{4, 4, 4}, -1, true},          // exact repetitions
		{[]float64{1, 2, 3}, []float64{3.1, 4, 5}, 1, false},        // apart, by less than noise
		{[]float64{1, 2, 3}, []float64{30, 31, 32}, 1, true},        //
		{[]float64{1, 2, 3}, []float64{2.5, 31, 32}, 7. / 9, false}, // the ranges overlap
		{nil, []float64{1}, 0, false},
	} {
		effect, beyond := differ(test.base, test.with)
		assert.That(t, effect == test.effect && beyond == test.beyond, "%v, %v: %v, %v", test.base, test.with, effect, beyond)
	}
	assert.Equal(t, median([]float64{1, 2, 10, 40}), 6, "median")
}
