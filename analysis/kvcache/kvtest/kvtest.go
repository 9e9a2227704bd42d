// Package kvtest has what tests of several packages below kvcache share: sources of requests, and the
// comparison of a store's shares.
package kvtest

import (
	"io"
	"testing"

	"pgregory.net/rapid"

	"github.com/memprof/memprof/analysis/kvcache"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// List is a source of the requests in it.
type List []kvcache.Request

// Next takes the first request of the list.
func (l *List) Next() (kvcache.Request, error) {
	if len(*l) == 0 {
		return kvcache.Request{}, io.EOF
	}
	r := (*l)[0]
	*l = (*l)[1:]
	return r, nil
}

// RandomRequest draws a small request.
func RandomRequest(t *rapid.T) kvcache.Request {
	return kvcache.Request{
		Prompt:     rapid.IntRange(1, 40).Draw(t, "prompt"),
		Output:     rapid.IntRange(1, 20).Draw(t, "output"),
		Prompts:    rapid.IntRange(0, 2).Draw(t, "prompts"),
		Hashes:     rapid.SliceOfN(rapid.Uint64Range(0, 1), 0, 12).Draw(t, "hashes"),
		HashTokens: rapid.IntRange(1, 6).Draw(t, "hash tokens"),
	}
}

// CheckShares fails if the shares of a store do not add up or differ from want.
func CheckShares(t *testing.T, s kvcache.Store, capacity int64, want kvcache.Shares) {
	t.Helper()
	got := s.Shares(nil)
	assert.That(t, got.Sum() == capacity, "shares %+v sum to %d of %d", got, got.Sum(), capacity)
	assert.Diff(t, want, got, "shares")
}
