package analysis

import (
	"cmp"
	"fmt"
	"iter"
	"slices"

	"github.com/memprof/memprof/trace"
)

// Attribution says who holds the live blocks of a device at one instant. Each breakdown has
// every block exactly once: its groups and its rest add up to T, C and the live blocks there.
type Attribution struct {
	// Known says that the trace tells anything of its requesters at all: a module, a stack, a
	// phase, a label or a pool of CUDA graphs. Otherwise all is "other" and without a name.
	Known bool
	// Sampled says that an allocator served blocks that was only watched: what it provided
	// for each is not told, and Provided is what was asked for.
	Sampled    bool
	Categories Breakdown // all that occur, by bytes; "other" is what cannot be told
	Phases     Breakdown // in which the blocks were allocated; "other" is outside of all
	// Modules are those that asked for the blocks, by dotted path, or else the text of a
	// requester that names none, or else the module whose parameter a label names.
	Modules Breakdown
	// Kinds are the modules with every number in a path taken for the same: the layers of a
	// model that repeat are one, "h.*.attn".
	Kinds Breakdown
	// Depths are the modules rolled up: Depths[i] groups by the first i+1 components of the
	// path. The last one has the longest paths, or is of depth maxDepth.
	Depths []Breakdown
	Stacks Breakdown // identical stacks together
}

// maxDepth is how deep modules are rolled up.
const maxDepth = 8

// Breakdown divides blocks among groups: the greatest, by requested bytes, and all others in
// one.
type Breakdown struct {
	Groups     []Group
	Rest       Group // of the groups that are not listed; no name
	RestGroups int64
}

// Group is a number of blocks that have something in common.
type Group struct {
	Name      string   // "" for what has none
	Frames    []string // of a stack, innermost first, at most maxFrames of them
	Blocks    int64
	Requested int64
	Provided  int64
}

func (g *Group) add(o *Group) {
	g.Blocks += o.Blocks
	g.Requested += o.Requested
	g.Provided += o.Provided
}

// Of is the group with a name, or an empty one.
func (b *Breakdown) Of(name string) Group {
	for _, g := range b.Groups {
		if g.Name == name {
			return g
		}
	}
	return Group{Name: name}
}

// Sum is all blocks of a breakdown.
func (b *Breakdown) Sum() Group {
	sum := b.Rest
	for i := range b.Groups {
		sum.add(&b.Groups[i])
	}
	return sum
}

// heldOOMs is of how many failed requests of a device it is told who held what.
const heldOOMs = 8

// heldNow is who holds what after the event at hand, which gave nothing away.
func (a *analyzer) heldNow(d *device, at Instant) (*Attribution, error) {
	held, err := a.attribute(d, a.liveNow(d), at)
	return &held, err
}

// liveNow are the blocks of a device that are live after the last event.
func (a *analyzer) liveNow(d *device) []block {
	return slices.DeleteFunc(a.occupiedBlocks(d, a.lastSeq), func(b block) bool { return b.pending })
}

// label takes a label event. Of what is not live any more nothing is left to label.
func (a *analyzer) label(e *trace.Event) {
	a.told = true
	if i := a.ledger.table.find(e.Addr); i != none && !a.ledger.segments[i].free() {
		a.ledger.segments[i].label = e.Context
	}
}

// attribute divides blocks of a device that were live at an instant; at is that instant.
func (a *analyzer) attribute(d *device, blocks []block, at Instant) (Attribution, error) {
	result := Attribution{Known: a.told, Sampled: d.samples != nil}
	categories, phases, told := newGrouping[Category](), newGrouping[uint8](), newGrouping[[2]int32]()
	for i := range blocks {
		b := &blocks[i]
		category := a.category(b)
		result.Known = result.Known || category != Other
		categories.add(category, b)
		phases.add(b.phase, b)
		told.add([2]int32{b.context, b.label}, b)
	}
	result.Categories = categories.breakdown(len(categoryNames), func(c Category) Group { return named(c.String()) })
	result.Phases = phases.breakdown(maxPhases, func(p uint8) Group { return named(a.phases.name(p)) })

	// From here on the blocks of which the same was told are one.
	owners, stacks := newGrouping[owner](), newGrouping[int64]()
	for by, sums := range told.sums() {
		owners.merge(a.ownerOf(by[0], by[1]), sums)
		stack := a.requester(by[0]).stack
		result.Known = result.Known || stack != 0
		stacks.merge(a.stacks.canonical(stack), sums)
	}
	result.Stacks = stacks.breakdown(a.opt.Top, a.stackGroup)
	result.divide(owners, a.opt.Groups)
	return result, result.check(at)
}

// divide fills in what is told by the names of owners.
func (r *Attribution) divide(owners *grouping[owner], top int) {
	depth := 0
	for o := range owners.sums() {
		r.Known = r.Known || o.module
		depth = max(depth, o.depth())
	}
	by := func(name func(owner) string) Breakdown {
		names := newGrouping[string]()
		for o, sums := range owners.sums() {
			names.merge(name(o), sums)
		}
		return names.breakdown(top, named)
	}
	r.Modules = by(func(o owner) string { return o.name })
	r.Kinds = by(owner.kind)
	for k := 1; k <= min(depth, maxDepth); k++ {
		r.Depths = append(r.Depths, by(func(o owner) string { return o.prefix(k) }))
	}
}

func named(name string) Group { return Group{Name: name} }

// byStack divides blocks among the stacks that allocated them.
func (a *analyzer) byStack(blocks []block) Breakdown {
	contexts, stacks := newGrouping[int32](), newGrouping[int64]()
	for i := range blocks {
		contexts.add(blocks[i].context, &blocks[i])
	}
	for context, sums := range contexts.sums() {
		stacks.merge(a.stacks.canonical(a.requester(context).stack), sums)
	}
	return stacks.breakdown(a.opt.Top, a.stackGroup)
}

func (a *analyzer) stackGroup(node int64) Group { return Group{Frames: a.frames(node)} }

// check demands that every breakdown has all blocks.
func (r *Attribution) check(at Instant) error {
	want := Group{Blocks: at.Live, Requested: at.T, Provided: at.C}
	all := append([]Breakdown{r.Categories, r.Phases, r.Modules, r.Kinds, r.Stacks}, r.Depths...)
	for i := range all {
		sum := all[i].Sum()
		if sum.Blocks != want.Blocks || sum.Requested != want.Requested || sum.Provided != want.Provided {
			return fmt.Errorf("the holders at seq %d do not add up: %d blocks, %d bytes in %d, of %d, %d in %d",
				at.Seq, sum.Blocks, sum.Requested, sum.Provided, want.Blocks, want.Requested, want.Provided)
		}
	}
	return nil
}

// grouping sums up blocks by a key.
type grouping[K comparable] struct {
	index  map[K]int
	keys   []K
	groups []Group
}

func newGrouping[K comparable]() *grouping[K] { return &grouping[K]{index: map[K]int{}} }

func (g *grouping[K]) of(key K) *Group {
	at, ok := g.index[key]
	if !ok {
		at = len(g.groups)
		g.index[key] = at
		g.keys, g.groups = append(g.keys, key), append(g.groups, Group{})
	}
	return &g.groups[at]
}

func (g *grouping[K]) add(key K, b *block) {
	g.of(key).add(&Group{Blocks: 1, Requested: b.requested, Provided: b.size})
}

func (g *grouping[K]) merge(key K, sums *Group) { g.of(key).add(sums) }

// sums yields the keys in the order in which they first came.
func (g *grouping[K]) sums() iter.Seq2[K, *Group] {
	return func(yield func(K, *Group) bool) {
		for i := range g.groups {
			if !yield(g.keys[i], &g.groups[i]) {
				return
			}
		}
	}
}

// breakdown lists the top groups, named by describe.
func (g *grouping[K]) breakdown(top int, describe func(K) Group) Breakdown {
	var b Breakdown
	for key, sums := range g.sums() {
		group := describe(key)
		group.add(sums)
		b.Groups = append(b.Groups, group)
	}
	slices.SortFunc(b.Groups, func(x, y Group) int {
		return cmp.Or(cmp.Compare(y.Requested, x.Requested), cmp.Compare(y.Provided, x.Provided),
			cmp.Compare(x.Name, y.Name), slices.Compare(x.Frames, y.Frames))
	})
	if len(b.Groups) > top {
		for i := range b.Groups[top:] {
			b.Rest.add(&b.Groups[top+i])
		}
		b.RestGroups = int64(len(b.Groups) - top)
		b.Groups = slices.Clip(b.Groups[:top])
	}
	return b
}
