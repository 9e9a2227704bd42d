package snapshot

import (
	"maps"

	"github.com/memprof/memprof/analysis/attribution"
)

// Torch kept no stacks of most blocks from before the first entry. Two things tell what such a block is: the stack that frees it, and,
// if it lives to the end, its size. A parameter that trains has a gradient of its size and at most two optimizer tensors. Gradients of
// 16 bits have optimizer tensors of twice their size, and a 32-bit copy of the parameter beside them.

// freedCategories gives the category of a block from before the first entry by the role of the stack that frees it. The end of autocast
// (forCasts) decides for later blocks, too.
var freedCategories = [...]string{inBackward: "activations", inOptimizer: "optimizer", forGradients: "gradients", forCasts: "copies"}

// states is the most optimizer tensors of a parameter; masters counts the 32-bit copy of a 16-bit parameter as well.
const states, masters = 2, 3

// gradients counts the blocks that backward makes and leaves alive, by rounded bytes.
type gradients struct {
	live, most map[uint64]int64 // blocks by size: now, and after the backward that left most bytes
	bytes, top uint64           // the sums of live and most, in bytes
	trains     bool             // some block is of backward or of an optimizer
	wide       bool             // optimizer tensors have twice the size of gradients
}

// count adds a block that begins (more 1) or ends (more -1).
func (g *gradients) count(b *used, size uint64, more int64) {
	g.trains = g.trains || b.role == inBackward || b.role == inOptimizer
	if b.role == inBackward {
		g.live[size] += more
		g.bytes += size * uint64(more)
	}
}

// backwardEnded keeps what backward left, if that is more than any backward before it left.
func (g *gradients) backwardEnded() {
	if g.bytes > g.top {
		g.top, g.most = g.bytes, maps.Clone(g.live)
	}
}

// freedIn labels a block by the stack that frees it, where the stack tells its category.
func (l *layout) freedIn(b *used, stack int64) error {
	r := l.stacks.role(stack)
	if !l.freers || int(r) >= len(freedCategories) || r != forCasts && (!b.older || b.role != noRole) {
		return nil
	}
	return l.labelAs(b.addr, freedCategories[r])
}

// nameOlder labels the blocks that existed before the first entry and live to the end.
func (l *layout) nameOlder() error {
	l.grads.backwardEnded()
	var older []*used
	alive, named := map[uint64]int64{}, map[uint64]int64{}
	for addr, b := l.blocks.from(0); b != nil; addr, b = l.blocks.from(addr + 1) {
		if b.older && !b.pending {
			older = append(older, b)
			alive[l.settings.Round(b.requested)]++
		}
	}
	doubled := uint64(0) // bytes of gradients that have optimizer tensors of twice their size
	for size, n := range l.grads.most {
		if alive[2*size] >= states*n {
			doubled += size * uint64(n)
		}
	}
	l.grads.wide = 2*doubled > l.grads.top
	for _, b := range older {
		size, category := l.settings.Round(b.requested), ""
		switch {
		case b.role == inForward && l.grads.trains:
			category = "activations"
		case b.role == noRole && l.bySize(b, size, alive[size]):
			named[size]++
			category = l.grads.mirror(size, named[size])
		}
		if err := l.labelAs(b.addr, category); err != nil {
			return err
		}
	}
	return nil
}

// bySize reports whether the size of a block, of which so many are alive, may tell its category. It does not where a library's workspace
// has that size, or where frames of the job's own code made a block that is no gradient's size: a resident input, for instance.
func (l *layout) bySize(b *used, size uint64, alive int64) bool {
	return len(l.stacks.texts) > 0 && !attribution.IsWorkspace(int64(size), int(alive)) && (b.stack == 0 || l.grads.most[size] > 0)
}

// mirror returns the category of the nth block of a size; "" where the sizes do not tell.
func (g *gradients) mirror(size uint64, n int64) string {
	of, more := g.most[size], states*g.most[size]
	if g.wide {
		more = masters * g.most[size/2]
	}
	switch {
	case !g.trains || n <= of || g.top > 0 && of+more == 0: // a parameter of this size does not train
		return "weights"
	case n <= of+more:
		return "optimizer"
	case of+more > 0:
		return "copies"
	}
	return ""
}
