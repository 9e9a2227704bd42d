package fit

import (
	"cmp"
	"slices"
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

// kinds are the modules that saved most for backward, at the peak, but for what is in a checkpoint.
func (h *History) kinds() []kind {
	var all []kind
	repeated := h.repeated()
	for depth := 1; depth <= maxDepth; depth++ {
		sums, examples := map[string]int64{}, map[string]string{}
		for i := range h.blocks {
			b := &h.blocks[i]
			if savedForBackward(b) && b.plain && h.atPeak(b) && !repeated[b.module] {
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

// repeated are the modules at work in a backward: they are in a checkpoint.
func (h *History) repeated() map[string]bool {
	found := map[string]bool{}
	for i := range h.blocks {
		if b := &h.blocks[i]; b.module != "" && b.pass >= 0 && h.passes[b.pass].name == "backward" {
			found[b.module] = true
		}
	}
	return found
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

// call is what one module has in one of its forwards.
type call struct {
	module    string
	depth     int     // names in its path
	blocks    []int32 // that can be edited, in order
	saved     []int32 // of these, those that its backward frees
	last, end int32   // the event of its last alloc; the event that its forward ends before, -1 for the end of the pass
	pass      int32
	left      bool // a block of another module came behind its last one
}

// work is that of a module in one pass: one call of it, or several.
type work struct {
	module string
	pass   int32
}

// scratch says whether a block of a call was freed within the forward.
func (e *edit) scratch(c *call, i int32) bool { return e.blocks[i].free < e.passes[c.pass].to }

// checkpoint frees what each module of a kind saves, and makes it again before its backward. Of a list of modules, which is not called itself,
// it changes nothing: the parts are a kind of their own.
func (h *History) checkpoint(k kind) *edit {
	e := h.edit()
	for from := 0; from < len(h.blocks); {
		to := from + 1
		for to < len(h.blocks) && h.blocks[to].round == h.blocks[from].round {
			to++
		}
		calls := h.calls(k, int32(from), int32(to))
		if h.ofList(calls) {
			return h.edit()
		}
		for _, c := range calls {
			e.checkpointCall(c)
		}
		from = to
	}
	return e
}

// ofList says whether calls are of the parts of a list: what is taken for two calls of one module is the work of different parts.
func (h *History) ofList(calls []*call) bool {
	parts := map[work]map[string]*call{} // by module, and then by part
	for _, c := range calls {
		others := parts[work{c.module, c.pass}]
		again, own := others == nil, false
		if others == nil {
			others = map[string]*call{}
			parts[work{c.module, c.pass}] = others
		}
		for _, i := range c.blocks {
			part, ok := prefix(h.blocks[i].module, c.depth+1)
			own = own || !ok
			again = again || others[part] != nil && others[part] != c
			others[part] = c
		}
		if !again && !own {
			return true
		}
	}
	return false
}

// moduleOf is the module of a kind that a block is of, and how many names its path has. Where several models are called, one of them has plain
// names, and a checkpoint is of the like modules of all.
func (h *History) moduleOf(b *block, k kind) (name string, depth int, ok bool) {
	if name, ok = prefix(b.module, k.depth); ok && kindOf(name) == k.name {
		return name, k.depth, true
	}
	class := h.passes[b.pass].class
	rest, ok := strings.CutPrefix(b.module, class+".")
	if !ok {
		return "", 0, false
	}
	name, ok = prefix(rest, k.depth)
	return class + "." + name, k.depth + 1, ok && kindOf(name) == k.name
}

// calls are the forwards of a kind of module in one round, whose blocks are [from, to). A module that is at work again behind another one is
// called again.
func (h *History) calls(k kind, from, to int32) (order []*call) {
	calls := map[work]*call{}
	var newest *call // that the last block was of
	var named *call  // that the last block of a module was of
	for i := from; i < to; i++ {
		b := &h.blocks[i]
		if b.pass < 0 || h.passes[b.pass].name != "forward" {
			continue
		}
		var c *call
		if name, depth, ok := h.moduleOf(b, k); ok {
			if c = calls[work{name, b.pass}]; c == nil || c.left {
				c = &call{module: name, depth: depth, pass: b.pass}
				calls[work{name, b.pass}], order = c, append(order, c)
			}
		}
		if newest != nil && newest != c && newest.pass == b.pass {
			newest.end = b.alloc
		}
		if b.module != "" {
			if named != nil && named != c {
				named.left = true
			}
			named = c
		}
		if newest = c; c == nil {
			continue
		}
		c.last, c.end = b.alloc, -1
		if b.plain {
			c.blocks = append(c.blocks, i)
			if savedForBackward(b) && h.in(b.free, "backward") {
				c.saved = append(c.saved, i)
			}
		}
	}
	for _, c := range order {
		if c.end < 0 {
			c.end = h.passes[c.pass].to
		}
	}
	return order
}
