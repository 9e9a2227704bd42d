package serving

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/memprof/memprof/analysis/kvcache"
	"github.com/memprof/memprof/analysis/kvcache/kvtest"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// TestPagedSimulated runs random requests to their end: every state adds up, everything that
// fits is served, and a request preempted by swap comes back as it was.
func TestPagedSimulated(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := kvcache.Options{
			Policy:    kvcache.Policy{Kind: kvcache.Paged, Block: rapid.IntRange(1, 8).Draw(t, "block")},
			Capacity:  rapid.Int64Range(20, 300).Draw(t, "capacity"),
			MaxLength: 60,
			Sampling:  kvcache.Sampling{Kind: kvcache.SamplingKind(rapid.IntRange(0, 2).Draw(t, "kind")), Width: 1},
			Preempt:   kvcache.Preemption(rapid.IntRange(0, 1).Draw(t, "preempt")),
			Watermark: rapid.SampledFrom([]float64{0, 0.01, 0.2}).Draw(t, "watermark"),
			StepTime:  rapid.Int64Range(0, 1).Draw(t, "step time"),
		}
		if o.Sampling.Kind != kvcache.Greedy {
			o.Sampling.Width = rapid.IntRange(1, 4).Draw(t, "width")
		}
		var requests kvtest.List
		for i := range rapid.Int64Range(1, 30).Draw(t, "requests") {
			r := kvtest.RandomRequest(t)
			r.Arrival = 3 * i
			requests = append(requests, r)
		}
		n := int64(len(requests))
		r, err := Simulate(context.Background(), &requests, o)
		assert.NoError(t, err)
		assert.Must(t, r.Requests == n && r.Finished+r.Rejected == n, "%d requests, %d finished, %d rejected, of %d", r.Requests, r.Finished, r.Rejected, n)
		if r.SwappedIn != r.SwappedOut || o.Preempt == kvcache.Recompute && r.SwappedOut > 0 {
			t.Fatalf("%d swapped out, %d in", r.SwappedOut, r.SwappedIn)
		}
	})
}

// BenchmarkPagedSharing is 20,000 requests over an hour, at 30 ms a step, each way of sampling.
func BenchmarkPagedSharing(b *testing.B) {
	for _, sampling := range []kvcache.Sampling{{Kind: kvcache.Greedy, Width: 1}, {Kind: kvcache.Parallel, Width: 4}, {Kind: kvcache.Beam, Width: 4}} {
		b.Run(fmt.Sprintf("%d of %d", sampling.Kind, sampling.Width), func(b *testing.B) {
			for b.Loop() {
				random := rand.New(rand.NewPCG(1, 2))
				requests := make(kvtest.List, 20000)
				for i := range requests {
					requests[i] = kvcache.Request{Arrival: int64(i) * 180e6, Prompt: 1 + random.IntN(300), Output: 1 + random.IntN(600)}
					for range requests[i].Prompt/64 + 1 {
						requests[i].Hashes = append(requests[i].Hashes, random.Uint64N(4))
					}
					requests[i].HashTokens = 64
				}
				r, err := Simulate(context.Background(), &requests, kvcache.Options{
					Policy: kvcache.Policy{Kind: kvcache.Paged, Block: 16}, Capacity: 100000, Sampling: sampling, Watermark: 0.01, StepTime: 30e6,
				})
				assert.NoError(b, err)
				b.ReportMetric(100*r.SavedBySequences/r.LogicalBlocks, "%sequences")
				b.ReportMetric(100*r.SavedByPrefix/r.LogicalBlocks, "%prefix")
				b.ReportMetric(r.Batch, "batch")
			}
		})
	}
}
