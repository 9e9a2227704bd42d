package kvcache

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

// Figure 3 of the vLLM paper: A reserves 2,048 slots for a prompt of 7 and has one token of three,
// B reserves 512 for a prompt of 3 and has one of two.
func TestSharesOfTwoReservations(t *testing.T) {
	a, b := Request{Prompt: 7, Output: 3}, Request{Prompt: 3, Output: 2}
	for _, test := range []struct {
		kind PolicyKind
		want Shares
	}{
		{Max, Shares{Token: 12, Reserve: 3, Internal: 2545, Idle: 1536}},
		{Oracle, Shares{Token: 12, Reserve: 3, Rounding: 9, Idle: 4072}},
	} {
		c, err := newContiguous(Options{Policy: Policy{Kind: test.kind, Length: 2048}, Capacity: 4096})
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range []Request{a, b} {
			c.policy.Length = []int{2048, 512}[i]
			g := &group{request: r, sequences: 1}
			if !c.admit(g) || !c.grow(g) {
				t.Fatal("no room")
			}
		}
		if diff := cmp.Diff(test.want, c.shares(nil)); diff != "" {
			t.Errorf("kind %d (-want +got):\n%s", test.kind, diff)
		}
	}
}

// A request of several prompts, each sampled twice, reserves one rectangle.
func TestSeveralPromptsReserveARectangle(t *testing.T) {
	for _, test := range []struct {
		policy Policy
		want   Shares
	}{
		{Policy{Kind: Max, Length: 20}, Shares{Token: 48, Reserve: 24, Internal: 48, Rounding: 8, Idle: 128}},
		{Policy{Kind: Pow2}, Shares{Token: 48, Reserve: 24, Internal: 18, Rounding: 38, Idle: 128}},
		{Policy{Kind: Pow2, Allocator: FirstFit}, Shares{Token: 48, Reserve: 24, Internal: 18, Idle: 166}},
		{Policy{Kind: Oracle}, Shares{Token: 48, Reserve: 24, Rounding: 56, Idle: 128}},
	} {
		o := Options{Policy: test.policy, Capacity: 256, Sampling: Sampling{Kind: Parallel, Width: 2}}
		r := simulate(t, o, Request{Prompt: 7, Output: 5, Prompts: 3})
		if diff := cmp.Diff(test.want, at(t, r, 1).Shares); diff != "" {
			t.Errorf("%v (-want +got):\n%s", test.policy, diff)
		}
	}
}

func TestBuddy(t *testing.T) {
	b := newBuddy(15728)
	// The least block that serves 2,048 is the one of 2,048, at 12,288; then the one of 4,096.
	for i, want := range []int64{12288, 8192, 10240, 0, 2048, 4096, 6144} {
		if p, ok := b.alloc(2048); !ok || p != (piece{want, 2048}) {
			t.Errorf("piece %d is %+v, %v; want it at %d", i, p, ok, want)
		}
	}
	if b.serves(1025) || !b.serves(1024) || b.available() != 1392 {
		t.Errorf("%d slots are left, want 1,392 that serve 1,024 and not more", b.available())
	}
	for start := int64(0); start < 14336; start += 2048 {
		b.free(piece{start, 2048})
	}
	if diff := cmp.Diff(newBuddy(15728).blocks, b.blocks, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("not as at the start (-want +got):\n%s", diff)
	}
}

// Whatever is asked and freed, pieces lie apart, all slots are in pieces or free, an allocator that
// serves a size places it, and an empty memory is as good as new.
func TestPiecesLieApart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		capacity := rapid.Int64Range(1, 300).Draw(t, "capacity")
		best, err := newBestFit(capacity)
		if err != nil {
			t.Fatal(err)
		}
		a := rapid.SampledFrom([]allocator{newBuddy(capacity), newFirstFit(capacity), best}).Draw(t, "allocator")
		owner := make([]int, capacity) // of each slot; 0: none
		live := map[int]piece{}
		for i := range rapid.IntRange(1, 60).Draw(t, "operations") {
			if len(live) > 0 && rapid.Bool().Draw(t, "free") {
				k := rapid.SampledFrom(keys(live)).Draw(t, "piece")
				a.free(live[k])
				for s := range live[k].size {
					owner[live[k].start+s] = 0
				}
				delete(live, k)
			} else {
				size := rapid.Int64Range(1, capacity).Draw(t, "size")
				serves := a.serves(size)
				p, ok := a.alloc(size)
				if ok != serves || ok && p.size < size {
					t.Fatalf("%d slots: %+v, %v, but serves said %v", size, p, ok, serves)
				}
				if _, first := a.(*firstFit); first {
					if start := firstRun(owner, size); ok != (start >= 0) || ok && p != (piece{start, size}) {
						t.Fatalf("%d slots: %+v, %v; want them at %d", size, p, ok, start)
					}
				}
				if ok {
					live[i+1] = p
					for s := range p.size {
						if owner[p.start+s] != 0 {
							t.Fatalf("slot %d of %+v is taken", p.start+s, p)
						}
						owner[p.start+s] = i + 1
					}
				}
			}
			var free int64
			for _, o := range owner {
				if o == 0 {
					free++
				}
			}
			if free != a.available() {
				t.Fatalf("%d slots are free, it says %d", free, a.available())
			}
		}
		for _, p := range live {
			a.free(p)
		}
		if a.available() != capacity || !a.serves(a.most()) || a.most() < capacity && a.serves(a.most()+1) {
			t.Fatalf("empty, but %d of %d are free, and %d is not the most", a.available(), capacity, a.most())
		}
	})
}

// firstRun is where the first size free slots in a row start, or -1.
func firstRun(owner []int, size int64) int64 {
	var run int64
	for i, o := range owner {
		if run++; o != 0 {
			run = 0
		}
		if run == size {
			return int64(i) + 1 - size
		}
	}
	return -1
}

func keys(m map[int]piece) []int {
	var all []int
	for i := range 100 {
		if _, ok := m[i]; ok {
			all = append(all, i)
		}
	}
	return all
}

// recounting is a store whose shares are counted anew, request by request, each time.
type recounting struct {
	*contiguous
	capacity int64
	running  map[int64]*group
	fail     func(format string, args ...any)
}

func (r recounting) admit(g *group) bool {
	ok := r.contiguous.admit(g)
	if ok {
		r.running[g.id] = g
	}
	return ok
}

func (r recounting) release(g *group) {
	delete(r.running, g.id)
	r.contiguous.release(g)
}

func (r recounting) shares(head *Request) Shares {
	got := r.contiguous.shares(head)
	want := Shares{Fragmented: got.Fragmented, Idle: got.Idle}
	given := int64(0)
	for _, g := range r.running {
		v := g.private.(*reservation)
		rows, length, final := int64(g.sequences), int64(g.length()), int64(g.request.Length())
		want.Token += rows * length
		want.Reserve += rows * max(min(final, v.columns)-length, 0)
		want.Internal += rows * max(v.columns-final, 0)
		want.Rounding += v.piece.size - rows*v.columns
		given += v.piece.size
	}
	if got != want || got.Fragmented+got.Idle != r.capacity-given || got.Fragmented > 0 && head == nil {
		r.fail("shares %+v, counted request by request %+v", got, want)
	}
	return got
}

// Over any workload each request ends or is rejected, and the shares of every step are what the
// running requests say.
func TestSharesAddUpOverAnyWorkload(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := Options{
			Policy: Policy{
				Kind:      rapid.SampledFrom([]PolicyKind{Max, Pow2, Oracle}).Draw(t, "policy"),
				Length:    rapid.IntRange(1, 40).Draw(t, "length"),
				Allocator: rapid.SampledFrom([]Allocator{Buddy, FirstFit, BestFit}).Draw(t, "allocator"),
			},
			Capacity:  rapid.Int64Range(1, 400).Draw(t, "capacity"),
			MaxLength: rapid.SampledFrom([]int{0, 20, 50}).Draw(t, "most"),
			StepTime:  rapid.SampledFrom([]int64{0, 1, 7}).Draw(t, "step time"),
			Preempt:   rapid.SampledFrom([]Preemption{Recompute, Swap}).Draw(t, "preempt"),
			MaxPoints: 8,
		}
		if rapid.Bool().Draw(t, "sampled") {
			o.Sampling = Sampling{Kind: Parallel, Width: rapid.IntRange(1, 3).Draw(t, "width")}
		}
		var source list
		var arrival int64
		for range rapid.IntRange(0, 30).Draw(t, "requests") {
			arrival += rapid.Int64Range(0, 40).Draw(t, "gap")
			source = append(source, Request{
				Arrival: arrival, Prompt: rapid.IntRange(1, 30).Draw(t, "prompt"),
				Output: rapid.IntRange(1, 30).Draw(t, "output"), Prompts: rapid.IntRange(0, 3).Draw(t, "prompts"),
			})
		}
		n := int64(len(source))
		c, err := newContiguous(o)
		if err != nil {
			t.Fatal(err)
		}
		memory := recounting{c, o.Capacity, map[int64]*group{}, t.Fatalf}
		r, err := runAll(context.Background(), newSimulation(&source, o, memory))
		if err != nil {
			t.Fatal(err)
		}
		if r.Requests != n || r.Finished+r.Rejected != n || len(memory.running) != 0 {
			t.Fatalf("of %d requests %d ended and %d were rejected", n, r.Finished, r.Rejected)
		}
		m := r.Mean
		if sum := m.Token + m.Reserve + m.Internal + m.Rounding + m.Fragmented + m.Idle; r.Steps > 0 && fmt.Sprintf("%.12f", sum) != "1.000000000000" {
			t.Fatalf("the mean shares are %v in all, want 1", sum)
		}
	})
}

// runAll takes turns until there is no more.
func runAll(ctx context.Context, s *simulation) (*Result, error) {
	for {
		if done, err := s.turn(ctx); done || err != nil {
			return s.finish(), err
		}
	}
}
