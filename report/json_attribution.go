package report

import "github.com/memprof/memprof/analysis"

// jsonHeld is who held what at an instant; null where the recording tells nothing of it.
type jsonHeld struct {
	Categories jsonBreakdown   `json:"categories"`
	Phases     jsonBreakdown   `json:"phases"`
	Modules    jsonBreakdown   `json:"modules"`
	Kinds      jsonBreakdown   `json:"module_kinds"`
	Depths     []jsonBreakdown `json:"modules_by_depth"`
	Stacks     jsonBreakdown   `json:"stacks"`
}

// jsonBreakdown has every block once, in its groups or in the rest.
type jsonBreakdown struct {
	Groups     []jsonGroup `json:"groups"`
	RestGroups int64       `json:"rest_groups"`
	Rest       jsonGroup   `json:"rest"`
}

type jsonGroup struct {
	Name      string   `json:"name,omitempty"`
	Frames    []string `json:"frames,omitempty"`
	Blocks    int64    `json:"blocks"`
	Requested int64    `json:"requested"`
	Provided  *int64   `json:"provided"`
}

type jsonPhase struct {
	Phase         string `json:"phase"`
	DurationNS    int64  `json:"duration_ns"`
	PeakRequested int64  `json:"peak_requested"`
	PeakProvided  *int64 `json:"peak_provided"`
	Allocs        int64  `json:"allocs"`
	AllocBytes    int64  `json:"alloc_bytes"`
}

// jsonByPhase is an iteration by phase; of many the first and the last are told.
type jsonByPhase struct {
	Iteration *int64      `json:"iteration"`
	Phases    []jsonPhase `json:"phases"`
}

func newJSONHeld(held *analysis.Attribution) *jsonHeld {
	if held == nil || !held.Known {
		return nil
	}
	j := &jsonHeld{
		Categories: newJSONBreakdown(held, &held.Categories), Phases: newJSONBreakdown(held, &held.Phases),
		Modules: newJSONBreakdown(held, &held.Modules), Kinds: newJSONBreakdown(held, &held.Kinds), Depths: []jsonBreakdown{}, Stacks: newJSONBreakdown(held, &held.Stacks),
	}
	for i := range held.Depths {
		j.Depths = append(j.Depths, newJSONBreakdown(held, &held.Depths[i]))
	}
	return j
}

func newJSONBreakdown(held *analysis.Attribution, b *analysis.Breakdown) jsonBreakdown {
	j := jsonBreakdown{Groups: []jsonGroup{}, RestGroups: b.RestGroups, Rest: newJSONGroup(held, &b.Rest)}
	for i := range b.Groups {
		j.Groups = append(j.Groups, newJSONGroup(held, &b.Groups[i]))
	}
	return j
}

func newJSONGroup(held *analysis.Attribution, g *analysis.Group) jsonGroup {
	j := jsonGroup{g.Name, g.Frames, g.Blocks, g.Requested, &g.Provided}
	if held.Sampled {
		j.Provided = nil
	}
	return j
}

func newJSONPhases(uses []analysis.PhaseUse) []jsonPhase {
	out := []jsonPhase{}
	for _, u := range uses {
		out = append(out, jsonPhase{u.Phase, u.Duration, u.PeakT, known(u.PeakC), u.Allocs, u.AllocBytes})
	}
	return out
}

func newJSONByPhase(d *analysis.DeviceResult) []jsonByPhase {
	out := []jsonByPhase{}
	for _, it := range d.PhaseIterations {
		out = append(out, jsonByPhase{jsonIterationNumber(d, it.Iteration), newJSONPhases(it.Uses)})
	}
	return out
}
