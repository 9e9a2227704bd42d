package attribution

import (
	"cmp"
	"slices"

	"github.com/memprof/memprof/analysis/ledger"
)

// Holder is a group of live blocks of one origin, or of one requested size.
type Holder struct {
	Context   string // the origin; "" in a list by size
	Size      int64  // requested bytes of each block; 0 in a list by origin
	Blocks    int64
	Requested int64 // bytes
	Provided  int64 // bytes
}

// ByOrigin lists the origins with the most requested bytes, at most Options.Top.
func (t *Tracker) ByOrigin(blocks []ledger.Block) []Holder {
	return group(blocks, t.opt.Top, func(b *ledger.Block) string { return t.OriginOf(b.Context, b.Label).Name },
		func(name string) Holder { return Holder{Context: name} })
}

// BySize lists the requested sizes with the most requested bytes, at most Options.Top.
func (t *Tracker) BySize(blocks []ledger.Block) []Holder {
	return group(blocks, t.opt.Top, func(b *ledger.Block) int64 { return b.Requested },
		func(size int64) Holder { return Holder{Size: size} })
}

// group sums up blocks by a key and returns the top of them by requested bytes.
func group[K comparable](blocks []ledger.Block, top int, key func(*ledger.Block) K, holder func(K) Holder) []Holder {
	index := map[K]int{}
	var holders []Holder
	for i := range blocks {
		b := &blocks[i]
		k := key(b)
		at, ok := index[k]
		if !ok {
			at = len(holders)
			index[k] = at
			holders = append(holders, holder(k))
		}
		h := &holders[at]
		h.Blocks++
		h.Requested += b.Requested
		h.Provided += b.Size
	}
	slices.SortFunc(holders, func(x, y Holder) int {
		return cmp.Or(cmp.Compare(y.Requested, x.Requested), cmp.Compare(y.Provided, x.Provided),
			cmp.Compare(x.Context, y.Context), cmp.Compare(y.Size, x.Size))
	})
	return holders[:min(top, len(holders))]
}
