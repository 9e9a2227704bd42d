package fit

import (
	"cmp"
	"slices"

	"github.com/memprof/memprof/analysis/attribution"
)

// lossChunks is how many chunks a loss is computed in.
const lossChunks = 8

// chunkedLoss computes the last layer and the loss in chunks, each in a checkpoint: what has the size of the loss becomes an eighth as large, from
// the forward on that made it until backward has passed the last layer. Each chunk makes the gradient of the layer's weight anew.
func chunkedLoss(h *History) *edit {
	e := h.edit()
	for _, l := range h.losses() {
		for i := h.firstBehind(l.from); int(i) < len(h.blocks) && h.blocks[i].alloc < l.over; i++ {
			b := &h.blocks[i]
			if b.plain && (l.isOf(b) || l.scratch(b)) {
				e.resize(i, b.bytes/lossChunks)
				if b.alloc < l.backward && b.free >= l.end { // a variable of the job, which is local to a chunk's function then
					e.cut(i, l.backward)
				}
			}
		}
		if l.gradient >= 0 {
			e.gradientOfChunks(l)
		}
	}
	return e
}

// loss is that of one backward.
type loss struct {
	whole      int64 // bytes of the largest block
	parameters map[int64]bool
	from       int32 // the event that its first forward begins with
	output     int32 // the event that allocates what that returns: the loss, or what it is made of
	backward   int32 // the event that its backward begins with
	end        int32 // and ends with
	layer      int32 // the event that the backward of the last layer begins with
	over       int32 // the event behind its last one
	gradient   int32 // the block of that layer's largest gradient; -1 for none
}

// losses are those with a large block.
func (h *History) losses() (all []*loss) {
	parameters, saved := map[int64]bool{}, h.saved()
	for i := range h.blocks {
		if c := h.blocks[i].category; c == attribution.Weights || c == attribution.Optimizer {
			parameters[h.blocks[i].bytes] = true
		}
	}
	for p := range h.passes {
		if h.passes[p].name != "backward" {
			continue
		}
		l := &loss{parameters: parameters, backward: h.passes[p].from, end: h.passes[p].to, from: -1, gradient: -1}
		seen := false // a forward that saved something: one before these that did not is an evaluation
		for f := p - 1; f >= 0 && h.passes[f].name == "forward" && (saved[int32(f)] || !seen); f-- {
			l.from, seen = h.passes[f].from, seen || saved[int32(f)]
		}
		if !seen {
			continue
		}
		for i := h.firstBehind(l.from); int(i) < len(h.blocks) && h.blocks[i].alloc < l.backward; i++ {
			if b := &h.blocks[i]; b.category == attribution.Loss {
				l.whole = max(l.whole, b.bytes)
			}
		}
		if 50*l.whole >= h.most {
			h.findOutput(l)
			h.findLayer(l)
			all = append(all, l)
		}
	}
	return all
}

// isOf says whether a block is the loss, or made of it: as large, twice or four times, half or a quarter, but for a token that a shifted copy lacks.
// What a module made and backward frees is saved for other modules' backward, and no output.
func (l *loss) isOf(b *block) bool {
	if l.parameters[b.bytes] || b.alloc >= l.layer || b.alloc < l.output {
		return false
	}
	switch b.category {
	case attribution.Loss, attribution.Temporaries:
	case attribution.Activations, attribution.Inputs, attribution.Copies, attribution.Other:
		if b.module != "" && b.free >= l.backward {
			return false
		}
	default:
		return false
	}
	return l.isOfSize(b) && (b.module == "" || b.alloc < l.backward)
}

// leastTokens is how many tokens a row has, at least, for a copy of the logits without one of them to count as the loss's.
const leastTokens = 16.

func (l *loss) isOfSize(b *block) bool {
	const without = (leastTokens - 1) / leastTokens
	for _, factor := range []float64{0.25, 0.5, 1, 2, 4} {
		if ratio := float64(b.bytes) / (factor * float64(l.whole)); without <= ratio && ratio <= 1/without {
			return true
		}
	}
	return false
}

// scratch says whether a block is one that the backward of the last layer needs for a while, as the sum over the rows of a bias's gradient does.
func (l *loss) scratch(b *block) bool {
	passing := b.category == attribution.Temporaries || b.category == attribution.Workspace
	return passing && b.alloc >= l.layer && b.free < l.over && !l.parameters[b.bytes]
}

// findOutput finds the first block that is the loss, or as large as one: made outside of forwards, or alive beyond its forward but not in backward.
// An operand of it, as the product that a bias is added to, comes right before.
func (h *History) findOutput(l *loss) {
	l.layer = l.end
	for i := h.firstBehind(l.from); int(i) < len(h.blocks) && h.blocks[i].alloc < l.backward; i++ {
		b := &h.blocks[i]
		if l.isOf(b) && (b.category == attribution.Loss || b.pass < 0 || b.category == attribution.Activations && b.free >= h.passes[b.pass].to) {
			l.output = b.alloc
			for k := i - 1; k >= 0 && h.blocks[k].category == attribution.Temporaries && h.blocks[k].free > b.alloc && l.isOfSize(&h.blocks[k]); k-- {
				l.output = h.blocks[k].alloc
			}
			return
		}
	}
}

// findLayer finds where backward passes the last layer: the operator that makes the first gradient of a parameter frees the loss's gradient. Where
// that is freed before, or the layer has no gradients, it is passed when nothing is left of the loss.
func (h *History) findLayer(l *loss) {
	l.layer, l.over = l.end, l.end
	live := map[int32]bool{}
	for i := h.firstBehind(l.from); int(i) < len(h.blocks) && h.blocks[i].alloc < l.backward; i++ {
		if b := &h.blocks[i]; l.backward < b.free && b.free < l.end && l.isOf(b) {
			live[i] = true
		}
	}
	for event := l.backward; event < l.end; event++ {
		i := h.blockAt[event]
		if i < 0 {
			continue
		}
		switch b := &h.blocks[i]; {
		case b.free == event:
			if delete(live, i); len(live) == 0 && l.over == l.end {
				l.layer, l.over = event+1, event+1
			}
		case b.module == "" && (b.category == attribution.Gradients || l.parameters[b.bytes]) && 100*b.bytes > l.whole:
			l.gradient = i
			if len(live) > 0 {
				frees := l.end
				for k := range live {
					frees = min(frees, h.blocks[k].free)
				}
				l.layer, l.over = min(h.operatorThatFrees(frees).from, event), frees+1
			}
			return
		case l.isOf(b):
			live[i] = true
		}
	}
}

// gradientOfChunks lets the sum of the chunks' gradients of a weight live beside each chunk's. The first sum is a block of its own beside both.
func (e *edit) gradientOfChunks(l *loss) {
	over := max(l.over, e.blocks[l.gradient].alloc+1)
	sum, first := e.newCopy(l.gradient, l.backward+1), e.newCopy(l.gradient, over)
	e.ops = append(e.ops, op{before: over, frees: true, block: l.gradient, addr: first}, op{before: over, frees: true, block: l.gradient, addr: sum})
}

// firstBehind is the first block that is allocated by an event or behind it.
func (h *History) firstBehind(event int32) int32 {
	i, _ := slices.BinarySearchFunc(h.blocks, event, func(b block, event int32) int { return cmp.Compare(b.alloc, event) })
	return int32(i)
}
