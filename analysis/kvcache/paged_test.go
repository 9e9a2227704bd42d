package kvcache

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// pagedWith is a paged memory whose free list has the order given; blocks left out are gone.
func pagedWith(o Options, order ...int32) *paged {
	s := newPaged(o).(*paged)
	for s.head != none {
		s.unlink(s.head)
	}
	for _, i := range order {
		s.push(i)
	}
	return s
}

// checkPaged fails if the shares do not add up or differ from want.
func checkPaged(t *testing.T, s store, capacity int64, want Shares) {
	t.Helper()
	got := s.shares(nil)
	if got.Sum() != capacity {
		t.Errorf("shares %+v sum to %d of %d", got, got.Sum(), capacity)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("shares (-want +got):\n%s", diff)
	}
}

// TestPagedSevenTokens is the article's picture: a prompt of 7 tokens in blocks of 4 takes the
// physical blocks 7 and 1, whose last slot the 8th token fills; the 9th takes block 3.
func TestPagedSevenTokens(t *testing.T) {
	s := pagedWith(Options{Policy: Policy{Kind: Paged, Block: 4}, Capacity: 36}, 7, 1, 3, 0, 2, 4, 5, 6, 8)
	g := &group{id: 1, request: Request{Prompt: 7, Output: 3}}
	if !s.admit(g) {
		t.Fatal("not admitted into an empty memory")
	}
	steps := []struct {
		table  []int32
		filled []int32
		shares Shares
	}{
		{[]int32{7, 1}, []int32{4, 3}, Shares{Token: 7, Reserve: 1, Idle: 28}},
		{[]int32{7, 1}, []int32{4, 4}, Shares{Token: 8, Idle: 28}},
		{[]int32{7, 1, 3}, []int32{4, 4, 1}, Shares{Token: 9, Reserve: 1, Internal: 2, Idle: 24}},
		{[]int32{7, 1, 3}, []int32{4, 4, 2}, Shares{Token: 10, Internal: 2, Idle: 24}},
	}
	for i, want := range steps {
		if i > 0 && !s.grow(g) {
			t.Fatalf("no room for token %d", 7+i)
		}
		m := s.blockMap()
		if diff := cmp.Diff([]SequenceMap{{Request: 1, Tokens: 7 + i, Table: want.table}}, m.Sequences); diff != "" {
			t.Errorf("token %d: sequences (-want +got):\n%s", 7+i, diff)
		}
		for j, k := range want.table {
			if got := m.Blocks[k]; got != (BlockState{References: 1, Filled: want.filled[j]}) {
				t.Errorf("token %d: block %d is %+v, want %d filled", 7+i, k, got, want.filled[j])
			}
		}
		checkPaged(t, s, 36, want.shares)
	}
	s.release(g)
	checkPaged(t, s, 36, Shares{Idle: 36})
}

// TestPagedExample has three sequences of (now, in the end) (8, 10), (4, 5) and (30, 40) tokens
// in 64 blocks of 16, of which one is the null block.
func TestPagedExample(t *testing.T) {
	s := newPaged(Options{Policy: Policy{Kind: Paged, Block: 16}, Capacity: 1024, NullBlock: true})
	for i, r := range []Request{{Prompt: 8, Output: 2}, {Prompt: 4, Output: 1}, {Prompt: 30, Output: 10}} {
		if !s.admit(&group{id: int64(i), request: r}) {
			t.Fatalf("request %d not admitted", i)
		}
	}
	checkPaged(t, s, 1024, Shares{Token: 42, Reserve: 5, Internal: 17, Idle: 944, Null: 16})
}

// TestPagedBounds looks at what is refused: beyond the memory, beyond the watermark, and growth
// without a free block, which changes nothing. 5 slots of 45 are no whole block.
func TestPagedBounds(t *testing.T) {
	s := newPaged(Options{Policy: Policy{Kind: Paged, Block: 8}, Capacity: 45, Watermark: 0.3}).(*paged)
	for _, test := range []struct {
		request Request
		want    bool
	}{
		{Request{Prompt: 39, Output: 1}, true},
		{Request{Prompt: 40, Output: 1}, false},
		{Request{Prompt: 7, Output: 1, Prompts: 5}, true},
		{Request{Prompt: 7, Output: 2, Prompts: 3}, false},
	} {
		if got := s.possible(&test.request); got != test.want {
			t.Errorf("possible(%+v) = %v", test.request, got)
		}
	}
	first := &group{id: 1, request: Request{Prompt: 8, Output: 16}}
	if !s.admit(first) {
		t.Fatal("the first is not admitted")
	}
	if s.admit(&group{id: 2, request: Request{Prompt: 17, Output: 1}}) {
		t.Error("3 of 4 free blocks given although 2 must stay free")
	}
	for prompt, want := range map[int]Shares{
		16: {Token: 8, Rounding: 5, Idle: 32},
		17: {Token: 8, Rounding: 5, Fragmented: 32},
	} {
		if got := s.shares(&Request{Prompt: prompt, Output: 1}); got != want {
			t.Errorf("with a prompt of %d waiting: %+v, want %+v", prompt, got, want)
		}
	}
	second := &group{id: 3, request: Request{Prompt: 8, Output: 8, Prompts: 2}}
	if !s.admit(second) {
		t.Error("2 of 4 free blocks not given")
	}
	if !s.grow(first) {
		t.Error("no growth into the watermark")
	}
	before := s.shares(nil)
	if s.grow(second) {
		t.Error("two sequences grew into one block")
	}
	checkPaged(t, s, 45, before)
	checkPaged(t, s, 45, Shares{Token: 25, Reserve: 7, Rounding: 5, Idle: 8})
}

// TestPagedSwap moves a group out and in again; a host of 2 blocks has no room for 3.
func TestPagedSwap(t *testing.T) {
	o := Options{Policy: Policy{Kind: Paged, Block: 4}, Capacity: 24, SwapBlocks: 2}
	g := &group{id: 1, request: Request{Prompt: 9, Output: 2}}
	small := newPaged(o)
	if !small.admit(g) || small.swapOut(g) {
		t.Fatal("3 blocks went to a host of 2")
	}
	o.SwapBlocks = 3
	s := newPaged(o).(*paged)
	other := &group{id: 2, request: Request{Prompt: 9, Output: 5}}
	if !s.admit(g) || !s.admit(other) {
		t.Fatal("not admitted")
	}
	with := s.shares(nil)
	if !s.swapOut(g) {
		t.Fatal("not swapped out to a host of 3 blocks")
	}
	checkPaged(t, s, 24, Shares{Token: 9, Reserve: 3, Idle: 12})
	if s.swapOut(other) {
		t.Error("the host has no room, but took a second group")
	}
	for range 4 {
		if !s.grow(other) {
			t.Fatal("no room to grow")
		}
	}
	if s.admit(g) {
		t.Error("came back without a block to go on with")
	}
	s.release(other)
	if !s.admit(g) {
		t.Fatal("did not come back")
	}
	if !s.admit(&group{id: 3, request: Request{Prompt: 9, Output: 5}}) {
		t.Fatal("not admitted")
	}
	checkPaged(t, s, 24, with)
	if s.swappedOut != 3 || s.swappedIn != 3 || s.host != 3 {
		t.Errorf("out %d, in %d, host %d, want 3 of each", s.swappedOut, s.swappedIn, s.host)
	}
}
