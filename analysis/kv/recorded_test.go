package kv

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/memprof/memprof/analysis/kvcache"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// must fails the test on the first error of several calls.
func must(t *testing.T, errs ...error) {
	t.Helper()
	for i, err := range errs {
		assert.Must(t, err == nil, "call %d: %v", i, err)
	}
}

// TestRecordedContiguous is the memory of figure 3 of the vLLM paper in small: two reservations of
// 8 and 4 slots in 16. The first fills 3 of its 8, the second all of its 4, of which 1 is padding.
func TestRecordedContiguous(t *testing.T) {
	r := NewAccount(Description{Engine: "mine", TokenBytes: 10})
	c, err := r.Cache(0, 16, 0)
	must(t, err,
		c.Reserve(0, 1, 0, 8, 2), c.Append(0, 1, 2), // until 10: 2 of 8
		c.Reserve(10, 2, 1, 4, 0), c.Append(10, 2, 2), // until 20: 2 of 8, 2 of 3
		c.Append(20, All, 1), // until 30: 3 of 8, 3 of 3
		c.Append(30, 2, 0),   // until 40: the second has ended
		c.Free(40, 1, 0), c.Free(40, 2, 0),
		c.End(50))
	must(t, r.Check())
	got := r.Result()
	if diff := cmp.Diff([]kvcache.Point{
		{Step: 1, Time: 0, Running: 1, Shares: kvcache.Shares{Token: 2, Reserve: 1, Internal: 5, Idle: 8}},
		{Step: 2, Time: 10, Running: 2, Shares: kvcache.Shares{Token: 4, Reserve: 2, Internal: 6, Idle: 4}},
		{Step: 3, Time: 20, Running: 2, Shares: kvcache.Shares{Token: 6, Reserve: 0, Internal: 6, Idle: 4}},
		{Step: 4, Time: 30, Running: 1, Shares: kvcache.Shares{Token: 3, Reserve: 0, Internal: 9, Idle: 4}},
		{Step: 5, Time: 40, Shares: kvcache.Shares{Idle: 16}},
	}, got.Series); diff != "" {
		t.Errorf("series (-want +got):\n%s", diff)
	}
	near := cmpopts.EquateApprox(0, 1e-12)
	assert.Diff(t, kvcache.Shares64{Token: 15. / 64, Reserve: 3. / 64, Internal: 26. / 64, Idle: 20. / 64}, got.Mean, near, "mean")
	assert.That(t, got.Batch == 1.5 && got.Peak == 2 && got.Steps == 2 && got.Capacity == 16,
		"batch %v, peak %d, steps %d, capacity %d; want 1.5, 2, 2, 16", got.Batch, got.Peak, got.Steps, got.Capacity)
	assert.Diff(t, []kvcache.Request{{Arrival: 10, Prompt: 2, Output: 1}, {Arrival: 0, Prompt: 2, Output: 1}}, r.Requests, "requests")
}

// TestRecordedGrowing is a cache without a capacity, of two rows: the second has one slot of padding.
func TestRecordedGrowing(t *testing.T) {
	r := NewAccount(Description{})
	c, err := r.Cache(0, 0, 0)
	must(t, err,
		c.Reserve(0, 0, 0, 3, 3), c.Append(0, 0, 3), c.Reserve(0, 1, 1, 3, 2), c.Append(0, 1, 2),
		c.Append(10, 1, 0),
		c.Reserve(10, All, 0, 1, 0), c.Append(10, All, 1),
		c.Append(20, 0, 0),
		c.End(20))
	must(t, r.Check())
	want := []kvcache.Point{
		{Step: 1, Time: 0, Running: 2, Shares: kvcache.Shares{Token: 5, Internal: 1}},
		{Step: 2, Time: 10, Running: 1, Shares: kvcache.Shares{Token: 4, Internal: 4}},
	}
	assert.Diff(t, want, r.Result().Series, "series")
}

// TestRecordedSwap: a sequence of 6 tokens in two blocks of 4 goes to the host, its blocks serve another, and it comes
// back in two calls.
func TestRecordedSwap(t *testing.T) {
	r := NewAccount(Description{Block: 4})
	c, err := r.Cache(0, 16, 0)
	must(t, err,
		c.Reserve(0, 1, 0, 8, 6), c.Append(0, 1, 6),
		c.SwapOut(10, 1, 0), c.Reserve(10, 2, 0, 4, 3), c.Append(10, 2, 3),
		c.SwapIn(20, 1, 2, 4), c.SwapIn(20, 1, 1, 4), c.Append(20, 1, 1),
		c.Free(30, 1, 0), c.End(30))
	must(t, r.Check())
	got := r.Result()
	if diff := cmp.Diff([]kvcache.Point{
		{Step: 1, Time: 0, Running: 1, Shares: kvcache.Shares{Token: 6, Internal: 2, Idle: 8}},
		{Step: 2, Time: 10, Running: 1, Shares: kvcache.Shares{Token: 3, Internal: 1, Idle: 12}},
		{Step: 3, Time: 20, Running: 2, Shares: kvcache.Shares{Token: 10, Internal: 2, Idle: 4}},
	}, got.Series); diff != "" {
		t.Errorf("series (-want +got):\n%s", diff)
	}
	assert.That(t, got.SwappedOut == 2 && got.SwappedIn == 2 && got.Finished == 2,
		"%d blocks out, %d in, %d finished; want 2, 2, 2", got.SwappedOut, got.SwappedIn, got.Finished)
	assert.Diff(t, []kvcache.Request{{Prompt: 6, Output: 1}, {Arrival: 10, Prompt: 3, Output: 1}}, r.Requests, "requests")
	for what, err := range map[string]error{
		"no slots": c.SwapOut(30, 7, 0), "not on the host": c.SwapIn(30, 7, 0, 4), "too many": c.SwapOut(30, 7, 1<<50),
	} {
		assert.That(t, err != nil, "%s: no error", what)
	}
	// What a recording that begins later gets: a sequence on the host with its tokens.
	must(t, c.SwapOut(30, 8, 5), c.Free(40, 8, 0))
}

// TestRecordedPaged is example 10.2 in small, and then sharing: blocks of 4, one null of 8.
func TestRecordedPaged(t *testing.T) {
	r := NewAccount(Description{Block: 4})
	c, err := r.Cache(0, 32, 1)
	must(t, err,
		c.Reserve(0, 7, 1, 8, 5), c.Append(0, 7, 5), // blocks 1, 2
		c.Share(10, 8, 1, 4, -1), c.Reserve(10, 8, 5, 4, 0), c.Append(10, 8, 6), // blocks 1, 5
		c.Append(20, All, 1),
		c.Free(30, 7, 4),
		c.Free(40, 8, 8),
		c.Reserve(50, 9, 5, 4, 0), c.Append(50, 9, 1), // its content is given up
		c.Share(60, 9, 1, 4, 0), // takes the place of block 5
		c.Free(70, 9, 0),
	)
	must(t, r.Check())
	got := r.Result()
	if diff := cmp.Diff([]kvcache.Point{
		{Step: 1, Time: 0, Running: 1, Shares: kvcache.Shares{Token: 5, Reserve: 1, Internal: 2, Idle: 20, Null: 4}},
		{Step: 2, Time: 10, Running: 2, Shares: kvcache.Shares{Token: 7, Reserve: 2, Internal: 3, Idle: 16, Null: 4}},
		{Step: 3, Time: 20, Running: 2, Shares: kvcache.Shares{Token: 9, Reserve: 0, Internal: 3, Idle: 16, Null: 4}},
		{Step: 4, Time: 30, Running: 1, Shares: kvcache.Shares{Token: 7, Internal: 1, Idle: 20, Null: 4}},
		{Step: 5, Time: 40, Shares: kvcache.Shares{Cached: 8, Idle: 20, Null: 4}},
		{Step: 6, Time: 50, Running: 1, Shares: kvcache.Shares{Token: 1, Internal: 3, Cached: 4, Idle: 20, Null: 4}},
		{Step: 7, Time: 60, Running: 1, Shares: kvcache.Shares{Token: 4, Idle: 24, Null: 4}},
	}, got.Series); diff != "" {
		t.Errorf("series (-want +got):\n%s", diff)
	}
	// Of 2+2×3+2+1+1 tables' blocks there were 2+2×3-2+2+1+1 ones, ten ns each.
	assert.That(t, got.SavedByPrefix == 20 && got.PrefixHits == 2 && got.PrefixTokens == 8,
		"saved %v, hits %d of %d slots; want 20, 2, 8", got.SavedByPrefix, got.PrefixHits, got.PrefixTokens)
	assert.Diff(t, []kvcache.Request{{Prompt: 5, Output: 1}, {Arrival: 10, Prompt: 6, Output: 1}, {Arrival: 50, Prompt: 1, Output: 1}}, r.Requests, "requests")
}

func TestRecordedRefusals(t *testing.T) {
	for _, test := range []struct {
		name  string
		block int64
		do    func(c *Cache) error
		want  string
	}{
		{"token without a slot", 0, func(c *Cache) error { return c.Append(1, 4, 1) }, "sequence 4, which has no slots"},
		{"more tokens than slots", 0, func(c *Cache) error { return c.Append(1, 0, 7) }, "sequence 0 has 2 tokens in 8 slots, and gets 7 more"},
		{"negative tokens", 0, func(c *Cache) error { return c.Append(1, 0, -1) }, "-1 tokens"},
		{"free of what has nothing", 0, func(c *Cache) error { return c.Free(1, 3, 0) }, "a free of sequence 3, which has no slots"},
		{"freed twice", 0, func(c *Cache) error { return cmpFirst(c.Free(1, 0, 0), c.Free(1, 0, 0)) }, "a free of sequence 0"},
		{"more slots than there are", 0, func(c *Cache) error { return c.Reserve(1, 1, 0, 9, 0) }, "17 slots are reserved, 0 kept and 0 null, of 16"},
		{"token after the end", 0, func(c *Cache) error { return cmpFirst(c.Append(1, 0, 0), c.Append(1, 0, 1)) }, "which has ended"},
		{"sharing a contiguous cache", 0, func(c *Cache) error { return c.Share(1, 1, 0, 8, -1) }, "of a contiguous cache"},
		{"keeping contiguous slots", 0, func(c *Cache) error { return c.Free(1, 0, 8) }, "but for 8 of its 8 slots"},
		{"block in use", 4, func(c *Cache) error { return c.Reserve(1, 1, 1, 4, 0) }, "given block 1, which is in use"},
		{"part of a block", 4, func(c *Cache) error { return c.Reserve(1, 1, 2, 5, 0) }, "not a multiple of a block of 4"},
		{"share of what nobody uses", 4, func(c *Cache) error { return c.Share(1, 1, 3, 4, -1) }, "block 3, which nobody uses"},
		{"replacing what is not there", 4, func(c *Cache) error { return c.Share(1, 1, 0, 4, 2) }, "has 0 blocks, and none at 2"},
		{"tokens beyond belief", 0, func(c *Cache) error { return c.Append(1, 0, math.MaxInt64) }, "9223372036854775807 tokens"},
		{"slots beyond belief", 4, func(c *Cache) error { return c.Reserve(1, 1, 4, math.MaxInt64-3, 0) }, "of at most 16"},
		{"blocks beyond belief", 4, func(c *Cache) error { return c.Reserve(1, 1, math.MaxInt64-1, 8, 0) }, "slots from 9223372036854775806 on"},
		{"a cache beyond belief", 4, func(c *Cache) error { _, err := c.of.Cache(1, 1<<62, 1); return err }, "a cache of 4611686018427387904 slots"},
		{"more null than all", 4, func(c *Cache) error { _, err := c.of.Cache(1, 16, 5); return err }, "of which 5 are null"},
		{"dropping what was not kept", 4, func(c *Cache) error { return c.Drop(1, 0, 4) }, "block 0 is dropped, which was not kept"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := NewAccount(Description{Block: test.block})
			c, err := r.Cache(0, 16, 0)
			must(t, err, c.Reserve(0, 0, 0, 8, 0), c.Append(0, 0, 2))
			if err := test.do(c); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
		})
	}
}

// cmpFirst is the second error, if the first call went well.
func cmpFirst(first, second error) error {
	if first != nil {
		return nil
	}
	return second
}

// TestRecordedIsTheSimulation plays simulated steps to an account: a paged memory without
// sharing, whose steps last as long each, must have the means and the course of the simulation.
func TestRecordedIsTheSimulation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		requests := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) kvcache.Request {
			return kvcache.Request{Prompt: rapid.IntRange(1, 40).Draw(t, "prompt"), Output: rapid.IntRange(1, 30).Draw(t, "output")}
		}), 1, 12).Draw(t, "requests")
		block := rapid.IntRange(1, 16).Draw(t, "block")
		r := NewAccount(Description{Block: int64(block)})
		slots := int64(64 * block)
		c, err := r.Cache(0, slots, 0)
		assert.NoError(t, err)
		var want kvcache.Means
		free := make([]int64, 64)
		for i := range free {
			free[i] = int64(i)
		}
		type running struct {
			kvcache.Request
			tokens int
			blocks []int64
		}
		live := map[int64]*running{}
		next, step := int64(0), int64(0)
		check := func(err error) {
			assert.NoError(t, err)
		}
		for ; int(next) < len(requests) || len(live) > 0; step++ {
			for id, s := range live {
				if s.tokens == s.Prompt+s.Output {
					check(c.Free(step, id, 0))
					free = append(free, s.blocks...)
					delete(live, id)
				}
			}
			if int(next) < len(requests) && len(live) < 4 && rapid.Bool().Draw(t, "admit") {
				live[next] = &running{Request: requests[next]}
				next++
			}
			shares := kvcache.Shares{}
			for id, s := range live {
				grown := 1
				if s.tokens == 0 {
					grown = s.Prompt + 1
				}
				for len(s.blocks)*block < s.tokens+grown {
					if len(free) == 0 {
						t.Skip("more than there is")
					}
					s.blocks = append(s.blocks, free[0])
					check(c.Reserve(step, id, free[0], int64(block), int64(s.Prompt)))
					free = free[1:]
				}
				s.tokens += grown
				check(c.Append(step, id, int64(grown)))
				held := len(s.blocks) * block
				shares.Token += int64(s.tokens)
				shares.Reserve += int64(min(s.Prompt+s.Output, held) - s.tokens)
				shares.Internal += int64(held - min(s.Prompt+s.Output, held))
			}
			if len(live) > 0 {
				shares.Idle = slots - shares.Token - shares.Reserve - shares.Internal
				want.Add(shares, 1)
			}
		}
		check(r.Advance(step))
		check(r.Check())
		got := r.Result()
		diff := cmp.Diff(want.Of(slots), got.Mean, cmpopts.EquateApprox(0, 1e-9))
		assert.Must(t, diff == "", "mean (-want +got):\n%s", diff)
		sum := got.Mean.Sum()
		assert.Must(t, want.Steps <= 0 || math.Abs(sum-1) <= 1e-9, "the means add up to %v", sum)
		assert.Must(t, int(r.Sessions) == len(requests), "%d requests went through, want %d", r.Sessions, len(requests))
	})
}
