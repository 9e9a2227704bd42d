package stores

import (
	"math"

	"github.com/memprof/memprof/analysis/kvcache/models"
)

// pageLayout is how layers of several kinds share one pool of pages of one size. Layers form groups of equally many;
// each group of a sequence has a block table of its own, so that every page holds a block of one group: some tokens
// in all of its layers. A group that has fewer layers leaves a part of each page empty. So do kinds whose tokens do
// not divide a page, and states, which are smaller than one.
type pageLayout struct {
	page   int64 // bytes
	groups []layerGroups
}

// layerGroups are the groups of one kind.
type layerGroups struct {
	models.LayerKind
	groups int64
	block  int64 // tokens of a page
}

// unify lays out blocks of at least so many tokens. A group has as many layers as the rarest kind; blocks get longer
// until a page holds a state, and kinds with smaller tokens have more of them in a block.
func unify(kinds []models.LayerKind, block int64) pageLayout {
	group := int64(math.MaxInt64)
	var token, state int64
	for _, k := range kinds {
		group = min(group, int64(k.Layers))
		if k.Keep == models.State {
			state = max(state, k.Bytes)
		} else {
			token = max(token, k.Bytes)
		}
	}
	tokens := max(1, block)
	if token == 0 {
		token, tokens = state, 1
	}
	if token*tokens < state {
		tokens = roundUp(roundUp(state, token)/token, tokens)
	}
	l := pageLayout{page: group * token * tokens}
	for _, k := range kinds {
		g := layerGroups{LayerKind: k, groups: roundUp(int64(k.Layers), group) / group, block: 1}
		if k.Keep != models.State {
			g.block = token * tokens / k.Bytes
		}
		l.groups = append(l.groups, g)
	}
	return l
}

// pages is how many pages a sequence of so many tokens has in all groups of a kind, and the bytes in them that it needs.
func (g *layerGroups) pages(tokens int64) (pages, needed int64) {
	from, to := g.Kept(tokens)
	pages = roundUp(to, g.block)/g.block - from/g.block
	return g.groups * pages, (to - from) * g.Bytes * int64(g.Layers)
}

// roundUp returns x rounded up to a multiple of unit.
func roundUp(x, unit int64) int64 { return (x + unit - 1) / unit * unit }
