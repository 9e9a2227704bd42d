package fit

import (
	"strings"

	"github.com/memprof/memprof/analysis/attribution"
)

// change is one that a job's code can make.
type change struct {
	id   string
	text string
	make func(*History) *edit // nil or empty: there is nothing to change
}

// swift are the changes that cost no time, or next to none.
var swift = []change{
	{"use-cache", "use_cache=False while training", withoutCache},
	{"attention", "SDPA in place of eager attention: no whole scores", withoutScores},
	{"chunked-loss", "the loss in chunks, or fused cross entropy: no whole logits", chunkedLoss},
	{"zero-grad", "zero_grad(set_to_none=True) right after the optimizer's step", zeroGrad},
	{"no-grad", "torch.no_grad() in evaluation, which saves for no backward", withoutGrad},
	{"foreach", "foreach=False or fused=True in the optimizer: fewer temporaries", withoutForeach},
}

// withoutCache leaves the KV cache out of a job that trains.
func withoutCache(h *History) *edit {
	if !h.trains() {
		return nil
	}
	e := h.edit()
	for i := range h.blocks {
		if b := &h.blocks[i]; b.plain && b.category == attribution.KVCache {
			e.drop(int32(i))
		}
	}
	return e
}

// isAttention says whether the path of a module has attention in its last two names.
func isAttention(module string) bool {
	names := strings.Split(module, ".")
	return hasAttention(strings.Join(names[max(0, len(names)-2):], "."))
}

func hasAttention(name string) bool {
	name = strings.ToLower(name)
	return strings.Contains(name, "attn") || strings.Contains(name, "attention")
}

// withoutScores leaves out what has the size of attention scores: an attention module made two blocks of it in one forward (the
// scores and their softmax), each at least twice as large as the module's output, and no other module has a block of it. Where
// frames alone tell, two lines of attention made one each: layers share their frames.
func withoutScores(h *History) *edit {
	type size struct {
		place string
		pass  int32
		bytes int64
	}
	type made struct {
		size
		node int64
	}
	scored, seen := map[size]int{}, map[made]bool{}
	output := map[string]int64{} // the size of the newest block of a module
	others := map[int64]bool{}
	for i := range h.blocks {
		b := &h.blocks[i]
		if b.place == "" || b.pass < 0 || h.passes[b.pass].name != "forward" {
			continue
		}
		output[b.place] = b.bytes
		of := made{size{b.place, b.pass, b.bytes}, b.node}
		switch {
		case !isAttention(b.place):
			others[b.bytes] = true
		case (b.category == attribution.Activations || b.module == "" && b.category == attribution.Temporaries) && b.bytes > 1<<20 && (b.module != "" || !seen[of]):
			scored[of.size]++
			seen[of] = true
		}
	}
	scores := map[int64]bool{}
	for s, n := range scored {
		if n >= 2 && s.bytes >= 2*output[s.place] && !others[s.bytes] {
			scores[s.bytes] = true
		}
	}
	e := h.edit()
	for i := range h.blocks {
		b := &h.blocks[i]
		if !b.plain || !scores[b.bytes] || b.pass < 0 || b.category == attribution.Gradients { // of a weight that is as large
			continue
		}
		if name := h.passes[b.pass].name; isAttention(b.place) && name == "forward" || b.module == "" && name == "backward" {
			e.drop(int32(i))
		}
	}
	return e
}

// lossChunks is how many chunks a loss is computed in.
const lossChunks = 8

// chunkedLoss makes the loss an eighth as large, and what is made of it: what is as large, twice or four times, half or a quarter, to
// within 2 %, since a shifted copy lacks a token.
func chunkedLoss(h *History) *edit {
	if !h.trains() {
		return nil
	}
	largest := map[int32]int64{} // of the loss, by round
	parameters := map[int64]bool{}
	for i := range h.blocks {
		b := &h.blocks[i]
		switch b.category {
		case attribution.Loss:
			largest[b.round] = max(largest[b.round], b.bytes)
		case attribution.Weights, attribution.Optimizer:
			parameters[b.bytes] = true
		}
	}
	e := h.edit()
	for i := range h.blocks {
		b := &h.blocks[i]
		whole := largest[b.round]
		if !b.plain || parameters[b.bytes] || 50*whole < h.most {
			continue
		}
		switch b.category {
		case attribution.Loss, attribution.Temporaries, attribution.Gradients, attribution.Activations:
			for _, factor := range []float64{0.25, 0.5, 1, 2, 4} {
				if ratio := float64(b.bytes) / (factor * float64(whole)); 0.98 < ratio && ratio < 1.02 && (b.category != attribution.Activations || b.module == "") {
					e.resize(int32(i), b.bytes/lossChunks)
				}
			}
		}
	}
	return e
}

// zeroGrad frees gradients at the end of the optimizer's step, if they are alive in a forward behind it.
func zeroGrad(h *History) *edit {
	e := h.edit()
	for i := range h.blocks {
		b := &h.blocks[i]
		if !b.plain || b.category != attribution.Gradients || b.pass < 0 || h.passes[b.pass].name != "backward" {
			continue
		}
		step := h.next(b.pass, "optimizer")
		if step < 0 {
			continue
		}
		forward := h.next(step, "forward")
		if forward < 0 || b.free <= h.passes[forward].to {
			continue
		}
		e.cut(int32(i), h.passes[step].to)
		e.remake(int32(i), b, step)
	}
	return e
}

// next is the first pass of a name behind another; -1 for none.
func (h *History) next(pass int32, name string) int32 {
	for i := pass + 1; int(i) < len(h.passes); i++ {
		if h.passes[i].name == name {
			return i
		}
	}
	return -1
}

// remake makes a gradient that stays for good anew in each backward after a step, as far into it as it was in the first, and frees
// it at the end of the next step.
func (e *edit) remake(i int32, b *block, step int32) {
	first := &e.passes[b.pass]
	part := float64(b.alloc-first.from) / float64(max(first.to-first.from, 1))
	for backward := e.next(step, "backward"); backward >= 0 && e.passes[backward].to < b.free; {
		p := &e.passes[backward]
		at := p.from + int32(part*float64(p.to-p.from))
		addr := e.newCopy(i, at)
		if step = e.next(backward, "optimizer"); step < 0 || e.passes[step].to >= b.free {
			e.ops = append(e.ops, op{before: min(b.free, int32(len(e.events))), frees: true, block: i, addr: addr})
			return
		}
		e.ops = append(e.ops, op{before: e.passes[step].to, frees: true, block: i, addr: addr})
		backward = e.next(step, "backward")
	}
}

// withoutGrad frees what modules make in a forward of which a backward frees nothing, as soon as two more of their blocks are there.
func withoutGrad(h *History) *edit {
	e, saved := h.edit(), h.saved()
	if !h.trains() || len(saved) == 0 { // what forward makes goes elsewhere
		return e
	}
	before := make([]int32, 0, 2) // the newest blocks of a module in the forward at hand
	at := int32(-1)
	for i := range h.blocks {
		b := &h.blocks[i]
		if b.module == "" || b.pass < 0 || h.passes[b.pass].name != "forward" || saved[b.pass] {
			continue
		}
		if b.pass != at {
			at, before = b.pass, before[:0]
		}
		if len(before) == 2 {
			if old := &h.blocks[before[0]]; old.plain && old.free > h.passes[at].to && old.category != attribution.Copies && old.category != attribution.KVCache {
				e.cut(before[0], b.alloc)
			}
			before = append(before[:0], before[1])
		}
		before = append(before, int32(i))
	}
	return e
}

// saved says of which forwards a backward frees something.
func (h *History) saved() map[int32]bool {
	saved := map[int32]bool{}
	for i := range h.blocks {
		if b := &h.blocks[i]; b.pass >= 0 && !saved[b.pass] && h.passes[b.pass].name == "forward" && h.in(b.free, "backward") {
			saved[b.pass] = true
		}
	}
	return saved
}

// withoutForeach lets one of the optimizer's temporaries live at a time.
func withoutForeach(h *History) *edit {
	e := h.edit()
	last := int32(-1)
	for i := range h.blocks {
		b := &h.blocks[i]
		if !b.plain || b.category != attribution.Temporaries || b.pass < 0 || h.passes[b.pass].name != "optimizer" {
			continue
		}
		if last >= 0 && h.blocks[last].pass == b.pass && h.blocks[last].free > b.alloc {
			e.cut(last, b.alloc)
		}
		last = int32(i)
	}
	return e
}

// A smaller batch has so many parts of so many of what grows with it.
const batchParts, batchOf = 7, 8

// smallerBatch makes what grows with the batch smaller.
func smallerBatch(h *History) *edit {
	parameters := map[int64]bool{}
	for i := range h.blocks {
		if b := &h.blocks[i]; b.category == attribution.Weights || b.category == attribution.Gradients {
			parameters[b.bytes] = true
		}
	}
	e := h.edit()
	for i := range h.blocks {
		b := &h.blocks[i]
		if !b.plain || parameters[b.bytes] || b.bytes < batchOf*512 {
			continue
		}
		switch b.category {
		case attribution.Activations, attribution.Loss, attribution.Inputs:
			e.resize(int32(i), b.bytes/batchOf*batchParts)
		case attribution.Temporaries:
			if b.pass >= 0 && h.passes[b.pass].name != "optimizer" {
				e.resize(int32(i), b.bytes/batchOf*batchParts)
			}
		}
	}
	return e
}
