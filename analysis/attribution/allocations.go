package attribution

import (
	"cmp"
	"slices"

	"github.com/memprof/memprof/analysis/ledger"
)

// AllocationGroup is a group of live blocks of one origin, or of one requested size.
type AllocationGroup struct {
	Context   string // the origin; "" in a list by size
	Size      int64  // requested bytes of each block; 0 in a list by origin
	Blocks    int64
	Requested int64 // bytes
	Provided  int64 // bytes
}

// ByOrigin lists the origins with the most requested bytes, at most Options.Top.
func (t *Tracker) ByOrigin(blocks []ledger.Block) []AllocationGroup {
	return group(blocks, t.opt.Top, func(b *ledger.Block) string { return t.OriginOf(b.Context, b.Label).Name },
		func(name string) AllocationGroup { return AllocationGroup{Context: name} })
}

// BySize lists the requested sizes with the most requested bytes, at most Options.Top.
func (t *Tracker) BySize(blocks []ledger.Block) []AllocationGroup {
	return group(blocks, t.opt.Top, func(b *ledger.Block) int64 { return b.Requested },
		func(size int64) AllocationGroup { return AllocationGroup{Size: size} })
}

// group sums up blocks by a key and returns the top of them by requested bytes.
func group[K comparable](blocks []ledger.Block, top int, key func(*ledger.Block) K, newGroup func(K) AllocationGroup) []AllocationGroup {
	index := map[K]int{}
	var groups []AllocationGroup
	for i := range blocks {
		b := &blocks[i]
		k := key(b)
		at, ok := index[k]
		if !ok {
			at = len(groups)
			index[k] = at
			groups = append(groups, newGroup(k))
		}
		h := &groups[at]
		h.Blocks++
		h.Requested += b.Requested
		h.Provided += b.Size
	}
	slices.SortFunc(groups, func(x, y AllocationGroup) int {
		return cmp.Or(cmp.Compare(y.Requested, x.Requested), cmp.Compare(y.Provided, x.Provided),
			cmp.Compare(x.Context, y.Context), cmp.Compare(y.Size, x.Size))
	})
	return groups[:min(top, len(groups))]
}
