package fit

import (
	"cmp"
	"slices"
	"sort"
	"strings"

	"github.com/memprof/memprof/analysis/attribution"
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
			if b.category == attribution.Activations && b.plain && h.atPeak(b) {
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
	var frees []int32 // blocks that a backward frees, by when
	var newest *call  // that the last block was of
	for i := from; i < to; i++ {
		b := &e.blocks[i]
		if e.in(b.free, "backward") {
			frees = append(frees, i)
		}
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
		case b.category == attribution.Activations && e.in(b.free, "backward"):
			c.saved = append(c.saved, i)
		case b.free < e.passes[b.pass].to:
			c.scratch = append(c.scratch, i)
		}
	}
	sort.Slice(frees, func(x, y int) bool { return e.blocks[frees[x]].free < e.blocks[frees[y]].free })
	for _, c := range order {
		if c.end < 0 {
			c.end = e.passes[c.pass].to
		}
		e.checkpointCall(c, frees)
	}
}

// checkpointCall does so for one module.
func (e *edit) checkpointCall(c *call, frees []int32) {
	if len(c.saved) < 2 {
		return
	}
	saved := c.saved[:len(c.saved)-1] // the last one is its output
	first := e.blocks[saved[0]].free
	for _, i := range saved {
		first = min(first, e.blocks[i].free)
	}
	at := e.passes[e.passAt(first)].from + 1
	for k := sort.Search(len(frees), func(k int) bool { return e.blocks[frees[k]].free >= first }) - 1; k >= 0; k-- {
		if b := &e.blocks[frees[k]]; b.alloc > c.last {
			at = max(at, b.free+1)
			break
		}
	}
	type made struct {
		event int32
		block int32
		frees bool
	}
	var forward []made
	for _, i := range saved {
		e.cut(i, c.end)
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
