package analysis

import (
	"cmp"
	"slices"

	"github.com/memprof/memprof/analysis/graphpool"
)

// finishGraphs sums up the captures of a device; nil where there were none.
func (a *analyzer) finishGraphs(d *device) {
	g := a.graphs.byDevice[d.Device]
	if g == nil || g.captures == 0 && len(g.stores) == 0 {
		return
	}
	for _, w := range g.ranges {
		w.settle()
	}
	out := &Graphs{Captures: g.captures}
	var alone, several []*graphStore
	for _, s := range g.stores {
		s.finish()
		out.Stores = append(out.Stores, s.GraphStore)
		switch {
		case s.Memory != "":
		case len(s.shapes) == 1:
			alone = append(alone, s)
		case len(s.shapes) > 1:
			several = append(several, s)
		}
	}
	if len(alone) > 1 {
		out.WhatIfs = append(out.WhatIfs, whatIf("", alone...))
	}
	for _, s := range several {
		out.WhatIfs = append(out.WhatIfs, whatIf(s.Pool, s))
	}
	d.Graphs = out
}

// finish sums up a store.
func (s *graphStore) finish() {
	s.Final = s.r
	s.Released = len(s.arenas) > 0 && !slices.ContainsFunc(s.arenas, func(ar *arena) bool { return !ar.released })
	s.divide()
	for _, shape := range s.shapes {
		g := &shape.GraphShape
		if s.Memory == "" {
			g.Address = g.Footprint()
		}
		s.Sum += g.Footprint()
		s.Max = max(s.Max, g.Footprint())
		s.Inputs.Sum += g.Inputs
		s.Inputs.Max = max(s.Inputs.Max, g.Inputs)
		s.Shapes = append(s.Shapes, *g)
	}
	s.Saved = s.Sum - s.Distinct
	s.Untouched = s.Physical - s.Distinct
}

// border is where the pages of a shape start (1) or end (-1).
type border struct {
	at    int64
	shape int
	step  int
}

// divide tells own pages from shared ones: it goes through the addresses in order and knows how
// many shapes have the pages there, and the sum of their numbers, which is the number of the
// only one.
func (s *graphStore) divide() {
	for _, ar := range s.arenas {
		var borders []border
		for i, shape := range s.shapes {
			for _, r := range shape.pages[ar.index] {
				borders = append(borders, border{r.from, i, 1}, border{r.to, i, -1})
				shape.Shared += r.bytes()
			}
		}
		slices.SortFunc(borders, func(x, y border) int { return cmp.Compare(x.at, y.at) })
		shapes, sum := 0, 0
		for i, b := range borders {
			if i > 0 && shapes > 0 {
				bytes := b.at - borders[i-1].at
				s.Distinct += bytes
				if shapes == 1 {
					s.shapes[sum].Own += bytes
					s.shapes[sum].Shared -= bytes
				}
			}
			shapes += b.step
			sum += b.step * b.shape
		}
	}
}

// whatIf replays the shapes of stores: of one pool, or of several that have one shape each.
func whatIf(pool string, stores ...*graphStore) GraphWhatIf {
	w := GraphWhatIf{Pool: pool, Whole: true}
	var all []*graphShape
	unit := int64(0)
	for _, s := range stores {
		w.Physical += s.Physical
		w.Whole = w.Whole && !s.broken
		for _, shape := range s.shapes {
			if len(shape.ops) > 0 {
				w.Model, unit = shape.model, max(unit, shape.unit)
				all = append(all, shape)
			}
		}
	}
	w.Shapes = len(all)
	if !w.Whole || len(all) < 2 {
		w.Whole = false
		return w
	}
	model := graphpool.Model(graphpool.Torch)
	if w.Model == "bfc" {
		model = graphpool.BFC(unit)
	}
	shapes, recorded := sequences(all)
	if pool == "" {
		for _, bytes := range graphpool.Separate(model, recorded) {
			w.Recorded += bytes
		}
	} else {
		w.Recorded = graphpool.Shared(model, recorded)
	}
	for _, bytes := range graphpool.Separate(model, shapes) {
		w.Separate += bytes
		w.Largest = max(w.Largest, bytes)
	}
	w.Descended = graphpool.Shared(model, graphpool.LargestFirst(shapes))
	w.Ascended = graphpool.Shared(model, graphpool.SmallestFirst(shapes))
	w.Aliased = graphpool.Aliased(model, shapes)
	for _, s := range shapes {
		w.Outlive += s.Outlives()
	}
	return w
}

// sequences are the requests of shapes, in the order the shapes began: as another order would
// make them, all shapes on the same streams, and as they were recorded.
func sequences(all []*graphShape) (shapes, recorded []*graphpool.Shape) {
	slices.SortFunc(all, func(x, y *graphShape) int { return cmp.Compare(x.index, y.index) })
	streams := map[int64]int32{}
	for _, s := range all {
		for _, stream := range s.streams {
			if _, ok := streams[stream]; !ok {
				streams[stream] = int32(len(streams))
			}
		}
	}
	for i, s := range all {
		ops, late := s.ops, []graphpool.Late(nil)
		for _, l := range s.late {
			further := 0
			for _, other := range all[i+1:] {
				if other.index <= l.last {
					further++
				}
			}
			if further == 0 {
				ops = append(ops, graphpool.Op{Block: l.block})
				continue
			}
			late = append(late, graphpool.Late{Block: l.block, Shapes: further})
		}
		own := slices.Clone(ops)
		for k := range own {
			own[k].Stream = streams[s.streams[own[k].Stream]]
		}
		shapes = append(shapes, &graphpool.Shape{Ops: ops, Late: late})
		recorded = append(recorded, &graphpool.Shape{Ops: own, Late: late})
	}
	return shapes, recorded
}
