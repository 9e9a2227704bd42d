package kv

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/memprof/memprof/analysis/kvcache"
	"github.com/memprof/memprof/analysis/kvcache/serving"
)

// MostShown bounds the caches that a report shows, and simulates: with 50,000 it took ten minutes, and 180 MB of text.
const MostShown = 16

// Largest returns the MostShown caches with the most bytes of slots, these first, or all caches as they come.
func Largest(caches []*Result) []*Result {
	if len(caches) <= MostShown {
		return caches
	}
	bytes := func(k *Result) int64 { return k.Recorded.Capacity * k.TokenBytes }
	largest := slices.Clone(caches)
	slices.SortStableFunc(largest, func(a, b *Result) int { return cmp.Compare(bytes(b), bytes(a)) })
	return largest[:MostShown]
}

// Simulate fills Policies: what contiguous policies and a paged one would have done with the
// recorded requests in a memory of the same capacity, had they come over and over, so that some
// always wait. The greatest length is the least power of two that holds every request.
func (k *Result) Simulate(ctx context.Context) error {
	k.Policies = nil
	if len(k.Requests) == 0 || k.Recorded.Capacity == 0 {
		return nil
	}
	longest := 1
	for i := range k.Requests {
		for longest < k.Requests[i].Length() {
			longest *= 2
		}
	}
	block := int(k.Block)
	if block == 0 {
		block = 16
	}
	const mostBlocks = 1 << 22 // that are worth the host's memory
	for _, p := range []kvcache.Policy{
		{Kind: kvcache.Max, Length: longest}, {Kind: kvcache.Pow2}, {Kind: kvcache.Oracle}, {Kind: kvcache.Paged, Block: block},
	} {
		if n := k.Recorded.Capacity / int64(block); p.Kind == kvcache.Paged && (n < 1 || n > mostBlocks) {
			continue
		}
		result, err := serving.Simulate(ctx, &endless{requests: k.Requests}, kvcache.Options{
			Policy: p, Capacity: k.Recorded.Capacity, Watermark: 0.01, Steps: simulatedSteps, Warmup: simulatedSteps / 10,
		})
		if err != nil {
			return fmt.Errorf("%s with the requests of the recording: %w", p, err)
		}
		k.Policies = append(k.Policies, result)
	}
	return nil
}

// simulatedSteps are enough for every request of a recording to come several times.
const simulatedSteps = 20_000

// MostServed bounds the requests of a simulation, as some policy may reject every one.
const MostServed = 1 << 18

// endless is a Source of requests that come over and over, MostServed of them.
type endless struct {
	requests []kvcache.Request
	next     int
}

func (e *endless) Next() (kvcache.Request, error) {
	if e.next == MostServed {
		return kvcache.Request{}, io.EOF
	}
	r := e.requests[e.next%len(e.requests)]
	e.next++
	r.Arrival = 0
	return r, nil
}
