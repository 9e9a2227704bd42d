package snapshot

import (
	"maps"

	"github.com/memprof/memprof/analysis/attribution"
)

// Nobody kept the stacks of most blocks from before the first entry. What they are shows in what becomes of them: in where the job frees
// them, and, of those that live to the end, in their sizes. Each parameter that trains has a gradient of its size, and at most two
// tensors of the optimizer; where the gradients have 16 bits, the optimizer's are twice as large, and so is its copy of the parameter.

// freedCategories are those of blocks from before the first entry, by the role of the stack that frees them; of those that end with
// autocast whenever they began.
var freedCategories = [...]string{inBackward: "activations", inOptimizer: "optimizer", forGradients: "gradients", forCasts: "copies"}

// states is how many tensors an optimizer has for a parameter, and masters the same with a copy of 32 bits of one of 16.
const states, masters = 2, 3

// gradients are the blocks that backward makes and leaves alive.
type gradients struct {
	live, most map[uint64]int64 // by their rounded bytes: now, and at the end of the backward that left most
	bytes, top uint64           // the sums of both
	trains     bool             // a block is of backward or of an optimizer
	wide       bool             // the optimizer's tensors are twice as large
}

// count takes a block that begins, or ends if more is -1.
func (g *gradients) count(b *used, size uint64, more int64) {
	g.trains = g.trains || b.role == inBackward || b.role == inOptimizer
	if b.role == inBackward {
		g.live[size] += more
		g.bytes += size * uint64(more)
	}
}

// ended takes the end of a backward.
func (g *gradients) ended() {
	if g.bytes > g.top {
		g.top, g.most = g.bytes, maps.Clone(g.live)
	}
}

// freedIn says what a block is that a stack frees, if that tells.
func (l *layout) freedIn(b *used, stack int64) error {
	r := l.stacks.role(stack)
	if !l.freers || int(r) >= len(freedCategories) || r != forCasts && (!b.older || b.role != noRole) {
		return nil
	}
	return l.labelAs(b.addr, freedCategories[r])
}

// nameOlder says what the blocks are that were there before the first entry and live to the end.
func (l *layout) nameOlder() error {
	l.gradients.ended()
	var older []*used
	alive, named := map[uint64]int64{}, map[uint64]int64{}
	for addr, b := l.blocks.from(0); b != nil; addr, b = l.blocks.from(addr + 1) {
		if b.older && !b.pending {
			older = append(older, b)
			alive[l.settings.Round(b.requested)]++
		}
	}
	doubled := uint64(0) // bytes of gradients
	for size, n := range l.most {
		if alive[2*size] >= states*n {
			doubled += size * uint64(n)
		}
	}
	l.wide = 2*doubled > l.top
	for _, b := range older {
		size, category := l.settings.Round(b.requested), ""
		switch {
		case b.role == inForward && l.trains:
			category = "activations"
		case b.role == noRole && !attribution.IsWorkspace(int64(size), int(alive[size])) && len(l.stacks.texts) > 0 && (b.stack == 0 || l.most[size] > 0):
			named[size]++
			category = l.mirror(size, named[size])
		}
		if err := l.labelAs(b.addr, category); err != nil {
			return err
		}
	}
	return nil
}

// mirror is the category of the nth block of a size; "" where nothing tells.
func (g *gradients) mirror(size uint64, n int64) string {
	of, more := g.most[size], states*g.most[size]
	if g.wide {
		more = masters * g.most[size/2]
	}
	switch {
	case !g.trains || n <= of || g.top > 0 && of+more == 0: // the last do not train
		return "weights"
	case n <= of+more:
		return "optimizer"
	case of+more > 0:
		return "copies"
	}
	return ""
}
