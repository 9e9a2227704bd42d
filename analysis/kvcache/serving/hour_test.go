package serving

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/memprof/memprof/analysis/kvcache"
	"github.com/memprof/memprof/analysis/kvcache/kvtest"
	"github.com/memprof/memprof/analysis/modeltest"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// The promise is 5 s for each policy on two cores that have nothing else to do. A test is to fail for what has
// become another order of work, so it allows more, of processor time.
const longest = 2 * time.Minute

// Twenty thousand requests over an hour of arrivals, more than the memory can serve at once.
func TestAnHourOfRequestsTakesSeconds(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	const requests, hour = 20_000, int64(time.Hour)
	random := rand.New(rand.NewPCG(3, 4))
	source := make(kvtest.List, requests)
	for i := range source {
		source[i] = kvcache.Request{
			Arrival: hour / requests * int64(i),
			Prompt:  min(1+int(random.ExpFloat64()*161), 1024), Output: min(1+int(random.ExpFloat64()*338), 1024),
		}
	}
	greedy := kvcache.Sampling{Kind: kvcache.Greedy, Width: 1}
	for _, test := range []struct {
		policy   string
		sampling kvcache.Sampling
	}{
		{"max:2048", greedy}, {"pow2", greedy}, {"oracle", greedy},
		{"paged:16", greedy}, {"paged:16", kvcache.Sampling{Kind: kvcache.Parallel, Width: 4}}, {"paged:16", kvcache.Sampling{Kind: kvcache.Beam, Width: 4}},
	} {
		policy, err := kvcache.ParsePolicy(test.policy)
		assert.NoError(t, err)
		o := kvcache.Options{Policy: policy, Capacity: 15728, MaxLength: 2048, StepTime: 25e6, Watermark: 0.01, Sampling: test.sampling}
		this := source
		start := modeltest.ProcessorTime(t)
		r, err := Simulate(context.Background(), &this, o)
		assert.NoError(t, err)
		took := modeltest.ProcessorTime(t) - start
		t.Logf("%s, %d a prompt: %v for %d steps, at most %d at once", test.policy, test.sampling.Width, took, r.Steps, r.Peak)
		assert.That(t, took <= longest && r.Finished == requests,
			"%s, %d a prompt: %d of %d requests took %v, want less than %v", test.policy, test.sampling.Width, r.Finished, requests, took, longest)
	}
}

// As many with prompts of Mooncake's length, 12,000 tokens in the mean, of which 400 conversations
// share beginnings.
func TestAnHourOfLongPromptsTakesSeconds(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	const requests, hour, piece = 20_000, int64(time.Hour), 512
	random := rand.New(rand.NewPCG(5, 6))
	source := make(kvtest.List, requests)
	for i := range source {
		r := kvcache.Request{
			Arrival: hour / requests * int64(i), HashTokens: piece,
			Prompt: 1 + min(int(random.ExpFloat64()*12_000), 100_000), Output: 1 + min(int(random.ExpFloat64()*340), 2_000),
		}
		pieces := (r.Prompt + piece - 1) / piece
		conversation, common := random.Uint64N(400), random.IntN(pieces+1)
		for j := range pieces {
			hash := conversation<<32 | uint64(j)
			if j >= common {
				hash = random.Uint64()
			}
			r.Hashes = append(r.Hashes, hash)
		}
		source[i] = r
	}
	o := kvcache.Options{Policy: kvcache.Policy{Kind: kvcache.Paged, Block: 16}, Capacity: 2_500_000, StepTime: 25e6, Watermark: 0.01}
	start := modeltest.ProcessorTime(t)
	r, err := Simulate(context.Background(), &source, o)
	assert.NoError(t, err)
	took := modeltest.ProcessorTime(t) - start
	t.Logf("%v for %d steps, at most %d at once, %d tokens found", took, r.Steps, r.Peak, r.PrefixTokens)
	assert.That(t, r.Finished == requests && r.PrefixTokens != 0, "%d of %d requests finished, %d tokens were found", r.Finished, requests, r.PrefixTokens)
	assert.That(t, took <= longest, "took %v, want less than %v", took, longest)
}
