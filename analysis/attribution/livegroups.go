package attribution

import (
	"cmp"
	"slices"

	"github.com/memprof/memprof/analysis/ledger"
)

// LiveGroup is a group of live blocks of a device that have the same stack, origin, category, phase and
// tag. The breakdowns of a [Result] divide by one of these each.
type LiveGroup struct {
	Frames   []string // of the stack, innermost first, at most MaxFrames; nil for none
	Module   string   // as in [Result.Modules]
	Dotted   bool     // Module is the dotted path of a module, not the text of a context
	Category string
	Phase    string
	Tag      string // of the arena, "" for none

	Blocks    int64
	Requested int64 // bytes
	Provided  int64 // bytes; Requested where the sizes of chunks are not known
}

// LiveGroups lists all groups of blocks, those with the most requested bytes first.
func (t *Tracker) LiveGroups(blocks []ledger.Block) []LiveGroup {
	type key struct {
		stack    int64
		origin   Origin
		category Category
		phase    uint8
		tag      string
	}
	groups := NewGrouping[key]()
	for i := range blocks {
		b := &blocks[i]
		groups.Add(key{t.StackOf(b.Context), t.OriginOf(b.Context, b.Label), t.Category(b), b.Phase, t.arenas[b.Arena].tag}, b)
	}
	list := []LiveGroup{}
	for k, sums := range groups.Sums() {
		list = append(list, LiveGroup{
			Frames: t.Frames(k.stack), Module: k.origin.Name, Dotted: k.origin.Module,
			Category: k.category.String(), Phase: t.Phases.Name(k.phase), Tag: k.tag,
			Blocks: sums.Blocks, Requested: sums.Requested, Provided: sums.Provided,
		})
	}
	slices.SortStableFunc(list, func(x, y LiveGroup) int { return cmp.Compare(y.Requested, x.Requested) })
	return list
}
