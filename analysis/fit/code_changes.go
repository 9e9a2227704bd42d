package fit

import (
	"strings"

	"github.com/memprof/memprof/analysis/attribution"
	"github.com/memprof/memprof/trace"
)

// change is one that a job's code can make.
type change struct {
	id       string
	text     string
	make     func(*History) *edit // nil or empty: there is nothing to change
	variable string               // of the environment, with its value, that makes the change; "" for one of the code
}

// swift are the changes that cost no time, or next to none.
var swift = []change{
	{id: "use-cache", text: "use_cache=False while training", make: withoutCache},
	{id: "attention", text: "SDPA's fused kernels, not eager attention, its math backend or need_weights=True: no whole scores", make: withoutScores},
	{id: "chunked-loss", text: "the last layer and the loss in 8 chunks, each in a checkpoint, or fused cross entropy: no whole logits", make: chunkedLoss},
	{id: "zero-grad", text: "zero_grad(set_to_none=True) right after the optimizer's step", make: zeroGrad},
	{id: "no-grad", text: "torch.no_grad() in evaluation, which saves for no backward", make: withoutGrad},
	{id: "fused", text: "fused=True in the optimizer (Adam, AdamW, SGD): no temporaries", make: fusedStep},
	{id: "foreach", text: "foreach=False in the optimizer: temporaries of one parameter at a time", make: withoutForeach},
}

// smallWorkspace is a change that may cost time.
var smallWorkspace = change{
	id:       "workspace",
	text:     smallSetting + ": 8.13 MiB for each handle and stream of cuBLAS, not 32; may be slower",
	make:     smallerWorkspaces,
	variable: smallSetting,
}

const smallSetting = "CUBLAS_WORKSPACE_CONFIG=:4096:2:16:8" // attribution.SmallWorkspace

// smallerWorkspaces gives cuBLAS the workspaces of cards before Hopper, where it has those of Hopper by its card or by a setting: torch's, and the
// one that the library allocates itself for each handle, whose size it reads from the same setting. Of that the 8 x 16 KiB are a request of their
// own to the driver, which has room for them in a page that is in use anyway.
func smallerWorkspaces(h *History) *edit {
	e := h.edit()
	for i := range h.blocks {
		b := &h.blocks[i]
		if b.plain && b.category == attribution.Workspace && b.bytes == attribution.LargeWorkspace && int(b.free) == len(h.events) {
			e.resize(int32(i), attribution.SmallWorkspace)
		}
	}
	for at := range h.events {
		if event := &h.events[at]; event.Kind == trace.KindExternalAlloc && event.Provided == attribution.LargeWorkspace &&
			strings.HasPrefix(trace.ParseContext(event.Kind, h.text(event.Context)).Get("library"), "libcublas.so") {
			e.sizes[int32(at)] = attribution.SmallWorkspace &^ (1<<20 - 1)
		}
	}
	return e
}

// withoutCache leaves the KV cache out of a job that trains. Where backward frees what the module of a part of it made, the keys and values are saved
// for backward, too: then they live as long as that, whatever the cache does.
func withoutCache(h *History) *edit {
	if !h.trains() {
		return nil
	}
	needed := map[work]int32{} // the last event at which backward frees what a module made
	for i := range h.blocks {
		if b := &h.blocks[i]; b.pass >= 0 && b.category != attribution.KVCache && h.in(b.free, "backward") {
			for _, module := range []string{b.module, parent(b.module)} {
				of := work{module, b.pass}
				needed[of] = max(needed[of], b.free)
			}
		}
	}
	e := h.edit()
	for i := range h.blocks {
		b := &h.blocks[i]
		if !b.plain || b.category != attribution.KVCache {
			continue
		}
		last, ok := needed[work{b.module, b.pass}]
		if !ok { // a projection's
			last, ok = needed[work{parent(b.module), b.pass}]
		}
		if !ok {
			e.drop(int32(i))
		} else if b.free > last+1 {
			e.cut(int32(i), last+1)
		}
	}
	return e
}

// parent is the path of the module that has a module.
func parent(module string) string { return module[:max(0, strings.LastIndexByte(module, '.'))] }

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

// withoutGrad frees what modules make in a forward of which a backward frees nothing, as soon as two more of their blocks are there. A forward that
// leaves less than a quarter of it has no_grad, and returns that, as a KV cache.
func withoutGrad(h *History) *edit {
	e, saved := h.edit(), h.saved()
	if !h.trains() || len(saved) == 0 { // what forward makes goes elsewhere
		return e
	}
	for from := 0; from < len(h.blocks); {
		to := from + 1
		for to < len(h.blocks) && h.blocks[to].pass == h.blocks[from].pass {
			to++
		}
		if pass := h.blocks[from].pass; pass >= 0 && h.passes[pass].name == "forward" && !saved[pass] {
			e.passWithoutGrad(pass, int32(from), int32(to))
		}
		from = to
	}
	return e
}

// passWithoutGrad changes one forward, whose blocks are [from, to).
func (e *edit) passWithoutGrad(pass, from, to int32) {
	var made, left []int32 // by modules; and of that, what lives on
	all, lasting := int64(0), int64(0)
	for i := from; i < to; i++ {
		b := &e.blocks[i]
		if b.module == "" {
			continue
		}
		made, all = append(made, i), all+b.bytes
		if b.plain && b.free > e.passes[pass].to && b.category != attribution.Copies && b.category != attribution.KVCache {
			left, lasting = append(left, int32(len(made)-1)), lasting+b.bytes
		}
	}
	if 4*lasting < all {
		return
	}
	for _, k := range left {
		if int(k)+2 < len(made) {
			e.cut(made[k], e.blocks[made[k+2]].alloc)
		}
	}
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

// leastForeach is how many temporaries of a step are live at a time, at least, where it works on lists of all parameters.
const leastForeach = 4

// temporariesOfForeach are the temporaries of steps that work on lists of parameters, in order.
func (h *History) temporariesOfForeach() (all []int32) {
	live, most := map[int32]bool{}, 0
	var step []int32 // those of a pass
	pass := int32(-1)
	end := func() {
		if most >= leastForeach {
			all = append(all, step...)
		}
		clear(live)
		step, most = step[:0], 0
	}
	for i := range h.blocks {
		b := &h.blocks[i]
		if b.category != attribution.Temporaries || b.pass < 0 || h.passes[b.pass].name != "optimizer" {
			continue
		}
		if b.pass != pass {
			end()
			pass = b.pass
		}
		for k := range live {
			if h.blocks[k].free < b.alloc {
				delete(live, k)
			}
		}
		live[int32(i)] = true
		most = max(most, len(live))
		step = append(step, int32(i))
	}
	end()
	return all
}

// hasFused says whether torch has a fused step for the optimizers: Adam and AdamW, and SGD, which has momentum or none. A recording that lacks their
// classes has the names of their states.
func (h *History) hasFused() bool {
	for kind := range h.optimizers {
		if kind != "Adam" && kind != "AdamW" && kind != "SGD" {
			return false
		}
	}
	adam := h.states["exp_avg"] && h.states["exp_avg_sq"]
	for state := range h.states {
		switch state {
		case "momentum_buffer":
			return len(h.states) == 1
		case "exp_avg", "exp_avg_sq", "max_exp_avg_sq", "step":
		default:
			return false
		}
	}
	return adam || len(h.states) == 0
}

// fusedStep leaves out the optimizer's temporaries.
func fusedStep(h *History) *edit {
	e := h.edit()
	if h.hasFused() {
		for _, i := range h.temporariesOfForeach() {
			if h.blocks[i].plain {
				e.drop(i)
			}
		}
	}
	return e
}

// temporariesOfOne are the temporaries of one parameter that torch's optimizers without a fused step have at a time, with foreach=False, by a
// state that only they keep, of Adagrad, RMSprop, Adamax and Adadelta, or by their class.
var temporariesOfOne = map[string]int{"sum": 1, "square_avg": 1, "exp_inf": 1, "acc_delta": 2, "NAdam": 2}

// withoutForeach lets the temporaries of one parameter live at a time, as one block.
func withoutForeach(h *History) *edit {
	e, most := h.edit(), 0
	for _, names := range []map[string]bool{h.states, h.optimizers} {
		for name := range names {
			most = max(most, temporariesOfOne[name])
		}
	}
	if most == 0 {
		return e
	}
	last := int32(-1)
	for _, i := range h.temporariesOfForeach() {
		b := &h.blocks[i]
		if !b.plain {
			continue
		}
		if last >= 0 && h.blocks[last].pass == b.pass && h.blocks[last].free > b.alloc {
			e.cut(last, b.alloc)
		}
		e.resize(i, int64(most)*b.bytes)
		last = i
	}
	return e
}

// A smaller batch has so many parts of so many of what grows with it.
const batchParts, batchOf = 7, 8

// smallerBatch makes what grows with the batch smaller: what modules are called with and save, the loss, KV caches, temporaries that are as large, or
// a few times, and workspaces of convolutions, which go within their pass. Other temporaries are of operators that have them by the card, as sums
// over all rows do.
func smallerBatch(h *History) *edit {
	fixed, grown := map[int64]bool{}, map[int64]bool{}
	e := h.edit()
	for i := range h.blocks {
		switch b := &h.blocks[i]; b.category {
		case attribution.Weights, attribution.Gradients:
			fixed[b.bytes] = true
		case attribution.Activations, attribution.Loss, attribution.Inputs, attribution.KVCache:
			grown[b.bytes] = true
		case attribution.Copies:
			grown[b.bytes] = grown[b.bytes] || e.kept(int32(i))
		}
	}
	for i := range h.blocks {
		b := &h.blocks[i]
		if !b.plain || fixed[b.bytes] || b.bytes < batchOf*512 {
			continue
		}
		grows := false
		switch b.category {
		case attribution.Activations, attribution.Loss, attribution.Inputs, attribution.KVCache:
			grows = true
		case attribution.Copies:
			grows = e.kept(int32(i))
		case attribution.Temporaries:
			grows = b.pass >= 0 && h.passes[b.pass].name != "optimizer" && fewTimes(b.bytes, grown)
		case attribution.Workspace:
			grows = b.pass >= 0 && b.free < h.passes[b.pass].to
		}
		if grows {
			e.resize(int32(i), b.bytes/batchOf*batchParts)
		}
	}
	return e
}

// fewTimes says whether bytes are as many as one of the sizes, or two to four times as many, or so many times fewer.
func fewTimes(bytes int64, sizes map[int64]bool) bool {
	for times := int64(1); times <= 4; times++ {
		if sizes[bytes*times] || bytes%times == 0 && sizes[bytes/times] {
			return true
		}
	}
	return false
}
