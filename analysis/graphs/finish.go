package graphs

import (
	"cmp"
	"slices"

	"github.com/memprof/memprof/bfc"
)

// Finish returns what the captures of a device used; nil where there were none. most is an upper bound, in bytes,
// of the memory that the process ever had on the device.
func (g *Tracker) Finish(device int32, most int64) *Result {
	d := g.byDevice[device]
	if d == nil || d.captures == 0 && len(d.stores) == 0 {
		return nil
	}
	for _, w := range d.ranges {
		w.sumRequested()
	}
	out := &Result{Captures: d.captures}
	var alone, several []*storeState
	for _, s := range d.stores {
		s.finish(most)
		out.Stores = append(out.Stores, s.Store)
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
	return out
}

// finish sets the sums of a store. most is that of [Tracker.Finish].
func (s *storeState) finish(most int64) {
	s.Final = s.r
	s.Released = len(s.arenas) > 0 && !slices.ContainsFunc(s.arenas, func(ar *Arena) bool { return !ar.Released })
	s.divide()
	for _, shape := range s.shapes {
		g := &shape.Shape
		if s.Memory == "" {
			g.Address = g.Footprint()
		}
		s.Sum += g.Footprint()
		s.Max = max(s.Max, g.Footprint())
		if g.Inputs > most {
			g.Inputs = -1
		}
		s.Inputs.add(g.Inputs)
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

// divide separates pages of one shape (Own) from pages of several (Shared). It visits the borders in the order of
// addresses, and counts the shapes that have the pages behind each. If that is one shape, the sum of the indices
// of these shapes is its index.
func (s *storeState) divide() {
	for _, ar := range s.arenas {
		var borders []border
		for i, shape := range s.shapes {
			for _, r := range shape.pages[ar.Index] {
				borders = append(borders, border{r.From, i, 1}, border{r.To, i, -1})
				shape.Shared += r.Bytes()
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
func whatIf(pool string, stores ...*storeState) WhatIf {
	w := WhatIf{Pool: pool}
	var all []*shapeState
	for _, s := range stores {
		w.Physical += s.Physical
		w.Why = cmp.Or(w.Why, s.why)
		for _, shape := range s.shapes {
			if len(shape.ops) == 0 {
				continue
			}
			all = append(all, shape)
			if shape.Name == "" {
				w.Unnamed++
			}
		}
	}
	w.Shapes = len(all)
	if len(all) < 2 {
		w.Why = cmp.Or(w.Why, "fewer than two shapes asked for memory")
	}
	var model, memory Model
	if w.Why == "" {
		w.Model, model, memory, w.Why = all[0].arena.models()
	}
	if w.Why != "" {
		return w
	}
	for _, s := range stores {
		w.Recorded += Shared(model, []*Sequence{{Ops: s.log}})
	}
	shapes := sequences(all)
	for _, bytes := range Separate(model, shapes) {
		w.Separate += bytes
		w.Largest = max(w.Largest, bytes)
	}
	w.Descended = Shared(model, LargestFirst(shapes))
	w.Ascended = Shared(model, SmallestFirst(shapes))
	w.Aliased = Aliased(memory, shapes)
	for _, s := range shapes {
		w.Outlive += s.Outlives()
	}
	return w
}

// models returns the name and the model of the allocator that served an arena, and the model of a graph memory in
// its place. That splits every chunk: slack in the largest range would enlarge the memory of all ranges. Why there is
// none is last.
func (ar *Arena) models() (name string, pool, memory Model, why string) {
	switch {
	case ar.Unknown && ar.Coalesces:
		return "", nil, nil, "torch's expandable segments are not modelled"
	case ar.Unknown:
		return "torch", Torch, Torch, ""
	}
	options := bfc.Options{Growth: bfc.Needed}
	if ar.Info.Options["growth"] != "" {
		if recorded, err := bfc.ParseFields(func(name string) (string, bool) { text, ok := ar.Info.Options[name]; return text, ok }); err == nil {
			options.Growth, options.Split = recorded.Growth, recorded.Split
		}
	}
	unit := ar.Granularity()
	return "bfc", BFC(unit, options), BFC(unit, bfc.Options{Growth: bfc.Needed, Split: bfc.SplitAlways}), ""
}

// sequences returns the requests of shapes, in the order in which the shapes began, as they are replayed in
// any order.
func sequences(all []*shapeState) (shapes []*Sequence) {
	slices.SortFunc(all, func(x, y *shapeState) int { return cmp.Compare(x.index, y.index) })
	end := all[len(all)-1].index
	for i, s := range all {
		ops, late := s.ops, []Late(nil)
		for _, l := range s.late {
			further := 0
			for _, other := range all[i+1:] {
				if other.index <= l.last {
					further++
				}
			}
			switch {
			case !l.own && l.last >= end: // it outlived all of them
			case l.own || further == 0:
				ops = append(ops, Op{Block: l.block})
			default:
				late = append(late, Late{Block: l.block, Shapes: further})
			}
		}
		shapes = append(shapes, &Sequence{Ops: ops, Late: late})
	}
	return shapes
}
