package stores_test

import (
	"context"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/memprof/memprof/analysis/kvcache"
	"github.com/memprof/memprof/analysis/kvcache/kvtest"
	"github.com/memprof/memprof/analysis/kvcache/serving"
	"github.com/memprof/memprof/analysis/kvcache/stores"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// recounting is a store whose shares are counted anew, request by request, each time.
type recounting struct {
	*stores.ContiguousStore
	capacity int64
	running  map[int64]*kvcache.Group
	fail     func(format string, args ...any)
}

func (r recounting) Admit(g *kvcache.Group) bool {
	ok := r.ContiguousStore.Admit(g)
	if ok {
		r.running[g.ID] = g
	}
	return ok
}

func (r recounting) Release(g *kvcache.Group) {
	delete(r.running, g.ID)
	r.ContiguousStore.Release(g)
}

func (r recounting) Shares(head *kvcache.Request) kvcache.Shares {
	got := r.ContiguousStore.Shares(head)
	want := kvcache.Shares{Fragmented: got.Fragmented, Blocked: got.Blocked, Idle: got.Idle}
	given := int64(0)
	for _, g := range r.running {
		columns, size := stores.Reserved(g)
		rows, length, final := int64(g.Sequences), int64(g.Length()), int64(g.Request.Length())
		want.Token += rows * length
		want.Reserve += rows * max(min(final, columns)-length, 0)
		want.Internal += rows * max(columns-final, 0)
		want.Rounding += size - rows*columns
		given += size
	}
	if got != want || got.Fragmented+got.Blocked+got.Idle != r.capacity-given || got.Fragmented+got.Blocked > 0 && head == nil {
		r.fail("shares %+v, counted request by request %+v", got, want)
	}
	return got
}

// Over any workload each request ends or is rejected, and the shares of every step are what the
// running requests say.
func TestSharesAddUpOverAnyWorkload(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := kvcache.Options{
			Policy: kvcache.Policy{
				Kind:   rapid.SampledFrom([]kvcache.PolicyKind{kvcache.Max, kvcache.Pow2, kvcache.Oracle}).Draw(t, "policy"),
				Length: rapid.IntRange(1, 40).Draw(t, "length"),
			},
			Capacity:  rapid.Int64Range(1, 400).Draw(t, "capacity"),
			MaxLength: rapid.SampledFrom([]int{0, 20, 50}).Draw(t, "most"),
			StepTime:  rapid.SampledFrom([]int64{0, 1, 7}).Draw(t, "step time"),
			Preempt:   rapid.SampledFrom([]kvcache.Preemption{kvcache.Recompute, kvcache.Swap}).Draw(t, "preempt"),
		}
		if rapid.Bool().Draw(t, "sampled") {
			o.Sampling = kvcache.Sampling{Kind: kvcache.Parallel, Width: rapid.IntRange(1, 3).Draw(t, "width")}
		}
		var source kvtest.List
		var arrival int64
		for range rapid.IntRange(0, 30).Draw(t, "requests") {
			arrival += rapid.Int64Range(0, 40).Draw(t, "gap")
			source = append(source, kvcache.Request{
				Arrival: arrival, Prompt: rapid.IntRange(1, 30).Draw(t, "prompt"),
				Output: rapid.IntRange(1, 30).Draw(t, "output"), Prompts: rapid.IntRange(0, 3).Draw(t, "prompts"),
			})
		}
		n := int64(len(source))
		c, err := stores.NewContiguous(o)
		assert.NoError(t, err)
		memory := recounting{c, o.Capacity, map[int64]*kvcache.Group{}, t.Fatalf}
		r, err := serving.SimulateIn(context.Background(), &source, o, memory)
		assert.NoError(t, err)
		assert.Must(t, r.Requests == n && r.Finished+r.Rejected == n && len(memory.running) == 0,
			"of %d requests %d ended and %d were rejected", n, r.Finished, r.Rejected)
		sum := r.Mean.Sum()
		assert.Must(t, r.Steps <= 0 || fmt.Sprintf("%.12f", sum) == "1.000000000000", "the mean shares are %v in all, want 1", sum)
	})
}
