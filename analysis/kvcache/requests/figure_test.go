package requests

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/memprof/memprof/analysis/kvcache"
	"github.com/memprof/memprof/analysis/kvcache/serving"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// shareGPT are ShareGPT's conversations' first turns with a prompt of at most 1,024 tokens and at most
// 2,048 in all: 5,362; see samples/README.md.
func shareGPT(t *testing.T) []kvcache.Request {
	t.Helper()
	const path = "../../../samples/jobs/sharegpt_first_turns.csv"
	file, err := os.Open(path)
	assert.NoError(t, err)
	defer file.Close()
	src, err := NewCSV(file, path)
	assert.NoError(t, err)
	all, err := ReadAll(src)
	assert.NoError(t, err)
	assert.Must(t, len(all) == 5362, "%d first turns, want 5,362", len(all))
	return all
}

// Figure 2 of the vLLM paper, in percent of 12 GiB at 819,200 bytes a token: OPT-13B on a card of
// 40 GB, under a queue that is never empty. Of vLLM the paper says the tokens alone.
func TestFigureOfThePaper(t *testing.T) {
	lengths := shareGPT(t)
	const capacity = 12 << 30 / 819200
	assert.Must(t, capacity == 15728, "%d slots, want 15,728", capacity)
	none := math.NaN()
	for _, test := range []struct {
		policy                             kvcache.Policy
		token, reserve, internal, external float64
		within                             float64 // points
	}{
		{kvcache.Policy{Kind: kvcache.Max, Length: 2048}, 20.4, 13.3, 57.3, 8.9, 3},
		{kvcache.Policy{Kind: kvcache.Pow2}, 26.8, 17.9, 13.6, 41.6, 7},
		{kvcache.Policy{Kind: kvcache.Oracle}, 38.2, 25.2, 0, 36.6, 3},
		{kvcache.Policy{Kind: kvcache.Paged, Block: 16}, 96.3, none, none, none, 1},
	} {
		src, err := Draw(lengths, Pace{Seed: 1})
		assert.NoError(t, err)
		r, err := serving.Simulate(context.Background(), src, kvcache.Options{
			Policy: test.policy, Capacity: capacity, MaxLength: 2048, Watermark: 0.01, Steps: 200_000, Warmup: 2_000,
		})
		assert.NoError(t, err)
		m := r.Mean
		external := m.External() + m.Blocked + m.Idle // what the paper names so
		t.Logf("%v: token %.1f, reserve %.1f, internal %.1f, external %.1f; %.2f run", test.policy,
			100*m.Token, 100*m.Reserve, 100*m.Internal, 100*external, r.Batch)
		for _, share := range []struct {
			name      string
			got, want float64
		}{
			{"token", m.Token, test.token}, {"reserve", m.Reserve, test.reserve}, {"internal", m.Internal, test.internal},
			{"external", external, test.external},
		} {
			if math.Abs(100*share.got-share.want) > test.within {
				t.Errorf("%v: %s is %.1f %%, want %.1f within %v points", test.policy, share.name, 100*share.got, share.want, test.within)
			}
		}
		// Seven reservations of 2,048 fit, and what is beyond them can never be used.
		if test.policy.Kind == kvcache.Max && (r.Batch != 7 || r.Peak != 7 || m.Blocked != 1392.0/capacity || external != m.Blocked) {
			t.Errorf("%v requests of 2,048 run, and %v wait in vain, %v with what is lost; want 7 and 1,392 of 15,728 slots, with nothing", r.Batch, m.Blocked, external)
		}
	}
}

// setting is one of the paper's: OPT-13B, or a model of the same cache, on an A100 of 40 GB.
type setting struct {
	data     func(*testing.T) kvcache.Source
	policy   string
	sampling kvcache.Sampling
	steps    int64
	change   func(*kvcache.Options)
}

// saturated serves with a queue that is never empty. What finishes is what a policy sustains: beyond that rate
// latency grows without end, which is where the curves of the paper's figures rise.
func (s setting) saturated(t *testing.T) *kvcache.Result {
	t.Helper()
	timed, err := serving.TimingNamed("a100-40gb-opt-13b")
	assert.NoError(t, err)
	policy, err := kvcache.ParsePolicy(s.policy)
	assert.NoError(t, err)
	o := kvcache.Options{
		Policy: policy, Capacity: 15_728, MaxLength: 2048, Watermark: 0.01, Timing: timed, Saturated: true,
		Sampling: s.sampling, Steps: s.steps, Warmup: s.steps / 10, Seed: 1,
	}
	if s.change != nil {
		s.change(&o)
	}
	r, err := serving.Simulate(context.Background(), s.data(t), o)
	assert.NoError(t, err)
	return r
}

func ofShareGPT(t *testing.T) kvcache.Source {
	src, err := Draw(shareGPT(t), Pace{Seed: 1})
	assert.NoError(t, err)
	return src
}

func synthetic(name string) func(*testing.T) kvcache.Source {
	return func(t *testing.T) kvcache.Source {
		src, err := Synthetic(name, Pace{Seed: 1})
		assert.NoError(t, err)
		return src
	}
}

// within fails unless a value is as far from the paper's as was found, or nearer.
func within(t *testing.T, what string, got, least, most float64) {
	t.Helper()
	t.Logf("%s: %.3g, want %.3g to %.3g", what, got, least, most)
	assert.That(t, got >= least && got <= most, "%s: %.3g, want %.3g to %.3g", what, got, least, most)
}

// Figures 12 and 13a of the vLLM paper: OPT-13B and ShareGPT, by which factor more requests vLLM sustains than the
// policies of Orca, over the paper's models and data, and the mean batches.
func TestRatesOfThePaper(t *testing.T) {
	paged := setting{data: ofShareGPT, policy: "paged:16", steps: 60_000}.saturated(t)
	within(t, "paged: batch, 30.42 in the paper at 2 requests/s", paged.Batch, 30, 37)
	for _, test := range []struct {
		policy      string
		least, most float64 // the paper's factors
		batch       float64 // figure 13a
		within      float64
	}{
		{"oracle", 1.7, 2.7, 13.62, 0.1}, {"pow2", 1.7, 8, 9.81, 0.2}, {"max:2048", 2.7, 8, 7, 0.01},
	} {
		r := setting{data: ofShareGPT, policy: test.policy, steps: 60_000}.saturated(t)
		within(t, test.policy+": paged sustains times as many", paged.Served.Requests/r.Served.Requests, test.least, test.most)
		within(t, test.policy+": batch", r.Batch, test.batch*(1-test.within), test.batch*(1+test.within))
	}
}

// Figure 13b: Alpaca at 30 requests/s, which paged nearly sustains here. Prompts and outputs of an Oracle are some 78
// tokens, which a buddy allocator rounds up to 128 more often than the paper's lengths, of which only means are known.
func TestBatchesOfAlpaca(t *testing.T) {
	for _, test := range []struct {
		policy             string
		paper, least, most float64
	}{
		{"max:2048", 7, 6.99, 7.01}, {"pow2", 43.24, 27, 44}, {"oracle", 72.75, 48, 73}, {"paged:16", 132.44, 130, 135},
	} {
		r := setting{data: synthetic("alpaca"), policy: test.policy, steps: 20_000}.saturated(t)
		within(t, fmt.Sprintf("%s: batch, %v in the paper", test.policy, test.paper), r.Batch, test.least, test.most)
	}
}

// Figure 14: on Alpaca vLLM's advantage over an Oracle of Orca goes from 1.3 with one sequence to 2.3 with a beam of
// 6. Here it begins at 1.6, as that Oracle's batches are smaller (figure 13b), and ends at 2.1: beams share what
// the paper measured (TestSharingBesideThePaper), but time here has no cost of an Oracle's copies between beams.
func TestSamplingOfThePaper(t *testing.T) {
	const alpacaKeep = 0.945
	for _, test := range []struct {
		name        string
		kind        kvcache.SamplingKind
		width       int
		least, most float64
	}{
		{"one", kvcache.Greedy, 1, 1.3, 1.7}, {"parallel, 2", kvcache.Parallel, 2, 1.3, 1.8}, {"parallel, 6", kvcache.Parallel, 6, 1.3, 1.8},
		{"beam, 2", kvcache.Beam, 2, 1.6, 2.3}, {"beam, 6", kvcache.Beam, 6, 1.85, 2.3},
	} {
		sampling := kvcache.Sampling{Kind: test.kind, Width: test.width, Keep: alpacaKeep}
		var rates [2]float64
		for i, policy := range []string{"oracle", "paged:16"} {
			rates[i] = setting{data: synthetic("alpaca"), policy: policy, steps: 4_000, sampling: sampling}.saturated(t).Served.Requests
		}
		within(t, test.name+": paged sustains times as many", rates[1]/rates[0], test.least, test.most)
	}
}

// Figure 16: translations behind one and five examples of 80 and 341 tokens, which vLLM stores once: 1.67 and 3.58
// times the requests of an Oracle. The lengths of WMT16's sentences are ours.
func TestSharedPrefixOfThePaper(t *testing.T) {
	for _, test := range []struct {
		prefix int
		paper  float64
	}{{80, 1.67}, {341, 3.58}} {
		data := func(t *testing.T) kvcache.Source { return prefixed(synthetic("wmt16")(t), test.prefix) }
		var rates [2]float64
		for i, policy := range []string{"oracle", "paged:16"} {
			rates[i] = setting{data: data, policy: policy, steps: 15_000}.saturated(t).Served.Requests
		}
		within(t, fmt.Sprintf("%d tokens: paged sustains times as many, %v in the paper", test.prefix, test.paper), rates[1]/rates[0], 0.9*test.paper, 1.1*test.paper)
	}
}

// chat is conversations of ShareGPT's lengths, each turn a request whose prompt is what was said, at most its last
// 1,024 tokens. Conversations go on with a chance that gives them 5.4 turns, as many as the data set's have.
type chat struct {
	turns   []kvcache.Request
	random  *rand.Rand
	history int
}

func (c *chat) Next() (kvcache.Request, error) {
	const most, on = 1024, 1 - 1/5.4
	turn := c.turns[c.random.IntN(len(c.turns))]
	if c.random.Float64() > on {
		c.history = 0
	}
	c.history += turn.Prompt
	r := kvcache.Request{Prompt: min(c.history, most), Output: min(turn.Output, most)}
	c.history += r.Output
	return r, nil
}

// Figure 17: a chat. vLLM sustains twice the requests of the three policies of Orca, which are alike: most prompts have
// 1,024 tokens, and a buddy allocator makes 2,048 of them with any output. Here it is 1.5 to 1.65: the batch is 1.8 times
// as large, and larger batches take longer steps. The paper's conversations are not known.
func TestChatOfThePaper(t *testing.T) {
	data := func(t *testing.T) kvcache.Source {
		return &chat{turns: shareGPT(t), random: rand.New(rand.NewPCG(1, 1))}
	}
	paged := setting{data: data, policy: "paged:16", steps: 20_000}.saturated(t)
	for _, policy := range []string{"max:2048", "pow2", "oracle"} {
		r := setting{data: data, policy: policy, steps: 20_000}.saturated(t)
		within(t, policy+": paged sustains times as many, 2 in the paper", paged.Served.Requests/r.Served.Requests, 1.5, 2.4)
	}
}

// prefixed puts the same tokens before every prompt: examples, or the instructions of a system. What is behind them
// is not known to be equal to anything.
func prefixed(src kvcache.Source, tokens int) kvcache.Source {
	hashes := []uint64{1} // of the prefix, for all requests
	return sourceFunc(func() (kvcache.Request, error) {
		r, err := src.Next()
		if err != nil {
			return r, err
		}
		r.Prompt += tokens
		r.Hashes, r.HashTokens = hashes, tokens
		return r, nil
	})
}
