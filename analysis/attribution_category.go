package analysis

import "slices"

// Category is what a block is for.
type Category uint8

const (
	noCategory Category = iota
	Weights             // labelled: parameters and buffers of modules
	Gradients           // labelled
	Optimizer           // labelled: the optimizer's state
	Activations
	Inputs
	KVCache // labelled
	CUDAGraphs
	Workspace
	Other
)

// categoryNames are stable: metrics and JSON have them.
var categoryNames = [...]string{"", "weights", "gradients", "optimizer", "activations", "inputs", "kv_cache", "cuda_graphs", "workspace", "other"}

func (c Category) String() string { return categoryNames[c] }

// parseCategory is the category of a name, noCategory for a name that is none.
func parseCategory(name string) Category {
	return Category(max(0, slices.Index(categoryNames[:], name)))
}

// category tells what a block is for. Its last label decides. What has none is told from
// where and when it was allocated, and whether its phase was still on when it was freed:
//
//	in a pool of CUDA graphs    cuda_graphs
//	freed within its phase      workspace
//	beyond it, from forward     activations
//	beyond it, from data        inputs
//	all else                    other
//
// A phase that the trace, or a failed request, cuts off has ended there: what lives then has
// lived beyond it, because what an exception or an exit frees was not let go for want of use.
func (a *analyzer) category(b *block) Category {
	if b.label != 0 {
		if c := a.requester(b.label).category; c != noCategory {
			return c
		}
	}
	if a.arenas[b.arena].graphs(a.captured) {
		return CUDAGraphs
	}
	switch {
	case b.phase == otherPhase:
		return Other
	case b.within:
		return Workspace
	}
	switch a.phases.name(b.phase) {
	case "forward":
		return Activations
	case "data":
		return Inputs
	}
	return Other
}

// graphs says whether an arena holds the memory of CUDA graphs: those of a pool do, unless the
// trace tells of captures and nothing was allocated in the arena during one.
func (ar *arena) graphs(captured bool) bool {
	return ar.pooled && (ar.captured || !captured)
}

// pooled says whether the options of an arena name a pool.
func pooled(options map[string]string) bool {
	pool := options["pool"]
	return pool != "" && pool != "0" && pool != "0.0"
}
