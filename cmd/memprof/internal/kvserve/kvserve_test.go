package kvserve

import (
	"testing"

	"github.com/memprof/memprof/analysis/kvcache"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// The host's memory is counted in what is swapped: 16 tokens of 819,200 bytes.
func TestSwapMemoryIsCountedInBlocks(t *testing.T) {
	paged := kvcache.Policy{Kind: kvcache.Paged, Block: 16}
	for _, test := range []struct {
		swap   int64
		policy kvcache.Policy
		want   int64
	}{
		{0, paged, 0}, {1 << 30, paged, 81}, {1, paged, 1},
		{1 << 30, kvcache.Policy{Kind: kvcache.Oracle}, 0},
	} {
		r := Runs{Swap: test.swap}
		got := r.swapBlocks(test.policy, 819_200)
		assert.That(t, got == test.want, "%d bytes hold %d of %v, want %d", test.swap, got, test.policy, test.want)
	}
}
