package fit

import (
	"slices"
	"strings"
)

// fuse leaves out scores, given by indices in a.own, and changes what else attention saved to what a fused kernel saves: queries, keys and values
// as they come in, and the result. Dropout's mask, a byte for each score, goes, too.
//
// Scaled queries and keys are copies. Where what they are made of is freed, the kernel saves that in their place, and nothing changes. Where that
// is saved anyway, as a packed projection is by the values, they go. The result is saved in the copy whose heads are behind each other again, which
// for the kernel is a view; but nn.MultiheadAttention, which calls no module, copies it in any case.
//
// It returns whether the events of the call's backward are the kernel's, too. Where they are not, the gradients of the scores are left.
func (e *edit) fuse(a *attention, scores []int) bool {
	raw, softmax := a.own[scores[0]], a.own[scores[len(scores)-1]]
	sizes := map[int64]bool{}
	for _, k := range scores {
		e.drop(a.own[k])
		sizes[e.blocks[a.own[k]].bytes] = true
	}
	if e.passes[a.pass].name != "forward" || e.blocks[raw].module == "" || !e.kept(softmax) {
		return false // layers share their frames; or nothing is saved
	}
	if e.byKernel(a, sizes, raw, softmax) {
		return true
	}
	if e.repeatsKeys(a, raw) {
		e.hint = repeatKeys
	}
	for _, i := range a.own[scores[0]:scores[len(scores)-1]] {
		if b := &e.blocks[i]; b.plain && e.kept(i) && (sizes[2*b.bytes] || sizes[4*b.bytes]) {
			e.drop(i)
		}
	}
	e.keepOperands(a, raw, softmax)
	return false
}

// keepOperands changes what is saved besides scores. raw is the first block of the scores, softmax the last one.
func (e *edit) keepOperands(a *attention, raw, softmax int32) {
	copies := e.copiesBefore(a, raw)
	if e.widened(a, copies, softmax) {
		e.keepNarrow(a, copies, softmax)
		return
	}
	redundant := e.redundant(a, copies)
	if result := e.copiedResult(a, softmax); result >= 0 {
		bytes := e.blocks[result].bytes
		if k := slices.IndexFunc(redundant, func(i int32) bool { return e.blocks[i].bytes == bytes }); k >= 0 {
			redundant = slices.Delete(redundant, k, k+1) // stands for it
		} else {
			e.keepUntil(result, e.blocks[softmax].free)
		}
	}
	for _, i := range redundant {
		e.drop(i)
	}
}

// copiesBefore are the scaled queries and keys: one or two blocks that the module saves right before the scores, and that one operator of backward
// frees.
func (e *edit) copiesBefore(a *attention, raw int32) (copies []int32) {
	for i := raw - 1; len(copies) < 2 && e.inside(a, i); i-- {
		b := &e.blocks[i]
		if b.place != a.place || !e.kept(i) {
			continue
		}
		if !b.plain || len(copies) == 1 && e.operatorThatFrees(e.blocks[copies[0]].free) != e.operatorThatFrees(b.free) {
			break
		}
		copies = append(copies, i)
	}
	slices.Reverse(copies)
	return copies
}

// redundant are those copies of which there is nothing as large that forward frees later.
func (e *edit) redundant(a *attention, copies []int32) []int32 {
	room := map[int32]int64{} // of what forward frees later: for how many copies
	return slices.DeleteFunc(copies, func(i int32) bool {
		b := &e.blocks[i]
		for k := i - 1; e.inside(a, k); k-- {
			source := &e.blocks[k]
			if source.free < b.alloc || source.free > b.free || e.kept(k) || source.bytes%b.bytes != 0 {
				continue
			}
			if _, ok := room[k]; !ok {
				room[k] = source.bytes / b.bytes
			}
			if room[k]--; room[k] >= 0 {
				return true
			}
		}
		return false
	})
}

// repeatKeys ends the advice where keys have fewer heads than queries. SDPA takes such keys (enable_gqa=True), but in float32 it has no fused kernel
// for them: torch 2.11 on an H200.
const repeatKeys = "; keys have fewer heads: in float32, repeat them first"

// repeatsKeys says whether attention repeats keys for more heads: its scaled keys are as large as its queries, and a part of the module made fewer.
func (e *edit) repeatsKeys(a *attention, raw int32) bool {
	copies := e.copiesBefore(a, raw)
	if len(copies) != 2 || e.blocks[copies[0]].bytes != e.blocks[copies[1]].bytes {
		return false
	}
	for i := copies[0] - 1; e.inside(a, i); i-- {
		b := &e.blocks[i]
		if queries, keys := projects(b.place); keys && !queries && b.place != a.place && b.plain {
			return b.bytes < e.blocks[copies[0]].bytes && e.blocks[copies[0]].bytes%b.bytes == 0
		}
	}
	return false
}

// widened says whether attention computes in four bytes what it takes and returns in two: its result is half as large as
// queries, and as what is saved right before the scores.
func (e *edit) widened(a *attention, copies []int32, softmax int32) bool {
	if len(copies) < 2 {
		return false
	}
	last := int64(0)
	for i := softmax + 1; e.inside(a, i) && e.blocks[i].place == a.place; i++ {
		if e.kept(i) {
			last = e.blocks[i].bytes
		}
	}
	return 2*last == e.blocks[copies[0]].bytes && last != e.blocks[copies[1]].bytes
}

// keepNarrow leaves the wide copies out, of values too, and keeps what they are made of: what the module and its parts made first, of half as many
// bytes in all, and forward frees later.
func (e *edit) keepNarrow(a *attention, copies []int32, softmax int32) {
	for i := softmax + 1; e.inside(a, i); i++ {
		if b := &e.blocks[i]; b.plain && b.place == a.place && e.kept(i) {
			copies = append(copies, i) // of the values
			break
		}
	}
	wide := int64(0)
	for _, i := range copies {
		wide += e.blocks[i].bytes
		e.drop(i)
	}
	first := copies[0]
	for e.inside(a, first-1) {
		first--
	}
	for i := first; i < copies[0] && wide > 0; i++ {
		if b := &e.blocks[i]; b.plain && b.free > e.blocks[copies[0]].alloc && b.free < e.blocks[copies[0]].free && 2*b.bytes <= wide {
			e.keepUntil(i, e.blocks[copies[0]].free)
			wide -= 2 * b.bytes
		}
	}
}

// copiedResult is what attention returns in a module that calls no other behind it, if what is saved of it is a copy; -1 for none.
func (e *edit) copiedResult(a *attention, softmax int32) int32 {
	found := int32(-1)
	for i := softmax + 1; e.inside(a, i); i++ {
		b := &e.blocks[i]
		if b.place != a.place {
			return -1
		}
		if found >= 0 || !e.kept(i) {
			continue
		}
		for k := softmax + 1; k < i; k++ {
			if of := &e.blocks[k]; of.plain && of.bytes == b.bytes && of.free > b.alloc && e.in(of.free, e.passes[a.pass].name) {
				found = k
			}
		}
		if found < 0 {
			return -1
		}
	}
	return found
}

// inside says whether a block is of an attention module or of a part of it, in its pass.
func (e *edit) inside(a *attention, i int32) bool {
	if i < 0 || int(i) >= len(e.blocks) || e.blocks[i].pass != a.pass {
		return false
	}
	rest, ok := strings.CutPrefix(e.blocks[i].place, a.place)
	return ok && (rest == "" || rest[0] == '.')
}

// kept says whether a block is saved for backward.
func (e *edit) kept(i int32) bool {
	b := &e.blocks[i]
	return savedForBackward(b) && e.in(b.free, "backward")
}
