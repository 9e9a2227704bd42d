package contiguous

import "github.com/memprof/memprof/analysis/kvcache"

// Reserved returns what a group has reserved: tokens of each sequence, and the slots of its piece.
func Reserved(g *kvcache.Group) (columns, size int64) {
	v := g.Private.(*reservation)
	return v.columns, v.piece.size
}
