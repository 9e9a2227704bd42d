package fit

import (
	"slices"
	"strings"
)

// keepOperands changes what an attention saved besides its scores to what a fused kernel saves: queries, keys and values as they come in, and
// the result. raw is the first block of the scores, softmax the last one.
//
// Scaled queries and keys are copies. Where what they are made of is freed, the kernel saves that in their place, and nothing changes. Where that
// is saved anyway, as a packed projection is by the values, they go. The result is saved in the copy whose heads are behind each other again, which
// for the kernel is a view; but nn.MultiheadAttention, which calls no module, copies it in any case.
func (e *edit) keepOperands(a *attention, raw, softmax int32) {
	if e.passes[a.pass].name != "forward" || !e.kept(softmax) {
		return // nothing is saved
	}
	copies := e.copiesBefore(a, raw)
	if e.widened(a, copies, softmax) {
		e.keepNarrow(a, copies, softmax)
		return
	}
	redundant := e.redundant(a, copies)
	if result := e.copiedResult(a, raw, softmax); result >= 0 {
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
			if source.free < b.alloc || e.kept(k) || source.bytes%b.bytes != 0 {
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
		if b := &e.blocks[i]; b.plain && !e.kept(i) && b.free > e.blocks[copies[0]].alloc && 2*b.bytes <= wide {
			e.keepUntil(i, e.blocks[copies[0]].free)
			wide -= 2 * b.bytes
		}
	}
}

// copiedResult is what attention returns in a module that calls no other, if what is saved of it is a copy; -1 for none.
func (e *edit) copiedResult(a *attention, raw, softmax int32) int32 {
	if e.blocks[raw].module == "" {
		return -1
	}
	for i := raw; e.inside(a, i); i-- {
		if e.blocks[i].place != a.place {
			return -1
		}
	}
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
