package report

import "github.com/memprof/memprof/analysis"

// jsonGraphs are analysis.Graphs; there only where something was captured. In each store
// sum = distinct + saved and physical = distinct + untouched; in each shape
// footprint = own + shared.
type jsonGraphs struct {
	Captures int64            `json:"captures"`
	Stores   []jsonGraphStore `json:"stores"`
	WhatIfs  []jsonWhatIf     `json:"what_if"`
}

type jsonGraphStore struct {
	GraphMemory *string          `json:"graph_memory"` // null for a pool
	Pool        *string          `json:"pool"`         // null for a graph memory
	Released    bool             `json:"released"`
	Physical    int64            `json:"physical"` // greatest
	Final       int64            `json:"final"`
	Sum         int64            `json:"sum"`
	Max         int64            `json:"max"`
	Distinct    int64            `json:"distinct"`
	Saved       int64            `json:"saved"` // in no term of waste
	Untouched   int64            `json:"untouched"`
	Aliased     int64            `json:"aliased"`
	InputsSum   *int64           `json:"inputs_sum"` // null where a shape reported more than there can be
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

func newJSONGraphs(g *analysis.Graphs) *jsonGraphs {
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
			Pool: nameOrNull(w.Pool), Why: nameOrNull(w.Why), Shapes: w.Shapes, Unnamed: w.Unnamed, Model: nameOrNull(w.Model), Physical: w.Physical, Recorded: when(w.Recorded),
			Separate: when(w.Separate), Largest: when(w.Largest), LargestFirst: when(w.Descended), SmallestFirst: when(w.Ascended),
			Aliased: when(w.Aliased), Outlive: when(w.Outlive),
		})
	}
	return j
}

func newJSONGraphStore(s *analysis.GraphStore) jsonGraphStore {
	j := jsonGraphStore{
		GraphMemory: nameOrNull(s.Memory), Pool: nameOrNull(s.Pool), Released: s.Released, Physical: s.Physical, Final: s.Final,
		Sum: s.Sum, Max: s.Max, Distinct: s.Distinct, Saved: s.Saved, Untouched: s.Untouched, Aliased: s.Aliased,
		InputsSum: known(s.Inputs.Sum), InputsMax: known(s.Inputs.Max), Shapes: []jsonGraphShape{},
	}
	for i := range s.Shapes {
		shape := &s.Shapes[i]
		j.Shapes = append(j.Shapes, jsonGraphShape{
			Name: shape.Name, Seq: shape.Seq, TimeNS: shape.Start, Captures: shape.Captures, CaptureNS: shape.Time,
			Requested: shape.Requested, Provided: known(shape.Provided), Footprint: shape.Footprint(), Own: shape.Own, Shared: shape.Shared,
			Addresses: shape.Address, LeftLive: shape.Outputs, Inputs: known(shape.Inputs), Released: shape.Released,
		})
	}
	return j
}

// nameOrNull is a name, or null for none.
func nameOrNull(name string) *string {
	if name == "" {
		return nil
	}
	return &name
}
