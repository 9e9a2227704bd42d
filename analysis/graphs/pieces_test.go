package graphs_test

import (
	"testing"

	"github.com/memprof/memprof/analysis/graphs"
	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// pieces captures two shapes in two pieces each, with a tensor of n MiB between them that lives
// while the second works; named, in a phase around both pieces.
func pieces(t *testing.T, named bool) graphs.WhatIf {
	c := newCapturing(t)
	h := c.pool("0.5")
	for i, n := range []int64{8, 4} {
		phase := func(kind trace.Kind) {
			if named {
				c.Add(trace.Event{Kind: kind, Arena: trace.NoArena, Context: c.Strings.Intern([]string{"bs2", "bs1"}[i])})
			}
		}
		var between bfc.Block
		phase(trace.KindPhaseBegin)
		c.capture(7, "pool=0.5", func() { between = h.alloc(n * mib) })
		c.capture(7, "pool=0.5", func() { h.free(h.alloc(2*n*mib), between) })
		phase(trace.KindPhaseEnd)
	}
	return c.graphs().WhatIfs[0]
}

// Without a name each piece is a shape of its own, which aliasing lays over the others, though
// they live at one time: their number is reported.
func TestPiecesWithoutAName(t *testing.T) {
	w := pieces(t, false)
	assert.That(t, w.Shapes == 4 && w.Unnamed == 4 && w.Aliased == 16*mib, "without names: %+v", w)
	if w := pieces(t, true); w.Shapes != 2 || w.Unnamed != 0 || w.Aliased != 24*mib {
		t.Errorf("in phases: %+v", w)
	}
}
