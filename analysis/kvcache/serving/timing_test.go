package serving

import (
	"encoding/csv"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/memprof/memprof/analysis/kvcache"
	"github.com/memprof/memprof/analysis/kvcache/models"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// TestStep: each term of the model, by hand.
func TestStep(t *testing.T) {
	c := Coefficients{Overhead: 1000, Weights: 500, Token: 10, Sequence: 7, Context: 3, Pair: 2, Swap: 5}
	for _, test := range []struct {
		name string
		work kvcache.Work
		want int64
	}{
		{"the weights are read for nothing, too", kvcache.Work{}, 1500},
		{"50 tokens wait for the weights", kvcache.Work{Prefill: 50}, 1500},
		{"51 do not", kvcache.Work{Prefill: 51}, 1510},
		{"sequences", kvcache.Work{Decode: 2, Context: 100}, 1500 + 14 + 300},
		{"pairs and copies", kvcache.Work{Prefill: 4, Pairs: 10, Swapped: 3}, 1500 + 20 + 15},
	} {
		assert.Equal(t, c.Step(test.work), test.want, "%s", test.name)
	}
}

// TestPipeline: each of two stages has half of the sequences, and a step reads all weights.
func TestPipeline(t *testing.T) {
	c := Coefficients{Overhead: 1000, Weights: 500, Token: 10, Sequence: 7, Context: 3}
	got := (Pipeline{c, 2}).Step(kvcache.Work{Decode: 8, Context: 101})
	assert.That(t, got == 1500+28+153, "%d ns", got)
}

// TestFit: the coefficients that made the steps are found, and the deviation is that of the noise.
func TestFit(t *testing.T) {
	want := Coefficients{Overhead: 2e6, Weights: 6e6, Token: 40e3, Sequence: 15e3, Context: 31, Pair: 8, Swap: 900}
	for _, noise := range []float64{0, 0.02} {
		random := rand.New(rand.NewPCG(1, 2))
		var steps []Step
		for range 2000 {
			w := kvcache.Work{Decode: random.Int64N(200)}
			w.Context = w.Decode * (100 + random.Int64N(2000))
			if random.IntN(3) == 0 {
				w.Prefill = 1 + random.Int64N(2000)
				w.Pairs = float64(w.Prefill) * float64(w.Prefill+1) / 2
			}
			if random.IntN(8) == 0 {
				w.Swapped = random.Int64N(3000)
			}
			steps = append(steps, Step{w, float64(want.Step(w)) * (1 + noise*(2*random.Float64()-1))})
		}
		got, missed, err := Fit(steps)
		assert.NoError(t, err)
		tolerance := 0.002 + 4*noise
		for _, c := range []struct {
			name      string
			got, want float64
		}{
			{"overhead", got.Overhead, want.Overhead}, {"weights", got.Weights, want.Weights}, {"token", got.Token, want.Token},
			{"sequence", got.Sequence, want.Sequence}, {"context", got.Context, want.Context}, {"pair", got.Pair, want.Pair}, {"swap", got.Swap, want.Swap},
		} {
			assert.That(t, math.Abs(c.got-c.want) <= tolerance*c.want, "noise %v: %s %v, want %v", noise, c.name, c.got, c.want)
		}
		assert.That(t, missed <= 0.0005+0.6*noise, "noise %v: deviation %v", noise, missed)
	}
}

// TestLeastOf: the least of very many costs is found with a few tries, also at the ends.
func TestLeastOf(t *testing.T) {
	for _, n := range []int{1, 2, 23, 24, 25, 47, 48, 600, 601, 1_000_000} {
		for _, least := range []int{0, min(1, n-1), n / 3, max(0, n-2), n - 1} {
			tries := 0
			if got := leastOf(n, func(i int) float64 {
				tries++
				return math.Abs(float64(i - least))
			}); got != least {
				t.Errorf("of %d, number %d is taken for the least, want %d", n, got, least)
			}
			assert.That(t, tries <= 300, "of %d, %d were tried", n, tries)
		}
	}
}

// TestFitWithout: what no step is about has no coefficient, and few steps are refused.
func TestFitWithout(t *testing.T) {
	var steps []Step
	for i := range int64(40) {
		steps = append(steps, Step{kvcache.Work{Decode: 1 + i%8, Context: 100 * (1 + i%8)}, 1e6})
	}
	c, missed, err := Fit(steps)
	assert.That(t, err == nil && c.Pair == 0 && c.Swap == 0 && missed <= 1e-6, "%+v, %v, %v", c, missed, err)
	if _, _, err := Fit(steps[:15]); err != ErrTooFew {
		t.Errorf("15 steps: %v", err)
	}
}

// TestFor: a model of half the parameters on two GPUs.
func TestFor(t *testing.T) {
	timed := Timing{Measured: Measured{Model: "opt-13b", Ranks: 1}, Coefficients: Coefficients{Overhead: 40, Weights: 100, Token: 10, Sequence: 3, Context: 8, Pair: 6, Swap: 80}}
	same, _ := models.Named("opt-13b")
	assert.That(t, timed.For(&same, 1) == timed, "the timed model is scaled")
	m, err := models.Named("opt-6.7b") // 32 layers of 32 heads of 128; opt-13b has 40 of 40 of 128
	assert.NoError(t, err)
	got := timed.For(&m, 2)
	parameters := 6_658_473_984.0 / 12_853_473_280 / 2
	want := Coefficients{
		Overhead: 32, Weights: 100 * parameters, Token: 10 * parameters, Sequence: 3,
		Context: 8 * 262144.0 / 819200, Pair: 6 * (32 * 32.0) / (40 * 40) / 2, Swap: 80 * 262144.0 / 819200,
	}
	assert.That(t, got.Coefficients == want && strings.Contains(got.Source, "opt-13b on 1 GPU"), "%+v\nwant %+v", got, want)
}

// TestNamed: the vLLM paper's batches follow from its rates.
func TestNamed(t *testing.T) {
	timing, err := TimingNamed("A100-40GB-OPT-13B")
	assert.NoError(t, err)
	for _, test := range []struct {
		data                        string
		rate, prompt, output, batch float64
	}{{"ShareGPT", 2, 161.31, 337.99, 30.42}, {"Alpaca", 30, 19.31, 58.45, 132.44}} {
		var step float64 = 0.05
		for range 100 {
			step = float64(timing.Step(kvcache.Work{
				Prefill: int64(math.Round(test.rate * step * test.prompt)), Decode: int64(math.Round(test.batch)),
				Context: int64(test.batch * (test.prompt + test.output/2)),
			})) / 1e9
		}
		batch := test.rate * test.output * step
		assert.That(t, math.Abs(batch/test.batch-1) <= 0.02, "%s: a batch of %.2f, the paper has %.2f", test.data, batch, test.batch)
	}
	if _, err := TimingNamed("h100"); err == nil || !strings.Contains(err.Error(), "a100-40gb-opt-13b") {
		t.Errorf("an unknown name: %v", err)
	}
}

// TestRead: what calibrate writes, and what it does not.
func TestRead(t *testing.T) {
	got, err := ReadTiming(strings.NewReader(`{"name":"x","source":"y","model":"opt-13b","ranks":1,"error":0.01,"overhead_ns":5,"weights_ns":0,"token_ns":1,"sequence_ns":0,"context_ns":0,"pair_ns":0,"swap_ns":0}`))
	assert.That(t, err == nil && got.Overhead == 5 && got.Token == 1 && got.Error == 0.01, "%+v, %v", got, err)
	for text, want := range map[string]string{
		`{"overhead_ns":-1}`: "overhead_ns -1: want 0 or more", `{}`: "all coefficients are 0", `{"speed":1}`: "unknown field", `{"ranks":-2,"token_ns":1}`: "ranks -2",
	} {
		_, err := ReadTiming(strings.NewReader(text))
		assert.That(t, err != nil && strings.Contains(err.Error(), want), "%s: %v, want %q", text, err, want)
	}
}

// TestMeasured: the timing of the H200 is the fit of the steps that were recorded there.
func TestMeasured(t *testing.T) {
	file, err := os.Open("testdata/h200-llama-3-8b.csv")
	assert.NoError(t, err)
	defer file.Close()
	rows, err := csv.NewReader(file).ReadAll()
	assert.NoError(t, err)
	var steps []Step
	for _, row := range rows[1:] {
		var n [5]float64
		for i := range n {
			if n[i], err = strconv.ParseFloat(row[i], 64); err != nil {
				t.Fatal(err)
			}
		}
		steps = append(steps, Step{kvcache.Work{Prefill: int64(n[0]), Pairs: n[1], Decode: int64(n[2]), Context: int64(n[3])}, n[4]})
	}
	got, missed, err := Fit(steps)
	assert.NoError(t, err)
	want, err := TimingNamed("h200-llama-3-8b")
	assert.NoError(t, err)
	for _, c := range [][2]float64{
		{got.Overhead, want.Overhead}, {got.Weights, want.Weights}, {got.Token, want.Token}, {got.Sequence, want.Sequence},
		{got.Context, want.Context}, {got.Pair, want.Pair}, {missed, want.Error},
	} {
		assert.That(t, math.Abs(c[0]-c[1]) <= 0.01*c[1], "fitted %v, named %v", c[0], c[1])
	}
	// Steps of prompts and of generation apart: neither is fitted at the expense of the other.
	for _, prompts := range []bool{true, false} {
		var some []Step
		for _, s := range steps {
			if s.Prefill > 0 == prompts {
				some = append(some, s)
			}
		}
		d := deviation(want.Coefficients, some)
		assert.That(t, d <= 0.07, "prompts %v: %.3f off in the mean of %d steps", prompts, d, len(some))
	}
}
