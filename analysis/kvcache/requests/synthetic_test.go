package requests

import (
	"context"
	"errors"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/memprof/memprof/analysis/kvcache"
	"github.com/memprof/memprof/analysis/kvcache/kvtest"
	"github.com/memprof/memprof/analysis/kvcache/serving"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

func take(t *testing.T, src kvcache.Source, n int) []kvcache.Request {
	t.Helper()
	var out []kvcache.Request
	for range n {
		r, err := src.Next()
		assert.NoError(t, err)
		out = append(out, r)
	}
	return out
}

// TestSyntheticMeans draws enough that each mean is within 3 % of the published one.
func TestSyntheticMeans(t *testing.T) {
	for name, want := range map[string][2]float64{
		"sharegpt": {161.31, 337.99}, "alpaca": {19.31, 58.45}, "azure-conv": {1154.7, 211.1}, "azure-code": {2047.8, 27.9},
	} {
		src, err := Synthetic(name, Pace{Seed: 1})
		assert.NoError(t, err)
		const n = 200_000
		var prompt, output float64
		for _, r := range take(t, src, n) {
			assert.Must(t, r.Prompt >= 1 && r.Output >= 1 && r.Arrival == 0, "%s: %+v", name, r)
			prompt += float64(r.Prompt) / n
			output += float64(r.Output) / n
		}
		assert.That(t, math.Abs(prompt/want[0]-1) <= 0.03 && math.Abs(output/want[1]-1) <= 0.03,
			"%s: means of %.2f and %.2f, want %.2f and %.2f", name, prompt, output, want[0], want[1])
	}
	_, err := Synthetic("poems", Pace{})
	assert.That(t, err != nil && strings.Contains(err.Error(), "alpaca, azure-code, azure-conv, sharegpt"), "Synthetic(poems): %v, want the names", err)
}

func TestArrivalsArePoisson(t *testing.T) {
	pace := Pace{Rate: 20, Duration: 1000e9, Seed: 3}
	src, _ := Synthetic("alpaca", pace)
	all, err := ReadAll(src)
	assert.NoError(t, err)
	// 20,000 ± 3 standard deviations of 141, and gaps whose deviation is their mean.
	n := len(all)
	assert.That(t, n >= 19_576 && n <= 20_424, "%d arrivals in 1,000 s at 20 a second", n)
	var squares float64
	for i := 1; i < len(all); i++ {
		gap := float64(all[i].Arrival-all[i-1].Arrival) / 1e9
		assert.Must(t, gap >= 0, "request %d arrives before the one in front", i)
		squares += gap * gap / float64(len(all))
	}
	deviation := math.Sqrt(squares - 0.05*0.05)
	assert.That(t, math.Abs(deviation-0.05) <= 0.003, "gaps deviate by %.4f s, want 0.05", deviation)
	again, _ := Synthetic("alpaca", pace)
	if diff := cmp.Diff(all[:100], take(t, again, 100)); diff != "" {
		t.Error("the same seed made other requests", diff)
	}
	pace.Seed++
	other, _ := Synthetic("alpaca", pace)
	assert.That(t, !cmp.Equal(all[:100], take(t, other, 100)), "another seed made the same requests")
}

func TestRequestsOfAFile(t *testing.T) {
	const text = "prompt,output\n10,5\n3,5\n20,1\n4,9\n"
	open := func() kvcache.Source {
		src, err := NewCSV(strings.NewReader(text), "r.csv")
		assert.NoError(t, err)
		return src
	}
	got, err := ReadAll(Bounded(open(), 4))
	assert.That(t, err == nil && len(got) == 2 && got[0].Line == 3 && got[1].Line == 5, "bounded: %+v, %v, want lines 3 and 5", got, err)
	_, err = ReadAll(Limited(open(), "r.csv", 10))
	assert.That(t, errors.Is(err, ErrTooLong) && err.Error() == "r.csv:4: prompt of 20 tokens is longer than the model's limit of 10", "limited: %v", err)
	got, err = ReadAll(Paced(open(), Pace{Rate: 1, Seed: 5}))
	assert.That(t, err == nil && len(got) == 4 && got[1].Prompt == 3 && got[1].Arrival > got[0].Arrival, "paced: %+v, %v", got, err)
	all, _ := ReadAll(open())
	src, err := Draw(all, Pace{})
	assert.NoError(t, err)
	times := map[int]int{}
	for _, r := range take(t, src, 4000) {
		times[r.Line]++
	}
	for line := 2; line <= 5; line++ {
		n := times[line]
		assert.That(t, n >= 850 && n <= 1150, "line %d was drawn %d times of 4,000", line, n)
	}
	if _, err := Draw(nil, Pace{}); err == nil {
		t.Error("drew from nothing")
	}
	ended, _ := Draw(all, Pace{Rate: 1, Duration: 1})
	if _, err := ended.Next(); err != io.EOF {
		t.Errorf("an arrival within 1 ns: %v", err)
	}
}

// TestPrefixed: all prompts begin with the same tokens, whose full blocks are found from the second request on.
func TestPrefixed(t *testing.T) {
	src := prefixed(&kvtest.List{{Prompt: 10, Output: 1}, {Prompt: 30, Output: 1}}, 40)
	for _, want := range []int{50, 70} {
		r, err := src.Next()
		assert.That(t, err == nil && r.Prompt == want && len(r.Hashes) == 1 && r.HashTokens == 40,
			"%+v, %v; want a prompt of %d tokens, of which 40 are known", r, err, want)
	}
	src = prefixed(&kvtest.List{{Prompt: 10, Output: 1}, {Prompt: 30, Output: 1}}, 40)
	o := kvcache.Options{Policy: kvcache.Policy{Kind: kvcache.Paged, Block: 16}, Capacity: 160}
	r, err := serving.Simulate(context.Background(), src, o)
	assert.That(t, err == nil && r.PrefixTokens == 32, "found %d tokens, %v; want two blocks of 16", r.PrefixTokens, err)
}
