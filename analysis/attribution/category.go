package attribution

import (
	"slices"
	"strings"

	"github.com/memprof/memprof/analysis/ledger"
)

// Category is what a block is for.
type Category uint8

const (
	NoCategory Category = iota // not known
	Weights
	Gradients
	Optimizer
	Copies
	Activations
	Temporaries
	Loss
	Inputs
	Workspace
	KVCache
	CUDAGraphs
	Communication
	Other
)

// categoryNames are stable: metrics and JSON have them.
var categoryNames = [...]string{"", "weights", "gradients", "optimizer", "copies", "activations", "temporaries", "loss", "inputs",
	"workspace", "kv_cache", "cuda_graphs", "communication", "other"}

func (c Category) String() string { return categoryNames[c] }

// categoryRules say what each category has: the one rule that [Tracker.Category] goes by. Help prints them.
var categoryRules = [...]string{"",
	"labelled: parameters and buffers of modules. Where nothing is labelled, made before the first pass and persistent, or made in a phase named load and alive beyond it",
	"labelled, or allocated in backward and alive beyond it; where backward is not marked, between forward and the optimizer's step",
	"labelled, or allocated in the optimizer's step and alive beyond it, or persistent, as large as a parameter, made after a backward and at most four for each",
	"persistent and no parameter: alive beyond the next iteration, or made outside of passes and alive beyond its own. EMA, caches, kept outputs",
	"allocated in forward and alive beyond it: saved for backward, which frees it",
	"allocated and freed within one pass",
	"the output of forward, and what is made of it before backward: logits, log-probabilities",
	"labelled, or allocated in the data phase and alive beyond it, or made between iterations and gone after them",
	"of cuBLAS, as large as its workspaces are, few of a size and never freed; of cuDNN, freed before anything else is allocated or freed",
	"labelled, or made by a module and an argument of later calls in a job without backward, or made in a phase with kv in its name and alive beyond it",
	"in pools of CUDA graphs",
	"labelled",
	"none of these rules decides",
}

// Rule says what a category has, for help.
func (c Category) Rule() string { return categoryRules[c] }

// parseCategory is the category of a name, NoCategory for a name that is none.
func parseCategory(name string) Category {
	return Category(max(0, slices.Index(categoryNames[:], name)))
}

// Category is what a block is for: its last label decides, then its arena, then when it was allocated and how it
// ended; see [Category.Rule]. The end of the trace and a failed request end all open phases: blocks that are live
// there have outlived their phase, since an exception or an exit frees blocks that are still in use.
func (t *Tracker) Category(b *ledger.Block) Category {
	if b.Label != 0 {
		label := t.parsed(b.Label).category
		switch {
		case label == Inputs && (Fate(b.Fate) == replaced || Fate(b.Fate) == alive && b.Born&bornInModule != 0 && !t.trains()):
			return KVCache
		case label != NoCategory:
			return label
		}
	}
	if t.graphs(b) {
		return CUDAGraphs
	}
	fate := Fate(b.Fate)
	if fate == alive && t.lasts(b.Seq) {
		fate = t.keptAs(b.Born, b.Requested)
	}
	switch {
	case Fate(b.Fate) == alive && (fate != alive || t.over) && IsWorkspace(b.Requested, t.workspaces[[2]int64{int64(b.Arena), b.Requested}]):
		return Workspace
	case b.Seq < t.opt.Opening && fate != inBackward: // when in its life that was is not known
		return Other
	case fate == atOnce:
		return Workspace
	case fate == within:
		return Temporaries
	case fate == output:
		return Loss
	}
	name := t.Phases.Name(b.Phase)
	switch name {
	case "forward":
		if fate == kept || fate == keptState {
			return Copies
		}
		return Activations
	case "backward":
		return Gradients
	case "optimizer":
		return Optimizer
	case "data":
		return Inputs
	case "load":
		return Weights
	}
	if IsKVPhase(name) {
		return KVCache
	}
	return t.outside(b, fate)
}

// IsKVPhase says whether what a phase makes is a KV cache, by its name.
func IsKVPhase(name string) bool { return strings.Contains(strings.ToLower(name), "kv") }

// The workspaces, in bytes, that PyTorch gives cuBLAS for a handle and stream: on Hopper and later, as CUBLAS_WORKSPACE_CONFIG=:4096:8 does
// elsewhere; and before.
const (
	LargeWorkspace = 32 << 20
	SmallWorkspace = 4096<<10*2 + 16<<10*8 // :4096:2:16:8
)

// cublasSizes are these, and cuBLASLt's. A CUBLAS_WORKSPACE_CONFIG of another size is not known.
var cublasSizes = []int64{LargeWorkspace, SmallWorkspace, 1 << 20}

// mostHandles is how many threads use cuBLAS on a stream at most. More blocks of one size are something else: a projection of Llama 7B
// has 32 MiB, too.
const mostHandles = 4

// IsWorkspace says whether blocks that nobody labelled may be cuBLAS's: by their bytes, and by how many of a stream are alive.
func IsWorkspace(bytes int64, alive int) bool {
	return alive <= mostHandles && slices.Contains(cublasSizes, bytes)
}

// likeWorkspace counts blocks as large as a workspace that nobody labelled.
func (t *Tracker) likeWorkspace(arena int32, bytes int64, more int) {
	if slices.Contains(cublasSizes, bytes) {
		t.workspaces[[2]int64{int64(arena), bytes}] += more
	}
}

// outside is the category of a block that was allocated outside of the phases of training.
func (t *Tracker) outside(b *ledger.Block, fate Fate) Category {
	switch {
	case fate == keptState:
		return Optimizer
	case fate == keptAll, fate == kept && b.Born&bornInPass == 0 && t.parameterSizes == nil:
		return Weights
	case (fate == kept || fate == crossed) && !t.backward && b.Born&bornAfterForward != 0 && slices.Contains(t.Phases.names, "optimizer"):
		return Gradients
	case fate == kept, fate == crossed:
		return Copies
	case fate == inBackward:
		return Activations
	case fate == alive && b.Born&bornAfterForward != 0 && t.trains():
		return Loss
	case fate == alive && t.over && t.Phases.Any():
		return Copies
	case fate == goneLater:
		return Inputs
	}
	return Other
}
