package kvcache

import (
	"context"
	"strings"
	"testing"
)

// same is a source of one request without end.
type same Request

func (s *same) Next() (Request, error) { return Request(*s), nil }

// TestNothingFits ends where no request of an endless source ever fits: a block larger than the memory.
func TestNothingFits(t *testing.T) {
	o := Options{Policy: Policy{Kind: Paged, Block: 1_000_000}, Capacity: 15_900, Steps: 10}
	_, err := Simulate(context.Background(), &same{Prompt: 100, Output: 20}, o)
	if err == nil || !strings.Contains(err.Error(), "paged:1000000: 1048576 requests in a row do not fit, the last of 120 tokens") {
		t.Errorf("Simulate() = %v, want an error that names the policy and the bound", err)
	}

	// A source that ends is read to its end, whatever fits.
	result := simulate(t, o, Request{Prompt: 100, Output: 20}, Request{Prompt: 100, Output: 20})
	if result.Rejected != 2 || result.Requests != 2 {
		t.Errorf("%d of %d requests were rejected, want 2 of 2", result.Rejected, result.Requests)
	}
}
