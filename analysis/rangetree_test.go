package analysis

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestRangeTree holds the tree against the slice, under random changes, with snapshots between.
func TestRangeTree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var set rangeSet
		var tree rangeTree
		type pair struct {
			set  rangeSet
			tree rangeTree
		}
		var kept []pair
		for range rapid.IntRange(1, 60).Draw(t, "changes") {
			from := rapid.Int64Range(0, 60).Draw(t, "from")
			r := addressRange{from, from + rapid.Int64Range(1, 12).Draw(t, "bytes")}
			switch rapid.IntRange(0, 4).Draw(t, "what") {
			case 0, 1:
				if _, taken := set.overlapping(r); !taken {
					left, right := rapid.Bool().Draw(t, "left"), rapid.Bool().Draw(t, "right")
					set.add(r, left, right)
					tree.add(r, left, right)
				}
			case 2:
				set.remove(r)
				tree.remove(r)
			case 3:
				set.joinAt(r.from)
				tree.joinAt(r.from)
			case 4:
				kept = append(kept, pair{slices.Clone(set), tree.snapshot()})
			}
			if got := tree.ranges(); !slices.Equal(got, set) || tree.len() != len(set) {
				t.Fatalf("the tree has %v, the slice %v", got, set)
			}
			gotRange, got := tree.overlapping(r)
			if wantRange, want := set.overlapping(r); got != want || gotRange != wantRange {
				t.Fatalf("overlapping %v: %v, want %v", r, gotRange, wantRange)
			}
			at := set.after(r.from)
			if after, ok := tree.after(r.from); ok != (at < len(set)) || ok && after != set[at] {
				t.Fatalf("after %d: %v, %v; want number %d of %v", r.from, after, ok, at, set)
			}
		}
		for _, k := range kept {
			if got := k.tree.ranges(); !slices.Equal(got, k.set) {
				t.Fatalf("a snapshot has become %v, was %v", got, k.set)
			}
		}
	})
}
