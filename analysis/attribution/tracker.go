package attribution

import (
	"strings"

	"github.com/memprof/memprof/analysis/ledger"
	"github.com/memprof/memprof/trace"
)

// parameters are those of one size.
type parameters struct {
	count int // of them
	// like is how many blocks of that size are live that were made outside of phases after a backward, and most the greatest so far.
	like, most int
}

// mostStates is how many blocks like a parameter an optimizer has for it: with more they are no optimizer's.
const mostStates = 4

// Options of a Tracker.
type Options struct {
	Text   func(context int32) string // the text of a context
	Top    int                        // stacks in a Breakdown
	Groups int                        // modules in a Breakdown

	Opening int64 // events before restate blocks of any age

	AllFrames bool // stacks have all their frames, not only those of the job's own code
}

// Tracker follows the events of a process that say where requests come from: contexts, labels, stacks, phases.
type Tracker struct {
	Phases Phases

	opt      Options
	stacks   stacks
	contexts []*parsed  // by context, nil where not parsed yet
	arenas   []arenaUse // by index
	passes
	parameterSizes map[int64]*parameters // by the requested bytes of blocks that were labelled as weights
	workspaces     map[[2]int64]int      // live blocks without a label that are as large as one of cuBLAS, by arena and bytes
	known          bool                  // an event about origins came
	capturing      bool                  // a CUDA graph is being captured
	captured       bool                  // one was
}

// arenaUse is what attribution needs of an arena.
type arenaUse struct {
	tag      string
	pooled   bool // its options name a pool
	captured bool // something was allocated in it during a capture
}

// New is a Tracker of a process without events.
func New(opt Options) *Tracker { return &Tracker{opt: opt, workspaces: map[[2]int64]int{}} }

// Arena adds the next arena, with its options.
func (t *Tracker) Arena(options map[string]string) {
	t.arenas = append(t.arenas, arenaUse{tag: options["tag"], pooled: Pooled(options)})
}

// Pooled says whether the options of an arena name a pool of CUDA graphs.
func Pooled(options map[string]string) bool {
	pool := options["pool"]
	return pool != "" && pool != "0" && pool != "0.0"
}

// Stack adds a node of a call stack.
func (t *Tracker) Stack(e *trace.Event) {
	t.known = true
	t.stacks.add(e)
}

// Phase takes a phase_begin or phase_end.
func (t *Tracker) Phase(e *trace.Event) {
	t.known = true
	name := trace.ParseContext(e.Kind, t.opt.Text(e.Context)).Name()
	if strings.HasPrefix(name, "Optimizer.step#") { // the annotation of PyTorch's optimizers
		name = "optimizer"
	}
	if e.Kind == trace.KindPhaseBegin {
		t.step(name, true, e.Seq)
		t.Phases.begin(e.Context, name)
	} else {
		t.Phases.end(e.Context)
		t.step(name, false, e.Seq)
	}
}

// step follows training. What is recomputed in backward is no forward.
func (t *Tracker) step(name string, begins bool, seq int64) {
	if name == "backward" || !t.inBackward() {
		t.changed(name, begins, seq)
	}
}

// Label takes a label event of a block, nil for none. The caller keeps its context with the block.
func (t *Tracker) Label(context int32, of *ledger.Segment) {
	t.known = true
	if of != nil && of.Label == 0 {
		t.likeWorkspace(of.Block().Arena, of.Requested, -1)
	}
	if of != nil && t.LabelCategory(context) == Weights {
		if t.parameterSizes == nil {
			t.parameterSizes = map[int64]*parameters{}
		}
		if t.parameterSizes[of.Requested] == nil {
			t.parameterSizes[of.Requested] = &parameters{}
		}
		t.parameterSizes[of.Requested].count++
	}
}

// Capture takes the number of CUDA graphs that are being captured from now on.
func (t *Tracker) Capture(open int64) {
	t.capturing = open > 0
	t.captured = t.captured || t.capturing
}

// Capturing says whether a CUDA graph is being captured.
func (t *Tracker) Capturing() bool { return t.capturing }

// graphs says whether a block is memory of CUDA graphs: all blocks in the arenas of a pool are,
// unless the trace has captures and nothing was allocated in the arena during one.
func (t *Tracker) graphs(b *ledger.Block) bool {
	a := &t.arenas[b.Arena]
	return a.pooled && (a.captured || !t.captured)
}
