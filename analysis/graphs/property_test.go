package graphs_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// Whatever is captured into whatever pools, the terms are what a count of pages one by one says,
// and the identities hold.
func TestGraphSums(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		c := newCapturing(t)
		type key struct {
			pool string
			page uint64
		}
		used := map[key]map[string]bool{} // by whom
		live := map[string]int64{}
		most := map[string]int64{}
		pools := []*heap{c.pool("0.1"), c.pool("0.2"), c.pool("0.3")}
		kept := make([][]bfc.Block, 3)
		owner := map[uint64]string{}
		for range rapid.IntRange(1, 12).Draw(rt, "captures") {
			at := rapid.IntRange(0, 2).Draw(rt, "pool")
			name := fmt.Sprintf("s%d", rapid.IntRange(0, 3).Draw(rt, "name"))
			h, who := pools[at], fmt.Sprintf("0.%d %s", at+1, name)
			free := func(i int) {
				b := kept[at][i]
				kept[at] = slices.Delete(kept[at], i, i+1)
				live[owner[b.Addr]] -= int64(b.Requested)
				h.free(b)
			}
			c.capture(int64(at), "name="+name, func() {
				for range rapid.IntRange(0, 12).Draw(rt, "operations") {
					if n := len(kept[at]); n > 0 && rapid.Bool().Draw(rt, "free") {
						free(rapid.IntRange(0, n-1).Draw(rt, "which"))
						continue
					}
					b := h.alloc(rapid.Int64Range(1, 5*mib).Draw(rt, "bytes"))
					kept[at] = append(kept[at], b)
					owner[b.Addr] = who
					live[who] += int64(b.Requested)
					most[who] = max(most[who], live[who])
					for page := b.Addr / (2 * mib); page <= (b.Addr+b.Size-1)/(2*mib); page++ {
						k := key{fmt.Sprintf("0.%d", at+1), page}
						if used[k] == nil {
							used[k] = map[string]bool{}
						}
						used[k][who] = true
					}
				}
			})
			if n := len(kept[at]); n > 0 && rapid.Bool().Draw(rt, "between") {
				free(n - 1)
			}
		}
		d, err := c.run()
		assert.NoError(rt, err)
		if len(used) == 0 {
			return
		}
		distinct, reserved := int64(0), int64(0)
		for i := range d.Graphs.Stores {
			s := &d.Graphs.Stores[i]
			var sum, greatest int64
			for _, shape := range s.Shapes {
				who := s.Pool + " " + shape.Name
				var own, shared int64
				for k, by := range used {
					switch {
					case k.pool != s.Pool || !by[who]:
					case len(by) == 1:
						own += 2 * mib
					default:
						shared += 2 * mib
					}
				}
				if shape.Own != own || shape.Shared != shared || shape.Requested != most[who] {
					rt.Fatalf("%s: own %d, shared %d, requested %d; want %d, %d, %d", who, shape.Own, shape.Shared, shape.Requested, own, shared, most[who])
				}
				sum += own + shared
				greatest = max(greatest, own+shared)
			}
			if s.Sum != sum || s.Max != greatest || s.Sum != s.Distinct+s.Saved || s.Physical != s.Distinct+s.Untouched || s.Untouched < 0 {
				rt.Fatalf("pool %s: %+v", s.Pool, s)
			}
			distinct += s.Distinct
			reserved += s.Physical
		}
		if distinct != int64(len(used))*2*mib || reserved != d.MaxR {
			rt.Fatalf("distinct %d of %d pages, R %d of %d", distinct, len(used), reserved, d.MaxR)
		}
		for _, w := range d.Graphs.WhatIfs {
			if w.Why != "" || w.Aliased <= 0 || w.Aliased%(2*mib) != 0 || w.Separate < w.Largest {
				rt.Fatalf("what if %+v", w)
			}
			if w.Recorded != w.Physical {
				rt.Fatalf("the replay of %d bytes took %d: %+v", w.Physical, w.Recorded, w)
			}
		}
	})
}
