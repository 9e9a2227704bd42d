package graphs_test

import (
	"errors"
	"testing"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/graphs"
	"github.com/memprof/memprof/analysis/ledger"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// graphMemory is a graph memory of a job: a store, and ranges over it.
type graphMemory struct {
	*capturing
	store  int32
	used   int64           // bytes of the store
	extent map[int32]int64 // of ranges
}

func (c *capturing) graphMemory() *graphMemory {
	return &graphMemory{c, c.arena(1<<44, "graph_memory=1\tstore=1"), 0, map[int32]int64{}}
}

func (g *graphMemory) rangeOf(options string) int32 {
	id := g.arenas + 1
	return g.arena(int64(id)<<40, options+"\tgraph_memory=1\tshape=a_shape")
}

// add adds an event at an offset of a range.
func (g *graphMemory) add(kind trace.Kind, id int32, offset, requested, provided int64) {
	g.Add(trace.Event{Kind: kind, Arena: id, Addr: int64(id)<<40 + offset, Requested: requested, Provided: provided})
}

// grow has a range see so much more of the store, which maps what it lacks.
func (g *graphMemory) grow(id int32, bytes int64) {
	extent := g.extent[id] + bytes
	if lacking := extent - g.used; lacking > 0 {
		g.Add(trace.Event{Kind: trace.KindMap, Arena: g.store, Addr: 1<<44 + g.used, Requested: lacking, Provided: lacking})
		g.used = extent
	}
	g.add(trace.KindAlias, id, g.extent[id], g.extent[id], bytes)
	g.extent[id] = extent
}

// A small shape and then a larger one: the store is the larger, and the small one's pages are
// part of it.
func TestGraphMemory(t *testing.T) {
	c := newCapturing(t)
	g := c.graphMemory()
	small := g.rangeOf("pool=0.1")
	c.capture(7, "name=bs 1\tpool=0.1", func() {
		g.grow(small, 4*mib)
		g.add(trace.KindAlloc, small, 0, 3*mib, 3*mib)
		g.add(trace.KindAlloc, small, 3*mib, 1000, 1024)
		g.add(trace.KindFree, small, 0, 3*mib, 3*mib)
	})
	large := g.rangeOf("pool=0.2")
	c.capture(7, "name=bs 2\tpool=0.2", func() {
		g.grow(large, 2*mib)
		g.add(trace.KindAlloc, large, 0, mib, mib)
		g.grow(large, 8*mib)
		g.add(trace.KindAlloc, large, mib, 8*mib, 8*mib)
		g.add(trace.KindStreamUse, large, mib, 0, 0)
		g.add(trace.KindFree, large, mib, 8*mib, 8*mib)
		g.add(trace.KindFreeDone, large, mib, 8*mib, 8*mib)
	})
	c.capture(7, "name=bs 2\tpool=0.2", func() { g.add(trace.KindAlloc, large, mib, 500, 512) })
	g.add(trace.KindFree, small, 3*mib, 1000, 1024)
	g.add(trace.KindUnalias, small, 0, 0, 4*mib)
	g.add(trace.KindPoolRelease, small, 0, 0, 0)
	d, err := c.run()
	assert.NoError(t, err)
	want := &graphs.Result{Captures: 3, Stores: []graphs.Store{{
		Memory: "1", Physical: 10 * mib, Final: 10 * mib,
		Sum: 14 * mib, Max: 10 * mib, Distinct: 10 * mib, Saved: 4 * mib, Aliased: 14 * mib,
		Shapes: []graphs.Shape{
			{Name: "bs 1", Captures: 1, Requested: 3*mib + 1000, Provided: 3*mib + 1024, Shared: 4 * mib, Address: 1 << 30, Outputs: 1000, Released: true},
			{Name: "bs 2", Captures: 2, Requested: 9 * mib, Provided: 9 * mib, Own: 6 * mib, Shared: 4 * mib, Address: 1 << 30, Outputs: mib + 500},
		},
	}}}
	assert.Diff(t, want, d.Graphs, noTimes, "graphs")
	// Of the store 9 MiB were handed out, in whatever range, and nothing is T of the device.
	final := ledger.Instant{Seq: d.Final.Seq, Time: d.Final.Time, R: 10 * mib, Reserve: mib, Reusable: 9 * mib, View: 1}
	assert.Diff(t, final, d.Final, "in the end")
	assert.That(t, d.GrowthCount == 0, "%d growths of a heap", d.GrowthCount)
}

// A range has an arena for each stream: one shape, which goes with the last of them.
func TestRangeOfTwoStreams(t *testing.T) {
	c := newCapturing(t)
	g := c.graphMemory()
	first := g.rangeOf("pool=0.1")
	second := c.arenas + 1
	c.arena(int64(first)<<40, "pool=0.1\tgraph_memory=1\tshape=a_shape")
	of := func(id int32, kind trace.Kind, offset, requested, provided int64) {
		c.Add(trace.Event{Kind: kind, Arena: id, Addr: int64(first)<<40 + offset, Requested: requested, Provided: provided})
	}
	c.capture(7, "pool=0.1", func() {
		g.grow(first, 2*mib)
		g.add(trace.KindAlloc, first, 0, 2*mib, 2*mib)
		c.Add(trace.Event{Kind: trace.KindMap, Arena: g.store, Addr: 1<<44 + 2*mib, Requested: 4 * mib, Provided: 4 * mib})
		of(second, trace.KindAlias, 2*mib, 2*mib, 4*mib)
		of(second, trace.KindAlloc, 2*mib, 3*mib, 3*mib)
	})
	of(second, trace.KindFree, 2*mib, 3*mib, 3*mib)
	of(second, trace.KindUnalias, 2*mib, 2*mib, 4*mib)
	of(second, trace.KindPoolRelease, 0, 0, 0)
	want := []graphs.Shape{{Name: "a_shape", Captures: 1, Requested: 5 * mib, Provided: 5 * mib, Own: 6 * mib, Address: 1 << 30, Outputs: 5 * mib}}
	assert.Diff(t, want, c.graphs().Stores[0].Shapes, noTimes, "shapes")
	g.add(trace.KindPoolRelease, first, 0, 0, 0)
	s := c.graphs().Stores[0].Shapes
	assert.That(t, len(s) == 1 && s[0].Released, "shapes %+v", s)
}

// A store that shrinks and grows again: what is mapped anew was never handed out.
func TestGraphMemoryShrinks(t *testing.T) {
	c := newCapturing(t)
	g := c.graphMemory()
	w := g.rangeOf("pool=0.1")
	g.grow(w, 8*mib)
	g.add(trace.KindAlloc, w, 0, 8*mib, 8*mib)
	g.add(trace.KindFree, w, 0, 8*mib, 8*mib)
	g.add(trace.KindUnalias, w, 4*mib, 0, 4*mib)
	g.Add(trace.Event{Kind: trace.KindUnmap, Arena: g.store, Addr: 1<<44 + 4*mib, Provided: 4 * mib})
	g.used, g.extent[w] = 4*mib, 4*mib
	g.grow(w, 2*mib)
	d, err := c.run()
	assert.NoError(t, err)
	s := d.Graphs.Stores[0]
	assert.That(t, s.Physical == 8*mib && s.Final == 6*mib && s.Distinct == 8*mib && s.Aliased == 8*mib, "store %+v", s)
	assert.That(t, d.Final.R == 6*mib && d.Final.Reusable == 4*mib && d.Final.Reserve == 2*mib, "in the end %+v", d.Final)
}

// A checkpoint brings blocks of a range back, and a request that fails there is one.
func TestRangeRestoredAndFull(t *testing.T) {
	c := newCapturing(t)
	g := c.graphMemory()
	w := g.rangeOf("pool=0.1")
	g.grow(w, 2*mib)
	g.add(trace.KindAlloc, w, 0, mib, mib)
	g.add(trace.KindFree, w, 0, mib, mib)
	g.add(trace.KindRestore, w, 0, mib, mib)
	g.add(trace.KindAlloc, w, mib, 1000, 1024)
	g.add(trace.KindGrowFailed, w, 0, 4*mib, 0)
	g.add(trace.KindOOM, w, 0, 4*mib, 0)
	d, err := c.run()
	assert.NoError(t, err)
	s := d.Graphs.Stores[0].Shapes[0]
	assert.That(t, s.Requested == mib+1000 && s.Provided == mib+1024, "shape %+v", s)
	assert.That(t, len(d.OOMs) == 1 && d.OOMs[0].Request == 4*mib && d.OOMs[0].Verdict == analysis.Capacity, "failed requests %+v", d.OOMs)
}

// A framework's allocator takes segments from a range: the device's memory does not count them twice, and
// requested bytes are those of its blocks.
func TestArenaOverRange(t *testing.T) {
	for _, observed := range []bool{false, true} {
		c := newCapturing(t)
		g := c.graphMemory()
		w := g.rangeOf("")
		options, provided := "pool=1.4", int64(mib+256)
		if observed {
			options, provided = "pool=1.4 provided=unknown allocator=native", -1
		}
		over := c.arena(int64(w)<<40, options)
		c.capture(7, "", func() {
			g.grow(w, 4*mib)
			g.add(trace.KindAlloc, w, 0, 4*mib, 4*mib)
			c.Add(trace.Event{Kind: trace.KindMap, Arena: over, Addr: int64(w) << 40, Requested: 4 * mib, Provided: 4 * mib})
			block := trace.Event{Kind: trace.KindAlloc, Arena: over, Addr: int64(w) << 40, Requested: mib, Provided: mib + 256}
			if observed {
				block.Provided = mib
			}
			c.Add(block)
			block.Kind = trace.KindFree
			c.Add(block)
			block.Kind = trace.KindAlloc
			c.Add(block)
		})
		if observed { // torch's sums have the range's segments, too
			c.Add(trace.Event{Kind: trace.KindStatistics, Arena: trace.NoArena, Addr: mib + 512, Requested: 4 * mib, Provided: mib + 512})
		}
		c.Mark(0)
		d, err := c.run()
		assert.NoError(t, err)
		if observed {
			provided = 4 * mib
		}
		want := []graphs.Shape{{Name: "a_shape", Captures: 1, Requested: mib, Provided: provided, Own: 4 * mib, Address: 1 << 30, Outputs: 4 * mib}}
		assert.Diff(t, want, d.Graphs.Stores[0].Shapes, noTimes, "observed %v: shapes", observed)
		s := d.Native
		if observed && (s.Samples != 1 || s.Odd != 0) {
			t.Errorf("%d samples, %d odd", s.Samples, s.Odd)
		}
		if d.MaxR != 4*mib || d.Final.T != 0 || d.Final.R != 4*mib || len(d.Graphs.Stores) != 1 {
			t.Errorf("observed %v: greatest R %d, at the end %+v, %d stores", observed, d.MaxR, d.Final, len(d.Graphs.Stores))
		}
	}
}

func TestGraphMemoryThatCannotBe(t *testing.T) {
	for name, do := range map[string]func(g *graphMemory, w int32){
		"a block beyond what is seen": func(g *graphMemory, w int32) { g.add(trace.KindAlloc, w, 3*mib, 2*mib, 2*mib) },
		"a block of a block": func(g *graphMemory, w int32) {
			g.add(trace.KindAlloc, w, 0, 1, 256)
			g.add(trace.KindAlloc, w, 0, 1, 256)
		},
		"a free of no block": func(g *graphMemory, w int32) { g.add(trace.KindFree, w, 256, 1, 256) },
		"seen twice":         func(g *graphMemory, w int32) { g.add(trace.KindAlias, w, 2*mib, 0, 2*mib) },
		"hidden twice": func(g *graphMemory, w int32) {
			g.add(trace.KindUnalias, w, 0, 0, 2*mib)
			g.add(trace.KindUnalias, w, 0, 0, 4*mib)
		},
		"a range that maps":         func(g *graphMemory, w int32) { g.add(trace.KindMap, w, 8*mib, 2*mib, 2*mib) },
		"an alias in the store":     func(g *graphMemory, _ int32) { g.add(trace.KindAlias, g.store, 0, 0, 2*mib) },
		"more asked for than given": func(g *graphMemory, w int32) { g.add(trace.KindAlloc, w, 0, 300, 256) },
		"a block in a gone range": func(g *graphMemory, w int32) {
			g.add(trace.KindPoolRelease, w, 0, 0, 0)
			g.add(trace.KindAlloc, w, 0, 1, 256)
		},
		"a block beyond the range": func(g *graphMemory, w int32) { g.add(trace.KindAlloc, w, 1<<30, 1, 256) },
		"more seen than there is":  func(g *graphMemory, w int32) { g.add(trace.KindAlias, w, 4*mib, 4*mib, 2*mib) },
		"a page that the store lost": func(g *graphMemory, w int32) {
			g.Add(trace.Event{Kind: trace.KindUnmap, Arena: g.store, Addr: 1 << 44, Provided: 4 * mib})
			g.add(trace.KindAlloc, w, 0, 1, 256)
		},
	} {
		c := newCapturing(t)
		g := c.graphMemory()
		w := g.rangeOf("pool=0.1")
		g.grow(w, 4*mib)
		do(g, w)
		var wrong *ledger.EventError
		_, err := c.run()
		assert.That(t, errors.As(err, &wrong) && wrong.Seq == int64(len(c.Events))-1, "%s: error %v, want one of the last event", name, err)
	}
}
