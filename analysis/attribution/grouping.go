package attribution

import (
	"cmp"
	"iter"
	"slices"

	"github.com/memprof/memprof/analysis/ledger"
)

// Breakdown divides blocks among groups: the greatest by requested bytes, and one for all others.
type Breakdown struct {
	Groups     []Group
	Rest       Group // all groups that are not listed; no name
	RestGroups int64 // how many those are
}

// Group is a number of blocks that have something in common.
type Group struct {
	Name      string   // "" for what has none
	Frames    []string // of a stack, innermost first, at most MaxFrames of them
	Blocks    int64
	Requested int64 // bytes
	Provided  int64 // bytes
}

// Add adds the sums of another group.
func (g *Group) Add(o *Group) {
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
		sum.Add(&b.Groups[i])
	}
	return sum
}

// Grouping sums up blocks by a key.
type Grouping[K comparable] struct {
	index  map[K]int
	keys   []K
	groups []Group
}

// NewGrouping is a Grouping without blocks.
func NewGrouping[K comparable]() *Grouping[K] { return &Grouping[K]{index: map[K]int{}} }

func (g *Grouping[K]) of(key K) *Group {
	at, ok := g.index[key]
	if !ok {
		at = len(g.groups)
		g.index[key] = at
		g.keys, g.groups = append(g.keys, key), append(g.groups, Group{})
	}
	return &g.groups[at]
}

// Add adds a block.
func (g *Grouping[K]) Add(key K, b *ledger.Block) {
	g.of(key).Add(&Group{Blocks: 1, Requested: b.Requested, Provided: b.Size})
}

// Merge adds the sums of a group.
func (g *Grouping[K]) Merge(key K, sums *Group) { g.of(key).Add(sums) }

// Sums yields the keys and their sums, in the order in which the keys first came.
func (g *Grouping[K]) Sums() iter.Seq2[K, *Group] {
	return func(yield func(K, *Group) bool) {
		for i := range g.groups {
			if !yield(g.keys[i], &g.groups[i]) {
				return
			}
		}
	}
}

// Breakdown lists the top groups, named by describe.
func (g *Grouping[K]) Breakdown(top int, describe func(K) Group) Breakdown {
	var b Breakdown
	for key, sums := range g.Sums() {
		group := describe(key)
		group.Add(sums)
		b.Groups = append(b.Groups, group)
	}
	slices.SortFunc(b.Groups, func(x, y Group) int {
		return cmp.Or(cmp.Compare(y.Requested, x.Requested), cmp.Compare(y.Provided, x.Provided),
			cmp.Compare(x.Name, y.Name), slices.Compare(x.Frames, y.Frames))
	})
	if len(b.Groups) > top {
		for i := range b.Groups[top:] {
			b.Rest.Add(&b.Groups[top+i])
		}
		b.RestGroups = int64(len(b.Groups) - top)
		b.Groups = slices.Clip(b.Groups[:top])
	}
	return b
}

// Named is a Group of a name, for [Grouping.Breakdown].
func Named(name string) Group { return Group{Name: name} }
