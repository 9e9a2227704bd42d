package serving

import (
	"context"
	"strings"
	"testing"

	"github.com/memprof/memprof/analysis/kvcache"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// same is a source of one request without end.
type same kvcache.Request

func (s *same) Next() (kvcache.Request, error) { return kvcache.Request(*s), nil }

// TestNothingFits ends where no request of an endless source ever fits: a block larger than the memory.
func TestNothingFits(t *testing.T) {
	o := kvcache.Options{Policy: kvcache.Policy{Kind: kvcache.Paged, Block: 1_000_000}, Capacity: 15_900, Steps: 10}
	_, err := Simulate(context.Background(), &same{Prompt: 100, Output: 20}, o)
	if err == nil || !strings.Contains(err.Error(), "paged:1000000: 1048576 requests in a row do not fit, the last of 120 tokens") {
		t.Errorf("Simulate() = %v, want an error that names the policy and the bound", err)
	}

	// A source that ends is read to its end, whatever fits.
	result := simulate(t, o, kvcache.Request{Prompt: 100, Output: 20}, kvcache.Request{Prompt: 100, Output: 20})
	assert.That(t, result.Rejected == 2 && result.Requests == 2, "%d of %d requests were rejected, want 2 of 2", result.Rejected, result.Requests)
}
