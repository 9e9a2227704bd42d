package fit

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/memprof/memprof/analysis/attribution"
)

// isAttention says whether the path of a module has attention in its last two names.
func isAttention(module string) bool {
	names := strings.Split(module, ".")
	return hasAttention(strings.Join(names[max(0, len(names)-2):], "."))
}

// projecting are the paths of modules whose parts make queries and keys, as their names say: "query" and "key_value", "q_proj" and "k_proj", "qkv".
func (h *History) projecting() map[string]bool {
	queries, keys, both := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, o := range h.origins {
		of := parent(o.module)
		q, k := projects(o.module)
		queries[of], keys[of] = queries[of] || q, keys[of] || k
		if of != "" && queries[of] && keys[of] {
			both[of] = true
		}
	}
	return both
}

// projects returns what a part of attention makes by its name: queries, keys, or both.
func projects(module string) (queries, keys bool) {
	for word := range strings.SplitSeq(strings.ToLower(module[len(parent(module)):]), "_") {
		switch strings.Trim(word, ".w0123456789") {
		case "q", "query", "queries":
			queries = true
		case "k", "key", "keys", "kv":
			keys = true
		case "qkv":
			queries, keys = true, true
		}
	}
	return queries, keys
}

// leastScores is the fewest bytes that scores have.
const leastScores = 1 << 20

// attention is the work of one attention module in one pass.
type attention struct {
	place  string
	pass   int32
	named  bool    // for attention
	own    []int32 // its blocks, but those of its parts
	blocks []int32 // of these, those that can be scores, or results of them
	output int64   // bytes of the newest block
	scores []int   // indices in own
}

// withoutScores leaves out what has the size of attention scores: in one pass an attention module made two blocks of them, the second while
// the first was live: the scores and their softmax. Under autocast one can be of four bytes for each score and the other of two.
func withoutScores(h *History) *edit {
	e := h.edit()
	for _, a := range h.attentions() {
		sizes := map[int64]bool{}
		var rest []int32                              // scores whose gradients are left
		for k, from := 0, 0; k < len(a.scores); k++ { // a forward that calls the module again has other scores
			sizes[h.blocks[a.own[a.scores[k]]].bytes] = true
			if last := k+1 == len(a.scores); last || e.kept(a.own[a.scores[k]]) && !e.kept(a.own[a.scores[k+1]]) {
				if call := a.scores[from : k+1]; !e.fuse(a, call) {
					for _, own := range call {
						rest = append(rest, a.own[own])
					}
				}
				from = k + 1
			}
		}
		e.dropScoresOfBackward(rest, sizes)
	}
	return e
}

// attentions are the attention modules' work that has scores, in order.
func (h *History) attentions() []*attention {
	type at struct {
		place string
		pass  int32
	}
	var all []*attention
	known, projecting := map[at]*attention{}, h.projecting()
	for i := range h.blocks {
		b := &h.blocks[i]
		named := isAttention(b.place)
		if b.pass < 0 || !named && !projecting[b.place] || h.passes[b.pass].name != "forward" && (h.passes[b.pass].name != "backward" || b.module == "") {
			continue
		}
		a := known[at{b.place, b.pass}]
		if a == nil {
			a = &attention{place: b.place, pass: b.pass, named: named}
			known[at{b.place, b.pass}], all = a, append(all, a)
		}
		a.own, a.output = append(a.own, int32(i)), b.bytes
		switch b.category {
		case attribution.Activations, attribution.Copies, attribution.Temporaries:
			if b.bytes > leastScores {
				a.blocks = append(a.blocks, int32(i))
			}
		}
	}
	h.findScores(all)
	return slices.DeleteFunc(all, func(a *attention) bool { return len(a.scores) == 0 })
}

// findScores finds the scores by their sizes. Those of short sequences are no larger than other blocks: they are where the module has its scores in
// a pass of as many blocks.
func (h *History) findScores(all []*attention) {
	type course struct {
		place string
		name  string
		count int
	}
	known := map[course][]int{}
	of := func(a *attention) course { return course{a.place, h.passes[a.pass].name, len(a.own)} }
	for _, a := range all {
		sizes := h.scores(a)
		if len(sizes) == 0 {
			continue
		}
		for k, i := range a.own {
			if b := &h.blocks[i]; b.plain && sizes[b.bytes] && slices.Contains(a.blocks, i) {
				a.scores = append(a.scores, k)
			}
		}
		known[of(a)] = a.scores
	}
	for _, a := range all {
		if len(a.scores) == 0 {
			a.scores = slices.DeleteFunc(slices.Clone(known[of(a)]), func(k int) bool { return !h.blocks[a.own[k]].plain })
		}
	}
}

// scores are the sizes of scores: at least twice as large as what the module returns. Exactly twice or three times as large is a packed projection
// to queries, keys and values, too, and what rotary embeddings compute in four bytes: then both blocks have to be saved for backward, and the
// second not larger, as a softmax is behind such a projection. What is less than a quarter of others is none: copies of queries and keys in four
// bytes. Nor are two blocks that one operator of backward needs. A module that only its parts are named for can do more than attention: there the
// first is freed in forward, and the second saved.
func (h *History) scores(a *attention) map[int64]bool {
	sizes, largest := map[int64]bool{}, int64(0)
	for k, i := range a.blocks {
		first := &h.blocks[i]
		for _, j := range a.blocks[k+1:] {
			second := &h.blocks[j]
			if first.free < second.alloc || first.module == "" && first.node == second.node { // layers share their frames
				continue
			}
			least, most := min(first.bytes, second.bytes), max(first.bytes, second.bytes)
			packed := least == 2*a.output || least == 3*a.output
			saved := savedForBackward(first) && savedForBackward(second)
			if !a.named && (savedForBackward(first) || !savedForBackward(second)) {
				continue
			}
			if saved && h.in(first.free, "backward") && h.operatorThatFrees(first.free) == h.operatorThatFrees(second.free) {
				continue // keys and values
			}
			if least >= 2*a.output && (most == least || most == 2*least) && (!packed || saved && first.bytes == most) {
				sizes[first.bytes], sizes[second.bytes] = true, true
				largest = max(largest, most)
			}
		}
	}
	maps.DeleteFunc(sizes, func(bytes int64, _ bool) bool { return 4*bytes < largest })
	return sizes
}

// dropScoresOfBackward leaves out the gradients of scores: what has their sizes from the operator on that frees one of those left out, until the last
// of it is free, and that operator's operand.
func (e *edit) dropScoresOfBackward(dropped []int32, sizes map[int64]bool) {
	dropped = slices.Clone(dropped)
	slices.SortFunc(dropped, func(x, y int32) int { return cmp.Compare(e.blocks[x].free, e.blocks[y].free) })
	over := int32(0)
	for _, i := range dropped {
		free := e.blocks[i].free
		if free < over || !e.in(free, "backward") {
			continue
		}
		live, o := 0, e.operatorThatFrees(free)
		for over = o.from; over <= free || live > 0; over++ {
			k := e.blockAt[over]
			if k < 0 {
				continue
			}
			switch b := &e.blocks[k]; {
			case !b.plain || b.module != "" || !sizes[b.bytes] || b.category == attribution.Gradients: // of a weight that is as large
			case b.alloc == over:
				e.drop(k)
				live++
			case b.alloc >= o.from:
				live--
			case over < o.to && e.in(b.alloc, "backward"): // the operand
				e.drop(k)
			}
		}
	}
}
