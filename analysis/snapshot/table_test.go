package snapshot

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/memprof/memprof/trace/tracetest/assert"
)

// A table answers as a sorted list does, of few addresses and of many, whichever place it found last.
func TestTable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var got table[uint64]
		var want []uint64
		values := map[uint64]uint64{}
		many := rapid.Uint64Range(1, 2000).Draw(t, "addresses")
		address := rapid.Uint64Range(0, many)
		check := func(what string, at uint64, v *uint64, i int) {
			if i < 0 || i >= len(want) {
				assert.Must(t, v == nil, "%s: %d, want none", what, at)
			} else if v == nil || at != want[i] || *v != values[at] {
				t.Fatalf("%s: %d, want %d", what, at, want[i])
			}
		}
		seed := rapid.Uint64().Draw(t, "seed")
		for n := range rapid.Uint64Range(0, 3*many).Draw(t, "first") { // more at once than rapid draws
			addr := (seed + n*n*0x9e3779b97f4a7c15>>20) % (many + 1)
			if i, there := slices.BinarySearch(want, addr); !there {
				want = slices.Insert(want, i, addr)
			}
			values[addr] = n
			got.set(addr, n)
		}
		t.Repeat(map[string]func(*rapid.T){
			"set": func(t *rapid.T) {
				addr, v := address.Draw(t, "address"), rapid.Uint64().Draw(t, "value")
				if i, there := slices.BinarySearch(want, addr); !there {
					want = slices.Insert(want, i, addr)
				}
				values[addr] = v
				got.set(addr, v)
			},
			"delete": func(t *rapid.T) {
				addr := address.Draw(t, "address")
				for range rapid.IntRange(1, 200).Draw(t, "count") {
					if i, there := slices.BinarySearch(want, addr); there {
						want = slices.Delete(want, i, i+1)
					}
					got.delete(addr)
					addr++
				}
			},
			"find": func(t *rapid.T) {
				addr := address.Draw(t, "address")
				i, there := slices.BinarySearch(want, addr)
				at, v := got.from(addr)
				check("from", at, v, i)
				if !there {
					i--
				}
				at, v = got.upTo(addr)
				check("upTo", at, v, i)
				if v := got.get(addr); (v != nil) != there {
					t.Fatalf("get %d: %v", addr, there)
				}
			},
			"": func(t *rapid.T) {
				if got.len() != len(want) || len(got.leaves) > 1+len(want)/(leafSize/4) {
					t.Fatalf("%d addresses in %d leaves, want %d", got.len(), len(got.leaves), len(want))
				}
			},
		})
	})
}
