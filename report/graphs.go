package report

import (
	"fmt"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/graphs"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/report/layout"
)

// graphSections say what memory CUDA graphs use. There are none if nothing was captured.
func graphSections(d *analysis.DeviceResult) []layout.Section {
	g := d.Graphs
	if g == nil {
		return nil
	}
	sections := append([]layout.Section{graphStoreSection(g)}, graphShapeSections(d, g)...)
	for i := range g.WhatIfs {
		sections = append(sections, whatIfSection(&g.WhatIfs[i]))
	}
	return sections
}

// graphKind is a row of the table of stores: one store, or all pools that have one shape.
type graphKind struct {
	name                                                              string
	shapes                                                            int64
	sum, most, distinct, saved, untouched, physical, aliased, outputs int64
	inputs                                                            graphs.Inputs // sums of the known Sum and Max
}

func (k *graphKind) add(s *graphs.Store) {
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

func (k *graphKind) row() []layout.Cell {
	return layout.Row(k.name, plain.FormatCount(k.shapes), plain.FormatSize(k.sum), plain.FormatSize(k.most), plain.FormatSize(k.physical),
		plain.FormatSize(k.distinct), plain.FormatSize(k.untouched), plain.FormatSize(k.saved))
}

// graphKinds are the rows, and their sum.
func graphKinds(g *graphs.Result) (kinds []graphKind, total graphKind) {
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
		apart.name = singlesName
		kinds = append([]graphKind{apart}, kinds...)
	}
	total.name = "= all"
	return kinds, total
}

const singlesName = "pools of one shape"

func storeName(s *graphs.Store) string {
	if s.Memory != "" {
		return "graph memory " + plain.Shorten(s.Memory, 6)
	}
	return "pool " + plain.Shorten(s.Pool, 12)
}

func graphStoreSection(g *graphs.Result) layout.Section {
	kinds, total := graphKinds(g)
	s := layout.Section{
		Title:  "CUDA graphs",
		Before: layout.Note(fmt.Sprintf("%s of %s", plain.Counted(g.Captures, "capture"), plain.Counted(total.shapes, "shape"))),
		Columns: []layout.Column{
			layout.Words("store"), layout.Numbers("shapes"), layout.Numbers("Σ shapes"), layout.Numbers("max shape"), layout.Numbers("mapped"),
			layout.Numbers("used"), layout.Numbers("unused"), layout.Numbers("saved"),
		},
	}
	for i := range kinds {
		s.Rows = append(s.Rows, kinds[i].row())
	}
	if len(kinds) > 1 {
		s.Total = layout.Toned(layout.Strong, total.row())
	}
	s.After = layout.Row("Σ shapes = used + saved; mapped (maximum) = used + unused;", "saved: pages that several shapes use, in no term of waste")
	if total.aliased > 0 {
		s.After = append(s.After, layout.Note(fmt.Sprintf("address ranges of graph memories: at most %s at once", plain.FormatSize(total.aliased)))...)
	}
	if total.outputs > 0 {
		s.After = append(s.After, layout.Note(plain.FormatSize(total.outputs)+" were live after the last capture of their shape")...)
	}
	switch in := total.inputs; {
	case in.Unknown > 0:
		s.After = append(s.After, layout.Toned(layout.Warned, layout.Note("persistent inputs: not known, "+plain.Counted(int64(in.Unknown), "shape")+" reported more bytes than the process ever used on the device"))...)
	case in.Sum > 0:
		s.After = append(s.After, layout.Note(fmt.Sprintf("persistent inputs: %s for the largest shape of each store, %s for all shapes", plain.FormatSize(in.Max), plain.FormatSize(in.Sum)))...)
	}
	return s
}

// graphShapeSections list the shapes: those of pools of one shape in one table, and those of each other
// store in a table of its own.
func graphShapeSections(d *analysis.DeviceResult, g *graphs.Result) []layout.Section {
	var apart layout.Section
	var others []layout.Section
	for i := range g.Stores {
		store := &g.Stores[i]
		switch {
		case len(store.Shapes) == 0:
		case store.Memory == "" && len(store.Shapes) == 1:
			apart.Rows = append(apart.Rows, graphShapeRow(store, 0, storeName(store)))
		default:
			s := layout.Section{Title: storeName(store)}
			for k := range store.Shapes {
				s.Rows = append(s.Rows, graphShapeRow(store, k, fmt.Sprintf("(%d)", k+1)))
			}
			others = append(others, s)
		}
	}
	sections := others
	if len(apart.Rows) > 0 {
		apart.Title = singlesName
		sections = append([]layout.Section{apart}, others...)
	}
	for i := range sections {
		s := &sections[i]
		s.Title = "CUDA graphs by shape · " + s.Title
		s.Columns = []layout.Column{
			layout.Words("shape"), layout.Numbers("captures"), layout.Numbers("took"), layout.Numbers("requested"), layout.Numbers("provided"),
			layout.Numbers("own"), layout.Numbers("shared"), layout.Numbers("addresses"),
		}
		s.Elide(24, 8)
		s.After = layout.Note("own, shared: pages, of PyTorch's own allocator whole segments, that this shape alone, or others too, use; took: duration of its captures")
	}
	return sections
}

func graphShapeRow(store *graphs.Store, k int, unnamed string) []layout.Cell {
	shape := &store.Shapes[k]
	name := shape.Name
	if name == "" {
		name = unnamed
	}
	line := layout.Row(plain.Shorten(name, 14), plain.FormatCount(shape.Captures), plain.FormatDuration(shape.Time), plain.FormatSize(shape.Requested),
		plain.FormatKnown(shape.Provided), plain.FormatSize(shape.Own), plain.FormatSize(shape.Shared), plain.FormatSize(shape.Address))
	if shape.Released || store.Released {
		return layout.Toned(layout.Faint, line)
	}
	return line
}

// whatIfSection replays the requests of the captures in other pools.
func whatIfSection(w *graphs.WhatIf) layout.Section {
	s := layout.Section{Title: "CUDA graphs in other pools · " + singlesName}
	if w.Pool != "" {
		s.Title = "CUDA graphs in other pools · pool " + plain.Shorten(w.Pool, 12)
	}
	if w.Why != "" {
		s.Before = layout.Toned(layout.Faint, layout.Note("not replayed: "+w.Why))
		return s
	}
	s.Before = layout.Note(fmt.Sprintf("requests of %s, replayed under the policy of %s", plain.Counted(int64(w.Shapes), "shape"), modelName(w.Model)))
	s.Columns = []layout.Column{layout.Words("policy"), layout.Numbers("physical"), layout.Numbers("saves"), layout.Words("meaning")}
	for _, line := range []struct {
		name, meaning string
		bytes         int64
		tone          layout.Tone
	}{
		{"as recorded", "replayed; mapped were " + plain.FormatSize(w.Physical), w.Recorded, layout.Faint},
		{"separate pools", "a pool for each shape", w.Separate, layout.Plain},
		{"shared, smallest first", "one pool, ascending", w.Ascended, layout.Plain},
		{"shared, largest first", "one pool, descending (vLLM, SGLang)", w.Descended, layout.Plain},
		{"aliased", "memprof.GraphMemory, in any order", w.Aliased, layout.Strong},
	} {
		saved := layout.Row(line.name, plain.FormatSize(line.bytes), plain.FormatSize(w.Physical-line.bytes), line.meaning)
		s.Rows = append(s.Rows, layout.Toned(line.tone, saved))
	}
	if w.Outlive > 0 {
		s.After = layout.Note(fmt.Sprintf("%s outlive their shapes: with aliasing they must be declared outputs, copied, or placed outside", plain.FormatSize(w.Outlive)))
	}
	if w.Unnamed > 0 {
		s.After = append(s.After, layout.Note(fmt.Sprintf("each capture without a name counts as a shape (%s here): memprof.phase(name) joins them", plain.FormatCount(int64(w.Unnamed))))...)
	}
	return s
}

func modelName(model string) string {
	if model == "torch" {
		return "torch's allocator (its rounding and segments)"
	}
	return "memprof's allocator"
}

// jsonGraphs is there only if something was captured. In each store sum = distinct + saved and
// physical = distinct + untouched; in each shape footprint = own + shared.
type jsonGraphs struct {
	Captures int64            `json:"captures"`
	Stores   []jsonGraphStore `json:"stores"`
	WhatIfs  []jsonWhatIf     `json:"what_if"`
}

type jsonGraphStore struct {
	GraphMemory *string          `json:"graph_memory"` // null for a pool
	Pool        *string          `json:"pool"`         // null for a graph memory
	Released    bool             `json:"released"`
	Physical    int64            `json:"physical"` // maximum
	Final       int64            `json:"final"`
	Sum         int64            `json:"sum"`
	Max         int64            `json:"max"`
	Distinct    int64            `json:"distinct"`
	Saved       int64            `json:"saved"` // in no term of waste
	Untouched   int64            `json:"untouched"`
	Aliased     int64            `json:"aliased"`
	InputsSum   *int64           `json:"inputs_sum"` // null if a shape reported more than is possible
	InputsMax   *int64           `json:"inputs_max"`
	Shapes      []jsonGraphShape `json:"shapes"`
}

type jsonGraphShape struct {
	Name      string `json:"name"`
	Seq       int64  `json:"seq"`
	TimeNS    int64  `json:"time_ns"`
	Captures  int64  `json:"captures"`
	CaptureNS int64  `json:"capture_ns"`
	Requested int64  `json:"requested"`
	Provided  *int64 `json:"provided"`
	Footprint int64  `json:"footprint"`
	Own       int64  `json:"own"`
	Shared    int64  `json:"shared"`
	Addresses int64  `json:"addresses"`
	LeftLive  int64  `json:"left_live"`
	Inputs    *int64 `json:"inputs"` // null where more was reported than there can be
	Released  bool   `json:"released"`
}

// jsonWhatIf is the replay of captures under other policies; its bytes are null where there is
// a reason why nothing was replayed.
type jsonWhatIf struct {
	Pool          *string `json:"pool"` // null: those with a pool each
	Why           *string `json:"why"`  // null: it was replayed
	Shapes        int     `json:"shapes"`
	Unnamed       int     `json:"unnamed"`  // of them: captures without a name
	Model         *string `json:"model"`    // null where nothing was replayed
	Physical      int64   `json:"physical"` // measured
	Recorded      *int64  `json:"recorded"` // replayed as recorded
	Separate      *int64  `json:"separate"`
	Largest       *int64  `json:"largest"`
	LargestFirst  *int64  `json:"shared_largest_first"`
	SmallestFirst *int64  `json:"shared_smallest_first"`
	Aliased       *int64  `json:"aliased"`
	Outlive       *int64  `json:"outlive"`
}

func newJSONGraphs(g *graphs.Result) *jsonGraphs {
	if g == nil {
		return nil
	}
	j := &jsonGraphs{Captures: g.Captures, Stores: []jsonGraphStore{}, WhatIfs: []jsonWhatIf{}}
	for i := range g.Stores {
		j.Stores = append(j.Stores, newJSONGraphStore(&g.Stores[i]))
	}
	for _, w := range g.WhatIfs {
		when := func(bytes int64) *int64 {
			if w.Why != "" {
				return nil
			}
			return &bytes
		}
		j.WhatIfs = append(j.WhatIfs, jsonWhatIf{
			Pool: plain.NotEmpty(w.Pool), Why: plain.NotEmpty(w.Why), Shapes: w.Shapes, Unnamed: w.Unnamed, Model: plain.NotEmpty(w.Model), Physical: w.Physical, Recorded: when(w.Recorded),
			Separate: when(w.Separate), Largest: when(w.Largest), LargestFirst: when(w.Descended), SmallestFirst: when(w.Ascended),
			Aliased: when(w.Aliased), Outlive: when(w.Outlive),
		})
	}
	return j
}

func newJSONGraphStore(s *graphs.Store) jsonGraphStore {
	j := jsonGraphStore{
		GraphMemory: plain.NotEmpty(s.Memory), Pool: plain.NotEmpty(s.Pool), Released: s.Released, Physical: s.Physical, Final: s.Final,
		Sum: s.Sum, Max: s.Max, Distinct: s.Distinct, Saved: s.Saved, Untouched: s.Untouched, Aliased: s.Aliased,
		InputsSum: plain.Known(s.Inputs.Sum), InputsMax: plain.Known(s.Inputs.Max), Shapes: []jsonGraphShape{},
	}
	for i := range s.Shapes {
		shape := &s.Shapes[i]
		j.Shapes = append(j.Shapes, jsonGraphShape{
			Name: shape.Name, Seq: shape.Seq, TimeNS: shape.Start, Captures: shape.Captures, CaptureNS: shape.Time,
			Requested: shape.Requested, Provided: plain.Known(shape.Provided), Footprint: shape.Footprint(), Own: shape.Own, Shared: shape.Shared,
			Addresses: shape.Address, LeftLive: shape.Outputs, Inputs: plain.Known(shape.Inputs), Released: shape.Released,
		})
	}
	return j
}
