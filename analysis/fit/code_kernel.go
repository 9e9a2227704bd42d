package fit

import (
	"slices"

	"github.com/memprof/memprof/analysis/attribution"
)

// kernel is a call of attention by the math backend, whose place a fused kernel takes.
type kernel struct {
	copies    []int32 // saved copies of queries, keys and values
	own       []int32 // what else the module allocates itself for the call: the scores, masks, temporaries
	operands  []int32 // blocks of queries, keys and values as they come in, which are freed before backward needs them
	result    int32   // the block that it returns and saves
	from, to  int32   // its events in backward
	incoming  int32   // the block of the gradient of its result
	gradients []int32 // the blocks of those of queries, keys and values, in this order
}

// byKernel puts a fused kernel in the place of a call, and returns whether it can. scores are the sizes of the scores, raw is the first block of
// them, softmax the last one.
//
// In forward a kernel allocates the result, and saves it beside queries, keys and values as they come in. In backward it allocates their gradients,
// and then frees what it computed from. Two things are left out: the sums of rows, which are small, and backward's workspace, which depends on the
// kernel. Source: events of torch 2.11 on an H200, of the same jobs with the math backend and with the memory-efficient kernel.
func (e *edit) byKernel(a *attention, scores map[int64]bool, raw, softmax int32) bool {
	c, ok := e.kernelOf(a, scores, raw, softmax)
	if !ok {
		return false
	}
	for _, i := range c.own {
		e.drop(i)
	}
	for _, i := range c.copies {
		e.replace(i)
	}
	for at := c.from; at < c.to; at++ {
		if i := e.blockAt[at]; e.blocks[i].alloc == at && e.blocks[i].free < c.to {
			e.drop(i)
		}
	}
	for _, i := range c.gradients {
		e.live(i, c.from, e.dropCopy(i))
	}
	e.keepUntil(c.incoming, c.from)
	for _, i := range c.operands {
		e.keepUntil(i, c.from)
	}
	e.keepUntil(c.result, c.from)
	return true
}

// kernelOf finds the blocks of a call. Its copies are as large as what parts of the module made before, and forward frees behind it.
func (e *edit) kernelOf(a *attention, scores map[int64]bool, raw, softmax int32) (c kernel, ok bool) {
	first, last := raw, softmax
	for e.inside(a, first-1) && e.blocks[first-1].place == a.place {
		first--
	}
	for e.inside(a, last+1) && e.blocks[last+1].place == a.place {
		last++
	}
	c.from = e.blocks[softmax].free
	var cached []int32
	for i := first; i <= last; i++ {
		b := &e.blocks[i]
		switch {
		case !b.plain:
			return c, false
		case b.category == attribution.KVCache:
			cached = append(cached, i)
			continue
		case e.kept(i):
			c.from, c.to = min(c.from, b.free), max(c.to, b.free+1)
			if i < raw || i > softmax && !scores[b.bytes] {
				c.copies = append(c.copies, i)
				continue
			}
		case b.free >= e.passes[a.pass].to:
			continue // stays, as cuBLAS's workspace does
		}
		c.own = append(c.own, i)
	}
	n := len(c.copies) - 1
	if n < 1 || e.blocks[c.copies[n]].bytes != e.blocks[c.copies[0]].bytes {
		return c, false
	}
	c.copies, c.result = c.copies[:n], c.copies[n]
	bytes := e.bytesOf(c.copies)
	var passing []int32
	for _, i := range cached {
		if e.blocks[i].free < c.from {
			passing = append(passing, i) // the kernel saves the cache's, where the math backend has a copy
		} else {
			bytes += e.blocks[i].bytes
		}
	}
	c.operands = e.projections(a, first, softmax)
	if e.bytesOf(c.operands) != bytes || !e.findGradients(&c, e.blocks[c.copies[0]].bytes, bytes) {
		return c, false
	}
	c.operands = append(c.operands, passing...)
	return c, true
}

// projections are what parts of a module made right before a block, and forward frees behind another one.
func (e *edit) projections(a *attention, before, behind int32) (all []int32) {
	for i := before - 1; e.inside(a, i) && e.blocks[i].place != a.place; i-- {
		if b := &e.blocks[i]; b.plain && b.free > e.blocks[behind].alloc && e.in(b.free, e.passes[a.pass].name) {
			all = append(all, i)
		}
	}
	slices.Reverse(all)
	return all
}

// findGradients finds the gradients that a call's backward leaves, and returns whether they are as large as the operands. Behind the last saved block
// that backward frees come copies of gradients, and each copy frees its source.
func (e *edit) findGradients(c *kernel, query, bytes int64) bool {
	for e.copiesGradient(c) {
		c.to += 2
	}
	p := e.passAt(c.from)
	if p < 0 || p != e.passAt(c.to) {
		return false
	}
	c.incoming = -1
	for at := c.from; at < c.to; at++ {
		i := e.blockAt[at]
		if i < 0 || e.blocks[i].alloc == at && !e.blocks[i].plain {
			return false
		}
		switch b := &e.blocks[i]; {
		case b.alloc == at && b.free >= c.to:
			c.gradients = append(c.gradients, i)
		case b.alloc < c.from && b.alloc >= e.passes[p].from:
			if c.incoming >= 0 || !b.plain {
				return false
			}
			c.incoming = i
		}
	}
	if k := slices.IndexFunc(c.gradients, func(i int32) bool { return e.blocks[i].bytes == query }); k > 0 {
		c.gradients[0], c.gradients[k] = c.gradients[k], c.gradients[0]
	}
	return c.incoming >= 0 && e.bytesOf(c.gradients) == bytes
}

// copiesGradient returns whether the next two events of backward allocate a copy of a block that the call allocated, and free that block.
func (e *edit) copiesGradient(c *kernel) bool {
	if int(c.to)+1 >= len(e.events) {
		return false
	}
	made, freed := e.blockAt[c.to], e.blockAt[c.to+1]
	if made < 0 || freed < 0 {
		return false
	}
	m, f := &e.blocks[made], &e.blocks[freed]
	return m.alloc == c.to && f.free == c.to+1 && f.alloc >= c.from && m.bytes == f.bytes && m.plain && f.plain
}

// dropCopy leaves out the copy of a gradient that is allocated right before the gradient is freed: the kernel's gradient has its heads behind each
// other, and needs no copy. It returns the event that frees what is left.
func (e *edit) dropCopy(i int32) int32 {
	free := e.blocks[i].free
	if copied := e.blockAt[free-1]; copied >= 0 {
		if b := &e.blocks[copied]; b.alloc == free-1 && b.plain && b.bytes == e.blocks[i].bytes {
			e.drop(copied)
			return b.free
		}
	}
	return free
}

func (e *edit) bytesOf(blocks []int32) (sum int64) {
	for _, i := range blocks {
		sum += e.blocks[i].bytes
	}
	return sum
}
