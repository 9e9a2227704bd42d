package stores

import (
	"testing"

	"github.com/memprof/memprof/analysis/kvcache"
	"github.com/memprof/memprof/analysis/kvcache/kvtest"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// pagedWith is a paged memory whose free list has the order given; blocks left out are gone.
func pagedWith(o kvcache.Options, order ...int32) *pagedStore {
	s := newPaged(o)
	for s.head != none {
		s.unlink(s.head)
	}
	for _, i := range order {
		s.push(i)
	}
	return s
}

// TestPagedSevenTokens is the article's picture: a prompt of 7 tokens in blocks of 4 takes the
// physical blocks 7 and 1, whose last slot the 8th token fills; the 9th takes block 3.
func TestPagedSevenTokens(t *testing.T) {
	s := pagedWith(kvcache.Options{Policy: kvcache.Policy{Kind: kvcache.Paged, Block: 4}, Capacity: 36}, 7, 1, 3, 0, 2, 4, 5, 6, 8)
	g := &kvcache.Group{ID: 1, Request: kvcache.Request{Prompt: 7, Output: 3}}
	assert.Must(t, s.Admit(g), "not admitted into an empty memory")
	steps := []struct {
		table  []int32
		filled []int32
		shares kvcache.Shares
	}{
		{[]int32{7, 1}, []int32{4, 3}, kvcache.Shares{Token: 7, Reserve: 1, Idle: 28}},
		{[]int32{7, 1}, []int32{4, 4}, kvcache.Shares{Token: 8, Idle: 28}},
		{[]int32{7, 1, 3}, []int32{4, 4, 1}, kvcache.Shares{Token: 9, Reserve: 1, Internal: 2, Idle: 24}},
		{[]int32{7, 1, 3}, []int32{4, 4, 2}, kvcache.Shares{Token: 10, Internal: 2, Idle: 24}},
	}
	for i, want := range steps {
		assert.Must(t, i <= 0 || s.Grow(g), "no room for token %d", 7+i)
		m := s.BlockMap()
		assert.Diff(t, []sequenceMap{{Request: 1, Tokens: 7 + i, Table: want.table}}, m.Sequences, "token %d: sequences", 7+i)
		for j, k := range want.table {
			if got := m.Blocks[k]; got != (blockState{References: 1, Filled: want.filled[j]}) {
				t.Errorf("token %d: block %d is %+v, want %d filled", 7+i, k, got, want.filled[j])
			}
		}
		kvtest.CheckShares(t, s, 36, want.shares)
	}
	s.Release(g)
	kvtest.CheckShares(t, s, 36, kvcache.Shares{Idle: 36})
}

// TestPagedExample has three sequences of (now, in the end) (8, 10), (4, 5) and (30, 40) tokens
// in 64 blocks of 16.
func TestPagedExample(t *testing.T) {
	s := newPaged(kvcache.Options{Policy: kvcache.Policy{Kind: kvcache.Paged, Block: 16}, Capacity: 1024})
	for i, r := range []kvcache.Request{{Prompt: 8, Output: 2}, {Prompt: 4, Output: 1}, {Prompt: 30, Output: 10}} {
		assert.Must(t, s.Admit(&kvcache.Group{ID: int64(i), Request: r}), "request %d not admitted", i)
	}
	kvtest.CheckShares(t, s, 1024, kvcache.Shares{Token: 42, Reserve: 5, Internal: 17, Idle: 960})
}

// TestPagedBounds looks at what is refused: beyond the memory, beyond the watermark, and growth
// without a free block, which changes nothing. 5 slots of 45 are no whole block.
func TestPagedBounds(t *testing.T) {
	s := newPaged(kvcache.Options{Policy: kvcache.Policy{Kind: kvcache.Paged, Block: 8}, Capacity: 45, Watermark: 0.5})
	for _, test := range []struct {
		request kvcache.Request
		want    bool
	}{
		{kvcache.Request{Prompt: 39, Output: 1}, true},
		{kvcache.Request{Prompt: 40, Output: 1}, false},
		{kvcache.Request{Prompt: 7, Output: 1, Prompts: 5}, true},
		{kvcache.Request{Prompt: 7, Output: 2, Prompts: 3}, false},
	} {
		assert.Equal(t, s.Possible(&test.request), test.want, "possible(%+v)", test.request)
	}
	first := &kvcache.Group{ID: 1, Request: kvcache.Request{Prompt: 8, Output: 16}}
	assert.Must(t, s.Admit(first), "the first is not admitted")
	assert.That(t, !s.Admit(&kvcache.Group{ID: 2, Request: kvcache.Request{Prompt: 17, Output: 1}}), "3 of 4 free blocks given although 2 must stay free")
	for prompt, want := range map[int]kvcache.Shares{
		16: {Token: 8, Rounding: 5, Idle: 32},
		17: {Token: 8, Rounding: 5, Blocked: 32},
	} {
		assert.Equal(t, s.Shares(&kvcache.Request{Prompt: prompt, Output: 1}), want, "with a prompt of %d waiting", prompt)
	}
	second := &kvcache.Group{ID: 3, Request: kvcache.Request{Prompt: 8, Output: 8, Prompts: 2}}
	assert.That(t, s.Admit(second), "2 of 4 free blocks not given")
	assert.That(t, s.Grow(first), "no growth into the watermark")
	before := s.Shares(nil)
	assert.That(t, !s.Grow(second), "two sequences grew into one block")
	kvtest.CheckShares(t, s, 45, before)
	kvtest.CheckShares(t, s, 45, kvcache.Shares{Token: 25, Reserve: 7, Rounding: 5, Idle: 8})
}

// TestPagedSwap moves a group out and in again; a host of 2 blocks has no room for 3.
func TestPagedSwap(t *testing.T) {
	o := kvcache.Options{Policy: kvcache.Policy{Kind: kvcache.Paged, Block: 4}, Capacity: 24}
	g := &kvcache.Group{ID: 1, Request: kvcache.Request{Prompt: 9, Output: 2}}
	small := newPaged(o)
	small.host = 2
	assert.Must(t, small.Admit(g) && !small.SwapOut(g), "3 blocks went to a host of 2")
	s := newPaged(o)
	s.host = 3
	other := &kvcache.Group{ID: 2, Request: kvcache.Request{Prompt: 9, Output: 5}}
	assert.Must(t, s.Admit(g) && s.Admit(other), "not admitted")
	with := s.Shares(nil)
	assert.Must(t, s.SwapOut(g), "not swapped out to a host of 3 blocks")
	kvtest.CheckShares(t, s, 24, kvcache.Shares{Token: 9, Reserve: 3, Idle: 12})
	assert.That(t, !s.SwapOut(other), "the host has no room, but took a second group")
	for range 4 {
		assert.Must(t, s.Grow(other), "no room to grow")
	}
	assert.That(t, !s.Admit(g), "came back without a block to go on with")
	s.Release(other)
	assert.Must(t, s.Admit(g), "did not come back")
	assert.Must(t, s.Admit(&kvcache.Group{ID: 3, Request: kvcache.Request{Prompt: 9, Output: 5}}), "not admitted")
	kvtest.CheckShares(t, s, 24, with)
	assert.That(t, s.swappedOut == 3 && s.swappedIn == 3 && s.host == 3, "out %d, in %d, host %d, want 3 of each", s.swappedOut, s.swappedIn, s.host)
}
