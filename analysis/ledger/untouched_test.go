package ledger

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestUntouched holds the treap against a set of cells, under random changes; it stays a treap.
func TestUntouched(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var cells [64]int64 // seq + 1 of the map
		var u untouched
		for seq := range rapid.Int64Range(1, 80).Draw(t, "changes") {
			from := rapid.Int64Range(0, 60).Draw(t, "from")
			r := Range{from, rapid.Int64Range(from+1, 64).Draw(t, "to")}
			within := cells[r.From:r.To]
			there := int64(0)
			for _, cell := range within {
				there += min(cell, 1)
			}
			if u.in(r) != there || u.any(r) != (there > 0) {
				t.Fatalf("%d of %v, %t, want %d", u.in(r), r, u.any(r), there)
			}
			if there == 0 && rapid.Bool().Draw(t, "add") {
				u.add(r, seq)
				for i := range within {
					within[i] = seq + 1
				}
				continue
			}
			u.take(r, func(part Range, of int64) {
				for at := part.From; at < part.To; at++ {
					if cells[at] != of+1 {
						t.Fatalf("%v has %d from %d, want %d", part, at, of, cells[at]-1)
					}
					cells[at] = 0
				}
			})
			if slices.Max(within) > 0 {
				t.Fatalf("%v was not taken wholly", r)
			}
		}
		u.root.check(t)
	})
}

func (n *untouchedRange) check(t *rapid.T) {
	if n == nil {
		return
	}
	for _, child := range []*untouchedRange{n.left, n.right} {
		if child != nil && child.priority > n.priority {
			t.Fatalf("%v is below %v", child.Range, n.Range)
		}
		child.check(t)
	}
	if n.sum != n.left.bytes()+n.Bytes()+n.right.bytes() {
		t.Fatalf("%v has a sum of %d", n.Range, n.sum)
	}
}
