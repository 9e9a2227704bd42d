package models

import "math"

// Layout is how layers of several kinds share one pool of pages of one size, as in vLLM. Layers form groups of equally
// many; each group of a sequence has a block table of its own, so that every page holds a block of one group: some tokens
// in all of its layers. A group that has fewer layers leaves a part of each page empty. So do kinds whose tokens do not
// divide a page, and states, which are smaller than one.
type Layout struct {
	Page   int64 // bytes
	Size   int64 // layers of a group
	Groups []LayerGroups
}

// LayerGroups are the groups of one kind.
type LayerGroups struct {
	LayerKind
	Groups int64
	Block  int64 // tokens of a page
}

// Unify lays out blocks of at least so many tokens. A group has as many layers as the rarest kind, or as the most
// frequent one if that has less than 1.5 times as many; blocks get longer, by multiples, until a page holds a state, and
// kinds with smaller tokens have more of them in a block.
func Unify(kinds []LayerKind, block int64) Layout {
	least, most := int64(math.MaxInt64), int64(0)
	var token, state int64
	for _, k := range kinds {
		least, most = min(least, int64(k.Layers)), max(most, int64(k.Layers))
		if k.Keep == State {
			state = max(state, k.Bytes)
		} else {
			token = max(token, k.Bytes)
		}
	}
	l := Layout{Size: least}
	if 2*most < 3*least {
		l.Size = most
	}
	tokens := max(1, block)
	if token == 0 {
		token, tokens = state, 1
	}
	if token*tokens < state {
		tokens = roundUp(roundUp(state, token)/token, tokens)
	}
	l.Page = l.Size * token * tokens
	for _, k := range kinds {
		g := LayerGroups{LayerKind: k, Groups: roundUp(int64(k.Layers), l.Size) / l.Size, Block: 1}
		if k.Keep != State {
			g.Block = token * tokens / k.Bytes
		}
		l.Groups = append(l.Groups, g)
	}
	return l
}

// Pages is how many pages a sequence of so many tokens has in all groups of a kind, and the bytes in them that it needs.
func (g *LayerGroups) Pages(tokens int64) (pages, needed int64) {
	from, to := g.Kept(tokens)
	pages = roundUp(to, g.Block)/g.Block - from/g.Block
	return g.Groups * pages, (to - from) * g.Bytes * int64(g.Layers)
}

// roundUp returns x rounded up to a multiple of unit.
func roundUp(x, unit int64) int64 { return (x + unit - 1) / unit * unit }
