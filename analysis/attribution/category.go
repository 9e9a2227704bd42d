package attribution

import (
	"slices"

	"github.com/memprof/memprof/analysis/ledger"
)

// Category is what a block is for.
type Category uint8

const (
	NoCategory Category = iota // not known
	Weights                    // labelled: parameters and buffers of modules
	Gradients                  // labelled
	Optimizer                  // labelled: the optimizer's state
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

// parseCategory is the category of a name, NoCategory for a name that is none.
func parseCategory(name string) Category {
	return Category(max(0, slices.Index(categoryNames[:], name)))
}

// Category is what a block is for. Its last label decides; without one, the arena and phase that it
// was allocated in, and whether it was freed before the phase ended:
//
//	in a pool of CUDA graphs    cuda_graphs
//	freed within its phase      workspace
//	beyond it, from forward     activations
//	beyond it, from data        inputs
//	all else                    other
//
// The end of the trace and a failed request end all open phases: blocks that are live there have
// outlived their phase, since an exception or an exit frees blocks that are still in use.
func (t *Tracker) Category(b *ledger.Block) Category {
	if b.Label != 0 {
		if c := t.parsed(b.Label).category; c != NoCategory {
			return c
		}
	}
	if t.graphs(b) {
		return CUDAGraphs
	}
	switch {
	case b.Phase == OtherPhase:
		return Other
	case b.Within:
		return Workspace
	}
	switch t.Phases.Name(b.Phase) {
	case "forward":
		return Activations
	case "data":
		return Inputs
	}
	return Other
}
