package report

import (
	"fmt"

	"github.com/memprof/memprof/analysis"
)

// graphSections are what CUDA graphs hold memory for; none where nothing was captured.
func graphSections(d *analysis.DeviceResult) []section {
	g := d.Graphs
	if g == nil {
		return nil
	}
	sections := append([]section{graphStoreSection(g)}, graphShapeSections(d, g)...)
	for i := range g.WhatIfs {
		sections = append(sections, whatIfSection(&g.WhatIfs[i]))
	}
	return sections
}

// graphKind is a line of the stores: one of them, or all pools with one shape.
type graphKind struct {
	name                                                              string
	shapes                                                            int64
	sum, most, distinct, saved, untouched, physical, aliased, outputs int64
	inputs                                                            analysis.GraphInputs // Sum and Max of those that are known
}

func (k *graphKind) add(s *analysis.GraphStore) {
	k.shapes += int64(len(s.Shapes))
	k.sum += s.Sum
	k.most = max(k.most, s.Max)
	k.distinct += s.Distinct
	k.saved += s.Saved
	k.untouched += s.Untouched
	k.physical += s.Physical
	k.aliased += s.Aliased
	k.inputs.Sum += max(0, s.Inputs.Sum)
	k.inputs.Max += max(0, s.Inputs.Max)
	k.inputs.Unknown += s.Inputs.Unknown
	for i := range s.Shapes {
		k.outputs += s.Shapes[i].Outputs
	}
}

func (k *graphKind) row() []cell {
	return row(k.name, formatCount(k.shapes), FormatSize(k.sum), FormatSize(k.most), FormatSize(k.physical),
		FormatSize(k.distinct), FormatSize(k.untouched), FormatSize(k.saved))
}

// graphKinds are the lines, and their sum.
func graphKinds(g *analysis.Graphs) (kinds []graphKind, total graphKind) {
	apart := graphKind{}
	for i := range g.Stores {
		s := &g.Stores[i]
		total.add(s)
		if s.Memory == "" && len(s.Shapes) == 1 {
			apart.add(s)
			continue
		}
		k := graphKind{name: storeName(s)}
		k.add(s)
		kinds = append(kinds, k)
	}
	if apart.shapes > 0 {
		apart.name = apartName
		kinds = append([]graphKind{apart}, kinds...)
	}
	total.name = "= all"
	return kinds, total
}

const apartName = "a pool each"

func storeName(s *analysis.GraphStore) string {
	if s.Memory != "" {
		return "graph memory " + shorten(s.Memory, 6)
	}
	return "pool " + shorten(s.Pool, 12)
}

func graphStoreSection(g *analysis.Graphs) section {
	kinds, total := graphKinds(g)
	s := section{
		title:  "CUDA graphs",
		before: note(fmt.Sprintf("%s of %s", plural(g.Captures, "capture"), plural(total.shapes, "shape"))),
		columns: []column{
			words("store"), numbers("shapes"), numbers("Σ shapes"), numbers("max shape"), numbers("actual"),
			numbers("touched"), numbers("untouched"), numbers("saved"),
		},
	}
	for i := range kinds {
		s.rows = append(s.rows, kinds[i].row())
	}
	if len(kinds) > 1 {
		s.total = toned(strong, total.row())
	}
	s.after = note("Σ shapes = touched + saved; actual, the most that was mapped, = touched + untouched; saved is by reuse or")
	s.after = append(s.after, note("aliasing and in no term of waste")...)
	if total.aliased > 0 {
		s.after = append(s.after, note(fmt.Sprintf("ranges of graph memories saw at most %s of addresses at once", FormatSize(total.aliased)))...)
	}
	if total.outputs > 0 {
		s.after = append(s.after, note(FormatSize(total.outputs)+" were still live when their shapes' last captures ended")...)
	}
	switch in := total.inputs; {
	case in.Unknown > 0:
		s.after = append(s.after, toned(warned, note("persistent inputs: unknown, since "+plural(int64(in.Unknown), "shape")+" reported more than the process ever had on the device"))...)
	case in.Sum > 0:
		s.after = append(s.after, note(fmt.Sprintf("persistent inputs: %s for the largest shape of each store, Σ shapes %s", FormatSize(in.Max), FormatSize(in.Sum)))...)
	}
	return s
}

// graphShapeSections list the shapes: one list of those that have a pool each, and one of each
// other store.
func graphShapeSections(d *analysis.DeviceResult, g *analysis.Graphs) []section {
	var apart section
	var others []section
	for i := range g.Stores {
		store := &g.Stores[i]
		switch {
		case len(store.Shapes) == 0:
		case store.Memory == "" && len(store.Shapes) == 1:
			apart.rows = append(apart.rows, graphShapeRow(store, 0, storeName(store)))
		default:
			s := section{title: storeName(store)}
			for k := range store.Shapes {
				s.rows = append(s.rows, graphShapeRow(store, k, fmt.Sprintf("(%d)", k+1)))
			}
			others = append(others, s)
		}
	}
	sections := others
	if len(apart.rows) > 0 {
		apart.title = apartName
		sections = append([]section{apart}, others...)
	}
	for i := range sections {
		s := &sections[i]
		s.title = "CUDA graphs by shape · " + s.title
		s.columns = []column{
			words("shape"), numbers("captures"), numbers("took"), numbers("requested"), numbers("provided"),
			numbers("own"), numbers("shared"), numbers("addresses"),
		}
		s.elide(24, 8)
		s.after = note("own and shared: physical pages that it alone, or others too, were handed; took: from begin to end of its captures")
		if d.Sampled != nil {
			s.after = append(s.after, note("sizes are to the segment of "+shorten(d.Sampled.Allocator, 24)+", whose chunks are not told")...)
		}
	}
	return sections
}

func graphShapeRow(store *analysis.GraphStore, k int, unnamed string) []cell {
	shape := &store.Shapes[k]
	name := shape.Name
	if name == "" {
		name = unnamed
	}
	line := row(shorten(name, 14), formatCount(shape.Captures), FormatDuration(shape.Time), FormatSize(shape.Requested),
		formatLimit(shape.Provided), FormatSize(shape.Own), FormatSize(shape.Shared), FormatSize(shape.Address))
	if shape.Released || store.Released {
		return toned(faint, line)
	}
	return line
}

// whatIfSection compares what was recorded with the replay of other policies.
func whatIfSection(w *analysis.GraphWhatIf) section {
	s := section{title: "CUDA graphs in other pools · " + apartName}
	if w.Pool != "" {
		s.title = "CUDA graphs in other pools · pool " + shorten(w.Pool, 12)
	}
	if w.Why != "" {
		s.before = toned(faint, note("not replayed: "+w.Why))
		return s
	}
	s.before = note(fmt.Sprintf("the requests of %s, replayed by the policy of %s", plural(int64(w.Shapes), "shape"), modelName(w.Model)))
	s.columns = []column{words("policy"), numbers("physical"), numbers("saves"), words("what it is")}
	for _, line := range []struct {
		name, meaning string
		bytes         int64
		tone          tone
	}{
		{"as recorded", "the replay of " + FormatSize(w.Physical) + " measured", w.Recorded, faint},
		{"separate pools", "each shape by itself, Σ", w.Separate, plain},
		{"shared, smallest first", "one pool, ascending", w.Ascended, plain},
		{"shared, largest first", "one pool, descending (vLLM, SGLang)", w.Descended, plain},
		{"aliased", "memprof.GraphMemory, in any order", w.Aliased, strong},
	} {
		saved := row(line.name, FormatSize(line.bytes), FormatSize(w.Physical-line.bytes), line.meaning)
		s.rows = append(s.rows, toned(line.tone, saved))
	}
	if w.Outlive > 0 {
		s.after = note(fmt.Sprintf("%s outlive their shapes: aliased, they are declared outputs, copied or placed outside", FormatSize(w.Outlive)))
	}
	if w.Unnamed > 0 {
		s.after = append(s.after, note(fmt.Sprintf("captures without a name count as shapes of their own (%s here); memprof.phase(name) joins pieces in one pool", formatCount(int64(w.Unnamed))))...)
	}
	return s
}

func modelName(model string) string {
	if model == "torch" {
		return "torch's allocator (its rounding and segments)"
	}
	return "memprof's allocator"
}
