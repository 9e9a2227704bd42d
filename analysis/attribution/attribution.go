package attribution

import (
	"fmt"

	"github.com/memprof/memprof/analysis/ledger"
)

// Result divides the live blocks of a device at one instant. Each breakdown has every block exactly once: its
// groups and its rest add up to T, C and the number of live blocks there.
type Result struct {
	// Known: the trace has a module, a stack, a phase, a label or a pool of CUDA graphs. Otherwise
	// everything is "other" and without a name.
	Known      bool
	Categories Breakdown // all that occur; "other" is what neither a label nor the phase decides
	Phases     Breakdown // in which the blocks were allocated; "other" is outside of all
	// Modules are the origins of the blocks: the dotted path of the module that requested it, or
	// else the text of a context without fields, or else the module whose parameter a label names.
	Modules Breakdown
	// Kinds are the modules with each number in a path replaced by "*": repeated layers of a model
	// are one, "h.*.attn".
	Kinds    Breakdown
	ByModule bool      // some origins are modules
	Stacks   Breakdown // by call stack
	// Uses are the categories again, with the module and line that most of each comes from.
	Uses []CategoryUse
}

// Attribute divides live blocks of a device.
func (t *Tracker) Attribute(blocks []ledger.Block) Result {
	result := Result{Known: t.known && len(blocks) > 0}
	categories, phases, contexts, uses := NewGrouping[Category](), NewGrouping[uint8](), NewGrouping[[2]int32](), NewGrouping[useKey]()
	for i := range blocks {
		b := &blocks[i]
		category := t.Category(b)
		result.Known = result.Known || category == CUDAGraphs
		categories.Add(category, b)
		phases.Add(b.Phase, b)
		contexts.Add([2]int32{b.Context, b.Label}, b)
		uses.Add(useKey{category, b.Phase, b.Context, b.Label}, b)
	}
	result.Uses = t.categoryUses(uses)
	result.Categories = categories.Breakdown(len(categoryNames), func(c Category) Group { return Named(c.String()) })
	result.Phases = phases.Breakdown(MaxPhases, func(p uint8) Group { return Named(t.Phases.Name(p)) })

	// From here on, blocks of one context and label count as one.
	origins, stacks := NewGrouping[Origin](), NewGrouping[int64]()
	for by, sums := range contexts.Sums() {
		origins.Merge(t.OriginOf(by[0], by[1]), sums)
		stack := t.parsed(by[0]).stack
		result.Known = result.Known || stack != 0
		stacks.Merge(t.stackOf(stack), sums)
	}
	result.Stacks = stacks.Breakdown(t.opt.Top, t.stackGroup)
	result.divide(origins, t.opt.Groups)
	return result
}

// divide fills in the breakdowns by module.
func (r *Result) divide(origins *Grouping[Origin], top int) {
	for o := range origins.Sums() {
		r.ByModule = r.ByModule || o.Module
	}
	r.Known = r.Known || r.ByModule
	by := func(name func(Origin) string) Breakdown {
		names := NewGrouping[string]()
		for o, sums := range origins.Sums() {
			names.Merge(name(o), sums)
		}
		return names.Breakdown(top, Named)
	}
	r.Modules = by(func(o Origin) string { return o.Name })
	r.Kinds = by(Origin.Kind)
}

// ByStack divides blocks among the call stacks that allocated them.
func (t *Tracker) ByStack(blocks []ledger.Block) Breakdown {
	contexts, stacks := NewGrouping[int32](), NewGrouping[int64]()
	for i := range blocks {
		contexts.Add(blocks[i].Context, &blocks[i])
	}
	for context, sums := range contexts.Sums() {
		stacks.Merge(t.StackOf(context), sums)
	}
	return stacks.Breakdown(t.opt.Top, t.stackGroup)
}

func (t *Tracker) stackGroup(node int64) Group { return Group{Frames: t.Frames(node)} }

// Check returns an error unless every breakdown has all blocks of an instant.
func (r *Result) Check(at ledger.Instant) error {
	for _, b := range []*Breakdown{&r.Categories, &r.Phases, &r.Modules, &r.Kinds, &r.Stacks} {
		sum := b.Sum()
		if sum.Blocks != at.Live || sum.Requested != at.T || at.C >= 0 && sum.Provided != at.C {
			return fmt.Errorf("the live allocations at seq %d do not add up: a breakdown has %d blocks, %d bytes in %d, of %d, %d in %d",
				at.Seq, sum.Blocks, sum.Requested, sum.Provided, at.Live, at.T, at.C)
		}
	}
	return nil
}
