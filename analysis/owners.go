package analysis

import (
	"cmp"
	"slices"
)

// Owner is what live blocks of a device have in common in every respect that is told of
// them at once; the breakdowns of an [Attribution] divide by one of them.
type Owner struct {
	Frames   []string // of the stack, innermost first, at most maxFrames; nil for none
	Module   string   // as in [Attribution.Modules]
	Dotted   bool     // Module is the dotted path of a module, and not a text of the requester's
	Category string
	Phase    string
	Tag      string // of the arena, "" for none

	Blocks    int64
	Requested int64 // bytes
	Provided  int64 // bytes; what was asked for where chunks are not told
}

// owners divides blocks by all that is told of them; the sums are those of the blocks.
func (a *analyzer) owners(blocks []block) []Owner {
	type key struct {
		stack    int64
		owner    owner
		category Category
		phase    uint8
		tag      string
	}
	groups := newGrouping[key]()
	for i := range blocks {
		b := &blocks[i]
		groups.add(key{
			a.stacks.canonical(a.requester(b.context).stack), a.ownerOf(b.context, b.label),
			a.category(b), b.phase, a.arenas[b.arena].info.Options["tag"],
		}, b)
	}
	owners := []Owner{}
	for k, sums := range groups.sums() {
		owners = append(owners, Owner{
			Frames: a.frames(k.stack), Module: k.owner.name, Dotted: k.owner.module,
			Category: k.category.String(), Phase: a.phases.name(k.phase), Tag: k.tag,
			Blocks: sums.Blocks, Requested: sums.Requested, Provided: sums.Provided,
		})
	}
	slices.SortStableFunc(owners, func(x, y Owner) int { return cmp.Compare(y.Requested, x.Requested) })
	return owners
}
