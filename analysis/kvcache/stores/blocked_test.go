package stores

import (
	"testing"

	"github.com/memprof/memprof/analysis/kvcache"
	"github.com/memprof/memprof/analysis/kvcache/models"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// Slots that are free but too few for the first waiting request are not lost: they wait. Only where those that are
// free would suffice together, and lie apart, are they fragmented, which is external.
func TestExternal(t *testing.T) {
	oracle, paged := kvcache.Policy{Kind: kvcache.Oracle}, kvcache.Policy{Kind: kvcache.Paged, Block: 4}
	uniform := kvcache.Policy{Kind: kvcache.Uniform, Block: 4, Slot: 1, Layers: []models.LayerKind{{Keep: models.Full, Layers: 1, Bytes: 1}}}
	for _, test := range []struct {
		name   string
		policy kvcache.Policy
		waits  int // tokens
		want   kvcache.Shares
	}{
		{"contiguous, larger than all that is free", oracle, 20, kvcache.Shares{Token: 14, Reserve: 2, Blocked: 16}},
		{"contiguous, larger than each piece", oracle, 12, kvcache.Shares{Token: 14, Reserve: 2, Fragmented: 16}},
		{"contiguous, as large as all pieces together", oracle, 16, kvcache.Shares{Token: 14, Reserve: 2, Fragmented: 16}},
		{"contiguous, as large as a piece", oracle, 8, kvcache.Shares{Token: 14, Reserve: 2, Idle: 16}},
		{"paged, as large as all that is free", paged, 16, kvcache.Shares{Token: 14, Reserve: 2, Idle: 16}},
		{"layered, larger than all that is free", uniform, 20, kvcache.Shares{Token: 14, Internal: 2, Blocked: 16}},
		{"paged, larger than all that is free", paged, 20, kvcache.Shares{Token: 14, Reserve: 2, Blocked: 16}},
	} {
		o := kvcache.Options{Policy: test.policy, Capacity: 32}
		s, err := New(o)
		assert.NoError(t, err)
		var groups []*kvcache.Group
		for i := range 4 {
			groups = append(groups, &kvcache.Group{ID: int64(i), Request: kvcache.Request{Prompt: 7, Output: 1}, Sequences: 1})
			assert.Must(t, s.Admit(groups[i]), "%s: request %d has no room", test.name, i)
		}
		s.Release(groups[0])
		s.Release(groups[2])
		got := s.Shares(&kvcache.Request{Prompt: test.waits - 1, Output: 1})
		assert.Equal(t, got, test.want, test.name)
		assert.Equal(t, got.External(), test.want.Fragmented, "%s: external", test.name)
		assert.Equal(t, got.Sum(), o.Capacity, "%s: in all", test.name)
	}
}
