package stores

import (
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/memprof/memprof/analysis/kvcache"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// Figure 3 of the vLLM paper: A reserves 2,048 slots for a prompt of 7 and has one token of three,
// B reserves 512 for a prompt of 3 and has one of two.
func TestSharesOfTwoReservations(t *testing.T) {
	a, b := kvcache.Request{Prompt: 7, Output: 3}, kvcache.Request{Prompt: 3, Output: 2}
	for _, test := range []struct {
		kind kvcache.PolicyKind
		want kvcache.Shares
	}{
		{kvcache.Max, kvcache.Shares{Token: 12, Reserve: 3, Internal: 2545, Idle: 1536}},
		{kvcache.Oracle, kvcache.Shares{Token: 12, Reserve: 3, Rounding: 9, Idle: 4072}},
	} {
		c, err := newContiguous(kvcache.Options{Policy: kvcache.Policy{Kind: test.kind, Length: 2048}, Capacity: 4096})
		assert.NoError(t, err)
		for i, r := range []kvcache.Request{a, b} {
			c.policy.Length = []int{2048, 512}[i]
			g := &kvcache.Group{Request: r, Sequences: 1}
			assert.Must(t, c.Admit(g) && c.Grow(g), "no room")
		}
		assert.Diff(t, test.want, c.Shares(nil), "kind %d", test.kind)
	}
}

func TestBuddy(t *testing.T) {
	b := newBuddy(15728)
	// The least block that serves 2,048 is the one of 2,048, at 12,288; then the one of 4,096.
	for i, want := range []int64{12288, 8192, 10240, 0, 2048, 4096, 6144} {
		p, ok := b.alloc(2048)
		assert.That(t, ok && p == (piece{want, 2048}), "piece %d is %+v, %v; want it at %d", i, p, ok, want)
	}
	assert.That(t, !b.serves(1025) && b.serves(1024) && b.slots == 1392, "%d slots are left, want 1,392 that serve 1,024 and not more", b.slots)
	for start := int64(0); start < 14336; start += 2048 {
		b.free(piece{start, 2048})
	}
	assert.Diff(t, newBuddy(15728).blocks, b.blocks, cmpopts.EquateEmpty(), "not as at the start")
}

// Whatever is asked and freed, pieces lie apart, all slots are in pieces or free, an allocator that
// serves a size places it, and an empty memory is as good as new.
func TestPiecesLieApart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		capacity := rapid.Int64Range(1, 300).Draw(t, "capacity")
		a := newBuddy(capacity)
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
				assert.Must(t, ok == serves && (!ok || p.size >= size), "%d slots: %+v, %v, but serves said %v", size, p, ok, serves)
				if ok {
					live[i+1] = p
					for s := range p.size {
						assert.Must(t, owner[p.start+s] == 0, "slot %d of %+v is taken", p.start+s, p)
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
			assert.Must(t, free == a.slots, "%d slots are free, it says %d", free, a.slots)
		}
		for _, p := range live {
			a.free(p)
		}
		if a.slots != capacity || !a.serves(a.largest) || a.largest < capacity && a.serves(a.largest+1) {
			t.Fatalf("empty, but %d of %d are free, and %d is not the most", a.slots, capacity, a.largest)
		}
	})
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
