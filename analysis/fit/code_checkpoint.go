package fit

import (
	"cmp"
	"slices"
	"strings"

	"github.com/memprof/memprof/analysis/attribution"
	"github.com/memprof/memprof/trace"
)

// most modules that are tried.
const mostModules = 24

// maxDepth is how deep modules are looked at.
const maxDepth = 8

// kind is modules of one place in the job's tree, "h.*".
type kind struct {
	name, example string // and a module of it
	depth         int
	bytes         int64 // saved for backward at the peak
}

// words names the modules of a kind in a sentence.
func (k *kind) words() string {
	switch {
	case !strings.Contains(k.name, "*"):
		return k.name
	case strings.Trim(k.name, "*.") == "": // numbers alone
		return "each numbered module, such as " + k.example
	}
	return "each of " + k.name
}

// stems are parts of names that are numbered where a model repeats them: "encoder_layer_0", "denseblock1".
var stems = []string{"layer", "block", "stage"}

// kindOf is the kind of a module: its path with "*" for each number, in its last name also behind one of the stems.
func kindOf(module string) string {
	kind := attribution.Origin{Name: module, Module: true}.Kind()
	bare := strings.TrimRight(kind, "0123456789")
	if bare == kind || !slices.ContainsFunc(stems, func(stem string) bool { return strings.HasSuffix(strings.TrimRight(bare, "_"), stem) }) {
		return kind
	}
	return bare + "*"
}

// kinds are the modules that saved most for backward, at the peak.
func (h *History) kinds() []kind {
	var all []kind
	for depth := 1; depth <= maxDepth; depth++ {
		sums, examples := map[string]int64{}, map[string]string{}
		for i := range h.blocks {
			b := &h.blocks[i]
			if savedForBackward(b) && b.plain && h.atPeak(b) {
				if name, ok := prefix(b.module, depth); ok {
					of := kindOf(name)
					sums[of] += b.bytes
					if examples[of] == "" {
						examples[of] = name
					}
				}
			}
		}
		for name, bytes := range sums {
			if 20*bytes >= h.most {
				all = append(all, kind{name, examples[name], depth, bytes})
			}
		}
	}
	slices.SortFunc(all, func(x, y kind) int {
		return cmp.Or(cmp.Compare(y.bytes, x.bytes), cmp.Compare(x.depth, y.depth), cmp.Compare(x.name, y.name))
	})
	return all[:min(len(all), mostModules)]
}

// savedForBackward says whether a block can be one that backward has a use for. Where an encoder is called first, what it saved lasts beyond
// the next forward, and counts as a copy.
func savedForBackward(b *block) bool {
	return b.category == attribution.Activations || b.category == attribution.Copies
}

// prefix is the first names of a module's path, if it has so many.
func prefix(module string, names int) (string, bool) {
	if module == "" {
		return "", false
	}
	for i := range module {
		if module[i] == '.' {
			if names--; names == 0 {
				return module[:i], true
			}
		}
	}
	return module, names == 1
}

// call is what one module has in one forward.
type call struct {
	saved     []int32 // blocks that its backward frees, in order
	scratch   []int32 // blocks that were freed within the forward
	last, end int32   // the event of its last alloc; the event that its forward ends before, -1 for the end of the pass
	pass      int32
}

// checkpoint frees what each module of a kind saves, and makes it again before its backward.
func (h *History) checkpoint(k kind) *edit {
	e := h.edit()
	for from := 0; from < len(h.blocks); {
		to := from + 1
		for to < len(h.blocks) && h.blocks[to].round == h.blocks[from].round {
			to++
		}
		e.checkpointRound(k, int32(from), int32(to))
		from = to
	}
	return e
}

// checkpointRound does so in one round, whose blocks are [from, to). Of a module that has several forwards in it, each is a call.
func (e *edit) checkpointRound(k kind, from, to int32) {
	type of struct {
		module string
		pass   int32
	}
	calls := map[of]*call{}
	var order []*call
	var newest *call // that the last block was of
	for i := from; i < to; i++ {
		b := &e.blocks[i]
		if b.pass < 0 || e.passes[b.pass].name != "forward" {
			continue
		}
		name, ok := prefix(b.module, k.depth)
		ok = ok && kindOf(name) == k.name
		var c *call
		if ok {
			if c = calls[of{name, b.pass}]; c == nil {
				c = &call{pass: b.pass}
				calls[of{name, b.pass}], order = c, append(order, c)
			}
		}
		if newest != nil && newest != c && newest.pass == b.pass {
			newest.end = b.alloc
		}
		if newest = c; c == nil {
			continue
		}
		c.last, c.end = b.alloc, -1
		switch {
		case !b.plain:
		case savedForBackward(b) && e.in(b.free, "backward"):
			c.saved = append(c.saved, i)
		case b.free < e.passes[b.pass].to:
			c.scratch = append(c.scratch, i)
		}
	}
	for _, c := range order {
		if c.end < 0 {
			c.end = e.passes[c.pass].to
		}
		e.checkpointCall(c, k.depth)
	}
}

// outputOf is the index of the block that a module returns. It is of the innermost module that was last at work, which may save statistics
// behind it, as batch norm does. Of these blocks backward frees the output first: what comes next saved it, too.
func (e *edit) outputOf(saved []int32) int {
	last := len(saved) - 1
	output := last
	for k := last; k >= 0 && e.blocks[saved[k]].module == e.blocks[saved[last]].module; k-- {
		if e.blocks[saved[k]].free < e.blocks[saved[output]].free {
			output = k
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

// neededAt is the event before which the blocks that a call saved have to be there: the first operator of backward begins that has a use
// for one of them.
func (e *edit) neededAt(saved []int32, output int32, c *call) int32 {
	first := e.blocks[saved[0]].free
	for _, i := range saved {
		first = min(first, e.blocks[i].free)
	}
	at := e.operatorThatFrees(first).from
	for k := at; k < first; k++ {
		if e.later(k, c) { // of an operator before, and this one allocates nothing
			at = k + 1
		}
	}
	if o := e.operatorThatFrees(e.blocks[output].free); e.uses(o, c) {
		at = min(at, o.from)
	}
	return max(at, e.passes[e.passAt(first)].from+1)
}

// endsOfParts are the events before which the parts of a module end, by the blocks that they save for themselves. What a part returns is not
// among them: the module's own code may have a use for it until it ends.
func (e *edit) endsOfParts(c *call, depth int) map[int32]int32 {
	ends := map[int32]int32{}
	all := slices.Concat(c.saved, c.scratch)
	slices.Sort(all)
	var part []int32 // blocks that are saved
	inPart := ""
	for _, i := range all {
		name, _ := prefix(e.blocks[i].module, depth+1)
		if name != inPart && inPart != "" && len(part) > 0 {
			output := part[e.outputOf(part)]
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

// checkpointCall does so for one module.
func (e *edit) checkpointCall(c *call, depth int) {
	if len(c.saved) < 2 {
		return
	}
	k := e.outputOf(c.saved)
	output, saved := c.saved[k], slices.Concat(c.saved[:k], c.saved[k+1:])
	at := e.neededAt(saved, output, c)
	type made struct {
		event int32
		block int32
		frees bool
	}
	var forward []made
	ends := e.endsOfParts(c, depth)
	for _, i := range saved {
		e.cut(i, cmp.Or(ends[i], c.end))
		forward = append(forward, made{e.blocks[i].alloc, i, false})
	}
	for _, i := range c.scratch {
		forward = append(forward, made{e.blocks[i].alloc, i, false}, made{e.blocks[i].free, i, true})
	}
	slices.SortFunc(forward, func(x, y made) int { return cmp.Compare(x.event, y.event) })
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
