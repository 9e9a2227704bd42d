package ledger

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/memprof/memprof/trace/tracetest/assert"
)

// TestUntouched holds the tree against a set of cells, under random changes; it stays a B-tree.
func TestUntouched(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var cells [512]int64 // seq + 1 of the map
		var u untouched
		for seq := range rapid.Int64Range(1, 400).Draw(t, "changes") {
			from := rapid.Int64Range(0, 508).Draw(t, "from")
			r := Range{from, rapid.Int64Range(from+1, min(from+6, 512)).Draw(t, "to")}
			within := cells[r.From:r.To]
			there := int64(0)
			for _, cell := range within {
				there += min(cell, 1)
			}
			assert.Must(t, u.in(r) == there && u.any(r) == (there > 0), "%d of %v, %t, want %d", u.in(r), r, u.any(r), there)
			if there == 0 && rapid.Bool().Draw(t, "add") {
				u.add(r, seq)
				for i := range within {
					within[i] = seq + 1
				}
				continue
			}
			u.take(r, func(part Range, of int64) {
				for at := part.From; at < part.To; at++ {
					assert.Must(t, cells[at] == of+1, "%v has %d from %d, want %d", part, at, of, cells[at]-1)
					cells[at] = 0
				}
			})
			assert.Must(t, slices.Max(within) <= 0, "%v was not taken wholly", r)
		}
		u.root.check(t)
	})
}

// check holds each entry to the node below it, and returns the depth.
func (n *untouchedNode) check(t *rapid.T) (depth int) {
	assert.Must(t, len(*n) <= mostEntries, "%d entries", len(*n))
	for i, e := range *n {
		assert.Must(t, i == 0 || (*n)[i-1].from < e.from, "%+v lies below the entry before", e)
		if e.below == nil {
			continue
		}
		below := e.below.check(t) + 1
		assert.Must(t, i == 0 || below == depth, "the depth is %d and %d", depth, below)
		depth = below
		assert.Must(t, len(*e.below) > 0 && e.from == (*e.below)[0].from && e.bytes == e.below.entry().bytes, "%+v", e)
		assert.Must(t, i+1 == len(*n) || (*e.below)[len(*e.below)-1].from < (*n)[i+1].from, "%+v reaches into the next", e)
	}
	return depth
}
