package stores

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/memprof/memprof/analysis/kvcache"
	"github.com/memprof/memprof/analysis/kvcache/kvtest"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// naive counts the shares of a paged memory from its map alone, block by block, and says what
// in the map cannot be.
func naive(s *pagedStore, m *blockMap) (kvcache.Shares, error) {
	size := int64(s.size)
	out := kvcache.Shares{Rounding: s.options.Capacity - int64(len(m.Blocks))*size}
	type user struct {
		position      int
		filled, final int64
		references    int32
		request       *kvcache.Request
	}
	users := map[int32]*user{}
	for _, q := range m.Sequences {
		if want := (q.Tokens + int(size) - 1) / int(size); len(q.Table) != want {
			return out, fmt.Errorf("%d tokens in %d blocks", q.Tokens, len(q.Table))
		}
		request := &s.tables[q.Request].group.Request
		final := int64(request.Length())
		for j, k := range q.Table {
			u := &user{
				position: j,
				filled:   min(size, int64(q.Tokens)-int64(j)*size),
				final:    min(size, final-int64(j)*size),
				request:  request,
			}
			if was := users[k]; was != nil {
				if was.position != j || was.filled != u.filled {
					return out, fmt.Errorf("block %d is shared by %+v and %+v", k, was, u)
				}
				if !equalUpTo(was.request, request, (j+1)*int(size)) {
					return out, fmt.Errorf("block %d is shared by %+v and %+v", k, was.request, request)
				}
				u = was
			}
			u.references++
			users[k] = u
		}
	}
	for i, b := range m.Blocks {
		u := users[int32(i)]
		switch {
		case u == nil && b.References != 0, u != nil && u.references != b.References:
			return out, fmt.Errorf("block %d is %+v, of %+v", i, b, u)
		case u != nil:
			if int64(b.Filled) != u.filled {
				return out, fmt.Errorf("block %d has %d filled, want %d", i, b.Filled, u.filled)
			}
			out.Token += u.filled
			out.Reserve += u.final - u.filled
			out.Internal += size - u.final
		case b.Cached:
			out.Cached += size
		default:
			out.Idle += size
		}
	}
	return out, nil
}

// TestPagedProperty drives random operations and compares each state with the naive count;
// what was just written is never shared, what was refused changed nothing, and in the end all
// is free.
func TestPagedProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := kvcache.Options{
			Policy:    kvcache.Policy{Kind: kvcache.Paged, Block: rapid.IntRange(1, 8).Draw(t, "block")},
			Capacity:  rapid.Int64Range(8, 400).Draw(t, "capacity"),
			Sampling:  kvcache.Sampling{Kind: kvcache.SamplingKind(rapid.IntRange(0, 2).Draw(t, "kind")), Width: rapid.IntRange(1, 5).Draw(t, "width"), Keep: rapid.SampledFrom([]float64{0, 0.5, 1}).Draw(t, "keep")},
			Watermark: rapid.SampledFrom([]float64{0, 0.01, 0.3}).Draw(t, "watermark"),
			Seed:      rapid.Uint64().Draw(t, "seed"),
		}
		s := newPaged(o)
		host := rapid.Int64Range(0, 30).Draw(t, "host")
		s.host = host
		var in, out []*kvcache.Group
		check := func(what string) {
			got := s.Shares(nil)
			want, err := naive(s, s.BlockMap())
			assert.Must(t, err == nil, "after %s: %v", what, err)
			assert.Must(t, got == want && got.Sum() == o.Capacity,
				"after %s: shares %+v, counted %+v, sum %d of %d", what, got, want, got.Sum(), o.Capacity)
		}
		at := func(from []*kvcache.Group) int { return rapid.IntRange(0, len(from)-1).Draw(t, "which") }
		for id := range rapid.Int64Range(1, 80).Draw(t, "operations") {
			switch what := rapid.SampledFrom([]string{"admit", "grow", "grow", "grow", "release", "swap", "return"}).Draw(t, "what"); {
			case what == "admit":
				g := &kvcache.Group{ID: id, Request: kvtest.RandomRequest(t), Generated: rapid.IntRange(0, 5).Draw(t, "generated")}
				g.Request.Output += g.Generated
				before := s.Shares(nil)
				if s.Possible(&g.Request) && s.Admit(g) {
					in = append(in, g)
				} else if s.Shares(nil) != before {
					t.Fatal("refused, but took memory")
				}
			case what == "grow" && len(in) > 0:
				g := in[at(in)]
				if s.tables[g.ID].length == g.Request.Length() {
					continue
				}
				before := s.Shares(nil)
				if s.Grow(g) {
					g.Generated++
					for _, table := range s.tables[g.ID].of {
						if n := s.blocks[table[len(table)-1]].references; n != 1 {
							t.Fatalf("the block just written has %d references", n)
						}
					}
				} else if s.Shares(nil) != before {
					t.Fatal("refused to grow, but took memory")
				} else if len(in) == 1 {
					t.Fatalf("no room although %d is alone", g.ID)
				}
			case what == "release" && len(in) > 0:
				i := at(in)
				s.Release(in[i])
				in = append(in[:i], in[i+1:]...)
			case what == "swap" && len(in) > 0:
				if i := at(in); s.SwapOut(in[i]) {
					out = append(out, in[i])
					in = append(in[:i], in[i+1:]...)
				}
			case what == "return" && len(out) > 0:
				if i := at(out); s.Admit(out[i]) {
					in = append(in, out[i])
					out = append(out[:i], out[i+1:]...)
				} else if len(in) == 0 {
					t.Fatal("an empty memory takes nothing back")
				}
			}
			check(fmt.Sprintf("operation %d", id))
			if equal := countEqual(s); s.equal != equal || named(&s.keys) != countKnown(s) {
				t.Fatalf("%d equal blocks, want %d; %d found by key, want %d", s.equal, equal, named(&s.keys), countKnown(s))
			}
			if logical, apart := countDistinct(s); s.references != logical || s.crossing != apart-s.used {
				t.Fatalf("%d references, %d crossing, want %d, %d", s.references, s.crossing, logical, apart-s.used)
			}
		}
		for len(in) > 0 || len(out) > 0 {
			for _, g := range in {
				s.Release(g)
			}
			in = nil
			if len(out) > 0 {
				assert.Must(t, s.Admit(out[0]), "an empty memory takes nothing back")
				in, out = out[:1], out[1:]
			}
			check("the end")
		}
		if got := s.Shares(nil); got.Token+got.Reserve+got.Internal != 0 || s.host != host || s.running != 0 || named(&s.places) != 0 || s.references != 0 || s.crossing != 0 || s.equal != 0 {
			t.Fatalf("left behind: %+v, host %d of %d, %d running, %d places", got, s.host, host, s.running, named(&s.places))
		}
	})
}

// countDistinct counts the entries of all tables, and the blocks of each group.
func countDistinct(s *pagedStore) (logical, apart int64) {
	for _, t := range s.tables {
		distinct := map[int32]bool{}
		for _, table := range t.of {
			logical += int64(len(table))
			for _, k := range table {
				distinct[k] = true
			}
		}
		apart += int64(len(distinct))
	}
	return logical, apart
}

// countEqual counts the blocks in use beyond the first of each content and position.
func countEqual(s *pagedStore) (equal int64) {
	places := map[uint64]bool{}
	for i := range s.blocks {
		if place := s.places.number(int32(i)); s.blocks[i].references > 0 && place != 0 {
			if places[place] {
				equal++
			}
			places[place] = true
		}
	}
	return equal
}

// countKnown counts the blocks whose content can be found.
func countKnown(s *pagedStore) (known int) {
	for i := range s.blocks {
		if s.keys.number(int32(i)) != 0 {
			known++
		}
	}
	return known
}

// named counts the blocks in all chains.
func named(c *chains) (n int) {
	for _, head := range c.heads {
		for i := head - 1; i != none; i = c.tags[i].next {
			n++
		}
	}
	return n
}

// equalUpTo says whether two requests are one, or are known to begin with the same tokens.
func equalUpTo(a, b *kvcache.Request, tokens int) bool {
	if a == b {
		return true
	}
	for i := range tokens {
		if i >= a.Prompt || i >= b.Prompt || a.Hashes[i/a.HashTokens] != b.Hashes[i/b.HashTokens] {
			return false
		}
	}
	return true
}
