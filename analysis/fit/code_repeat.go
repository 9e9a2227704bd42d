package fit

import (
	"cmp"
	"slices"

	"github.com/memprof/memprof/analysis/attribution"
	"github.com/memprof/memprof/trace"
)

// checkpointCall frees what a module saves in one of its forwards, and makes it again before its backward.
func (e *edit) checkpointCall(c *call) {
	if len(c.saved) == 0 {
		return
	}
	output := e.output(c)
	saved := slices.DeleteFunc(slices.Clone(c.saved), func(i int32) bool { return i == output })
	if len(saved) == 0 {
		return
	}
	ends := e.endsOfParts(c)
	for _, i := range saved {
		e.cut(i, cmp.Or(ends[i], c.end))
	}
	e.keepInput(c)
	e.repeat(c, saved, output)
}

// keepInput lets what the module was called with live until its backward is over, where nothing else saved it: the caller frees it when the
// module returns.
func (e *edit) keepInput(c *call) {
	over := int32(0)
	for _, i := range c.saved {
		over = max(over, e.blocks[i].free+1)
	}
	first := &e.blocks[c.blocks[0]]
	for event := c.last + 1; e.returns(c, event); event++ {
		i := e.blockAt[event]
		if i < 0 || e.left[event] {
			continue
		}
		b := &e.blocks[i]
		if b.plain && b.alloc < first.alloc && b.round == first.round && b.pass >= 0 && e.passes[b.pass].name == "forward" {
			e.keepUntil(i, over)
		}
	}
}

// returns says whether an event behind the last request of a call is before the next one. Where the call is the last of a forward, all that the
// forward has left is freed there, unless the module is the model itself, which returns to the job's code.
func (e *edit) returns(c *call, event int32) bool {
	p := &e.passes[c.pass]
	if c.end < p.to {
		return event < c.end
	}
	return p.class == c.module && int(event) < len(e.events) && !e.is(trace.KindAlloc, event) && !e.is(trace.KindPhaseBegin, event)
}

// repeat makes again what a module saved. As torch.utils.checkpoint does it, the module's forward runs until the last of these blocks is there;
// what the forward frees later is then freed, too.
func (e *edit) repeat(c *call, saved []int32, output int32) {
	at, ownUse := e.neededAt(saved, output, c)
	stop := e.blocks[saved[len(saved)-1]].alloc
	if ownUse {
		stop = max(stop, e.blocks[output].alloc)
	}
	there, at := e.madeByBackward(c, saved, stop, at)
	type made struct {
		event int32
		block int32
		frees bool
	}
	var forward []made
	for _, i := range c.blocks {
		b := &e.blocks[i]
		_, again := slices.BinarySearch(saved, i)
		switch {
		case b.alloc > stop:
		case again:
			forward = append(forward, made{b.alloc, i, false})
		case i == output && !ownUse, i != output && e.scratch(c, i) && !there[i]:
			forward = append(forward, made{b.alloc, i, false}, made{min(b.free, c.end), i, true})
		}
	}
	slices.SortStableFunc(forward, func(x, y made) int { return cmp.Compare(x.event, y.event) })
	copies := map[int32]int64{}
	for _, m := range forward {
		switch {
		case m.frees:
			e.ops = append(e.ops, op{before: at, frees: true, block: m.block, addr: copies[m.block]})
		case e.claims[m.block]:
			e.revive(m.block, at)
		default:
			copies[m.block] = e.newCopy(m.block, at)
		}
	}
}

// madeByBackward are blocks of a module that its repeat finds there. FSDP gathers the module's parameters before its forward and frees them
// behind it; before the module's backward it gathers them anew, and a forward that is repeated then gathers none. Such a block is the module's
// own, is there before all that the module saves and is freed behind it, and backward makes one of its size that is there when the first
// saved block is freed. The repeat comes behind the last of these.
func (e *edit) madeByBackward(c *call, saved []int32, stop, at int32) (there map[int32]bool, behind int32) {
	wanted := map[int64][]int32{}
	for _, i := range c.blocks {
		b := &e.blocks[i]
		if b.alloc >= e.blocks[saved[0]].alloc {
			break
		}
		if b.module == c.module && b.free > stop && e.scratch(c, i) {
			wanted[b.bytes] = append(wanted[b.bytes], i)
		}
	}
	there, behind = map[int32]bool{}, at
	first := e.firstFree(saved)
	begin := e.passes[e.passAt(first)].from
	for event := first - 1; len(wanted) > 0 && event >= begin; event-- {
		i := e.blockAt[event]
		if i < 0 || e.blocks[i].alloc != event || e.blocks[i].free < first {
			continue
		}
		bytes := e.blocks[i].bytes
		if like := wanted[bytes]; len(like) > 0 {
			there[like[0]], behind = true, max(behind, event+1)
			if wanted[bytes] = like[1:]; len(like) == 1 {
				delete(wanted, bytes)
			}
		}
	}
	return there, behind
}

// output is the block that a module returns: the last one that lives on behind its forward, or the one before it in the innermost module, if it
// is larger than statistics that are saved behind it. Backward need not have a use for it, as where the next module copies it.
func (e *edit) output(c *call) int32 {
	module, largest := "", int64(-1) // of what is saved behind
	for _, i := range slices.Backward(c.blocks) {
		b := &e.blocks[i]
		_, saved := slices.BinarySearch(c.saved, i)
		switch b.category {
		case attribution.Activations, attribution.Copies, attribution.Temporaries, attribution.Loss, attribution.Other:
		default:
			continue
		}
		switch {
		case largest >= 0 && b.module != module:
			return e.outputOf(c.saved)
		case saved:
			module, largest = b.module, max(largest, b.bytes)
		case b.free >= c.end && b.bytes > largest:
			return i
		}
	}
	return e.outputOf(c.saved)
}

// outputOf is the block that a module returns, of those that it saved. It is of the innermost module that was last at work, which may save
// statistics behind it, as batch norm does. Of these blocks backward frees the output first: what comes next saved it, too.
func (e *edit) outputOf(saved []int32) int32 {
	output := saved[len(saved)-1]
	module := e.blocks[output].module
	for k := len(saved) - 1; k >= 0 && e.blocks[saved[k]].module == module; k-- {
		if e.blocks[saved[k]].free < e.blocks[output].free {
			output = saved[k]
		}
	}
	return output
}

// operator is the events [from, to) of an operator of backward: it allocates its results and workspaces, then the engine frees its operands.
type operator struct {
	from, to int32
}

// operatorThatFrees is the one whose operand an event frees.
func (h *History) operatorThatFrees(at int32) operator {
	o := operator{at, at + 1}
	for h.is(trace.KindFree, o.to) {
		o.to++
	}
	for h.is(trace.KindFree, o.from-1) {
		o.from--
	}
	for {
		switch before := o.from - 1; {
		case before < 0, h.is(trace.KindPhaseBegin, before), h.is(trace.KindIteration, before):
			return o
		case h.is(trace.KindFree, before) && !h.workspace(before):
			return o
		}
		o.from--
	}
}

func (h *History) is(kind trace.Kind, at int32) bool {
	return at >= 0 && int(at) < len(h.events) && h.events[at].Kind == kind
}

// workspace says whether a free is of an operator's workspace: since it was allocated, in the same pass, nothing was freed but blocks that
// were allocated in between.
func (h *History) workspace(free int32) bool {
	b := h.blockAt[free]
	if b < 0 || int(h.blocks[b].pass) != h.passAt(free) {
		return false
	}
	for at := h.blocks[b].alloc + 1; at < free; at++ {
		if i := h.blockAt[at]; i >= 0 && i < b {
			return false
		}
	}
	return true
}

// later says whether an event frees what a module behind the call saved in forward.
func (e *edit) later(at int32, c *call) bool {
	if i := e.blockAt[at]; i >= 0 {
		b := &e.blocks[i]
		return b.free == at && b.alloc > c.last && b.pass >= 0 && e.passes[b.pass].name == "forward"
	}
	return false
}

// uses says whether the operator that frees what a call returned is the call's own, as that of a ReLU in place: it makes no gradient of
// weights, and frees nothing that later modules saved.
func (e *edit) uses(o operator, c *call) bool {
	for at := o.from; at < o.to; at++ {
		if i := e.blockAt[at]; i >= 0 && e.blocks[i].alloc == at && e.blocks[i].category == attribution.Gradients || e.later(at, c) {
			return false
		}
	}
	return true
}

// firstFree is the first event that frees one of the blocks.
func (e *edit) firstFree(blocks []int32) int32 {
	first := e.blocks[blocks[0]].free
	for _, i := range blocks {
		first = min(first, e.blocks[i].free)
	}
	return first
}

// neededAt is the event before which the blocks that a call saved have to be there: the first operator of backward begins that has a use
// for one of them. ownUse says whether that operator is the one which frees what the call returned.
func (e *edit) neededAt(saved []int32, output int32, c *call) (at int32, ownUse bool) {
	first := e.firstFree(saved)
	at = e.operatorThatFrees(first).from
	for k := at; k < first; k++ {
		if e.later(k, c) { // of an operator before, and this one allocates nothing
			at = k + 1
		}
	}
	if slices.Contains(c.saved, output) {
		if o := e.operatorThatFrees(e.blocks[output].free); e.uses(o, c) {
			at, ownUse = min(at, o.from), true
		}
	}
	return max(at, e.passes[e.passAt(first)].from+1), ownUse
}

// endsOfParts are the events before which the parts of a module end, by the blocks that they save for themselves. What a part returns is not
// among them: the module's own code may have a use for it until it ends.
func (e *edit) endsOfParts(c *call) map[int32]int32 {
	ends := map[int32]int32{}
	var part []int32 // blocks that are saved
	inPart := ""
	for _, i := range c.blocks {
		name, _ := prefix(e.blocks[i].module, c.depth+1)
		if name != inPart && inPart != "" && len(part) > 0 {
			output := e.outputOf(part)
			for _, k := range part {
				if k != output {
					ends[k] = e.blocks[i].alloc
				}
			}
		}
		if name != inPart {
			part, inPart = part[:0], name
		}
		if _, found := slices.BinarySearch(c.saved, i); found {
			part = append(part, i)
		}
	}
	return ends
}
