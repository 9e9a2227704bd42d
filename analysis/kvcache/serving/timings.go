package serving

import (
	"fmt"
	"math"
	"strings"

	"github.com/memprof/memprof/analysis/kvcache/models"
)

// timings are the timings known by name.
//
// a100-40gb-opt-13b is worked out from the vLLM paper (SOSP 2023), which gives no step times. By Little's law
// the mean batch of figure 13 divided by the rate is how long a request runs: 30.42 requests at 2/s for
// ShareGPT's 338 generated tokens are 45.0 ms a step, 132.44 at 30/s for Alpaca's 58.45 are 75.5 ms. Of these
// the card's data sheet explains the keys and values read (819,200 bytes a slot at 1,555 GB/s: 0.527 µs; about
// 10,050 and 6,430 slots), and the weights read (16.5 ms) or the arithmetic (26 GFLOP a token at 60 % of
// 312 TFLOP/s: 0.137 ms; 45 and 176 tokens a step, prompts included), whichever is longer. The rest of both
// steps is 23.2 and 48.0 ms, a line over the batch: 15.8 ms and 0.243 ms a sequence, which is the engine of
// 2023. Swap is PCIe 4.0 at 24 GB/s; a pair is 4 · 5,120 · 40 operations at 40 % of 312 TFLOP/s.
//
// h200-llama-3-8b was measured: samples/jobs/kv_steps.py, torch 2.11 with CUDA graphs, random weights, one NVIDIA H200,
// 347 steps of 1 to 256 sequences, contexts of 128 to 4,096 tokens and chunks of at most 8,192. testdata has the
// steps. There is no engine around them: no scheduler, no sampling but of the greatest. swap is 64 copies of 2 MiB
// for 1,024 slots, both ways. Its keys and values are contiguous.
//
// h200-llama-3-8b-blocks has besides what blocks cost in samples/jobs/kv_blocks.py, on the same card: 644 ns for each
// that a sequence reads, by a kernel that reads 16 tokens at a time or a block, over blocks of 1 to 256 tokens; and
// 197 µs for each that is copied, 64 calls of cudaMemcpyAsync, of which Python takes some. A kernel that is better
// with small blocks, and copies in larger pieces, cost less.
var timings = []Timing{
	{
		Measured:     Measured{Name: "a100-40gb-opt-13b", Source: "worked out from the vLLM paper's batches and the A100's data sheet", Model: "opt-13b", Ranks: 1},
		Coefficients: Coefficients{Overhead: 15.8e6, Weights: 16.5e6, Token: 0.137e6, Sequence: 0.243e6, Context: 527, Pair: 6.6, Swap: 34_133},
	},
	{
		Measured:     Measured{Name: "h200-llama-3-8b", Source: "fitted to 347 steps on an NVIDIA H200, random weights, no engine around them", Model: "llama-3-8b", Ranks: 1, Error: 0.046},
		Coefficients: Coefficients{Weights: 5.783e6, Token: 22_590, Sequence: 12_360, Context: 23.47, Pair: 2.178, Swap: 2607},
	},
	{
		Measured:     Measured{Name: "h200-llama-3-8b-blocks", Source: "h200-llama-3-8b, with the cost of blocks in samples/jobs/kv_blocks.py", Model: "llama-3-8b", Ranks: 1, Error: 0.046},
		Coefficients: Coefficients{Weights: 5.783e6, Token: 22_590, Sequence: 12_360, Context: 23.47, Block: 644, Pair: 2.178, Swap: 2607, Piece: 197_000},
	},
}

// TimingNamed finds a timing by its name, in letters of any case.
func TimingNamed(name string) (Timing, error) {
	for _, t := range timings {
		if strings.EqualFold(t.Name, name) {
			return t, nil
		}
	}
	return Timing{}, fmt.Errorf("unknown timing %q: known are %s", name, strings.Join(TimingNames(), ", "))
}

// TimingNames are the names that [TimingNamed] knows.
func TimingNames() []string {
	var names []string
	for _, t := range timings {
		names = append(names, t.Name)
	}
	return names
}

// NearestTiming is the named timing of the model whose number of parameters is nearest, scaled to m on so many GPUs.
func NearestTiming(m *models.Model, ranks int) Timing {
	var best Timing
	nearest := math.Inf(1)
	for _, t := range timings {
		timed, err := models.Named(t.Model)
		if err != nil {
			continue
		}
		if distance := math.Abs(math.Log(float64(timed.Parameters) / float64(m.Parameters))); distance < nearest {
			best, nearest = t, distance
		}
	}
	return best.For(m, ranks)
}
