package ledger

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/memprof/memprof/trace/tracetest/assert"
)

// TestRangeTree holds the tree against the slice, under random changes.
func TestRangeTree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var set RangeSet
		var tree RangeTree
		for range rapid.IntRange(1, 60).Draw(t, "changes") {
			from := rapid.Int64Range(0, 60).Draw(t, "from")
			r := Range{from, from + rapid.Int64Range(1, 12).Draw(t, "bytes")}
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0, 1:
				if _, taken := set.Overlapping(r); !taken {
					left, right := rapid.Bool().Draw(t, "left"), rapid.Bool().Draw(t, "right")
					set.Add(r, left, right)
					tree.Add(r, left, right)
				}
			case 2:
				set.Remove(r)
				tree.Remove(r)
			case 3:
				set.JoinAt(r.From)
				tree.JoinAt(r.From)
			}
			if got := tree.Ranges(); !slices.Equal(got, set) || tree.Len() != len(set) {
				t.Fatalf("the tree has %v, the slice %v", got, set)
			}
			gotRange, got := tree.Overlapping(r)
			wantRange, want := set.Overlapping(r)
			assert.Must(t, got == want && gotRange == wantRange, "overlapping %v: %v, want %v", r, gotRange, wantRange)
			at := set.After(r.From)
			after, ok := tree.After(r.From)
			assert.Must(t, ok == (at < len(set)) && (!ok || after == set[at]), "after %d: %v, %v; want number %d of %v", r.From, after, ok, at, set)
		}
	})
}
