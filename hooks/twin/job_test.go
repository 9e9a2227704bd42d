package twin_test

import (
	"slices"
)

func (d *driver) step() {
	switch {
	case d.oneIn(400):
		d.do(opStats, 0, 0)
	case d.oneIn(300):
		d.unmap()
	case d.oneIn(100):
		d.do(opIteration, 0, 0)
	case d.oneIn(200):
		d.do(opTrim, 0, 0)
	case d.oneIn(500):
		d.do(opUnmapFree, d.logUniform(8, 34), 0)
	case d.oneIn(400):
		d.restore()
	case d.oneIn(1000):
		d.do(opHeld, d.maybe(d.logUniform(20, 36)), 0)
	case d.oneIn(1500):
		d.do(opContaining, d.someAddress(), 0)
	case d.oneIn(700):
		d.excess()
	case d.oneIn(1000):
		d.do(opShortage, 0, 0)
	case d.oneIn(300):
		d.do(opShrink, d.someAddress(), 0)
	case d.oneIn(1000):
		d.shrinkAll()
	case d.oneIn(400):
		d.do(opMovable, d.random.Uint64N(64), 0)
	case d.lags && d.oneIn(20):
		d.over = max(d.over, d.heap.Frees()-min(d.heap.Frees(), d.random.Uint64N(40)))
		d.do(opOver, d.over, 0)
	case d.oneIn(400):
		d.do(opWant, d.logUniform(20, 34), d.maybe(d.logUniform(20, 34)))
	case d.oneIn(400):
		d.do(opRegister+d.random.Uint64N(2), d.someAddress(), d.maybe(d.logUniform(8, 28)))
	case d.oneIn(500):
		d.do(opFreeAddress, d.unknownAddress(), 0)
	case len(d.live) > 0 && (len(d.live) >= d.many || d.oneIn(3)):
		d.do(opFree, d.random.Uint64N(uint64(len(d.live))), 0)
	default:
		d.do(opAlloc, d.size(), 0)
	}
	if d.oneIn(2000) { // free all blocks in random order, then request much
		for len(d.live) > 0 {
			d.do(opFree, d.random.Uint64N(uint64(len(d.live))), 0)
		}
		for range 4 {
			d.do(opAlloc, d.logUniform(16, 34), 0)
		}
	}
}

// repeat runs iterations that make the same requests and free their blocks at the same positions, in the
// same iteration or the next, sometimes with other operations between.
func (d *driver) repeat() {
	type step struct {
		size  uint64 // of a request; 0 for a free
		of    int    // the request whose block is freed
		older bool   // that of the iteration before
	}
	greatest := 8 + d.random.IntN(20) // log2 of the largest size
	var steps []step
	var open []int // requests whose blocks this iteration frees
	requests := []int{60, 60, 60, 60, 60, 500}[d.random.IntN(6)]
	for i := range 1 + d.random.IntN(requests) {
		steps = append(steps, step{size: 1 + d.random.Uint64N(1<<(greatest-d.random.IntN(8)))})
		if d.oneIn(3) {
			steps = slices.Insert(steps, d.random.IntN(len(steps)+1), step{of: i, older: true})
		} else {
			open = append(open, i)
		}
		for len(open) > 0 && d.oneIn(2) {
			last := d.random.IntN(len(open))
			steps = append(steps, step{of: open[last]})
			open = append(open[:last], open[last+1:]...)
		}
	}
	others, stays := []int{8, 30, 500, 500}[d.random.IntN(4)], []int{2, 5, 100}[d.random.IntN(3)]
	var blocks, older map[int]uint64
	for range 3 + d.random.IntN(16) {
		blocks, older = map[int]uint64{}, blocks
		request := 0
		for _, s := range steps {
			if d.oneIn(others) {
				d.step()
			}
			of := blocks
			if s.older {
				of = older
			}
			if s.size > 0 {
				before := len(d.live)
				if d.do(opAlloc, s.size, 0); len(d.live) > before {
					blocks[request] = d.live[before]
				}
				request++
			} else if at := slices.Index(d.live, of[s.of]); at >= 0 {
				d.do(opFree, uint64(at), 0)
				delete(of, s.of)
			}
		}
		if d.oneIn(stays) { // a block that stays
			d.do(opAlloc, 1+d.random.Uint64N(1<<greatest), 0)
		}
		d.do(opIteration, 0, 0)
		if !d.oneIn(4) {
			d.do(opTrim, 0, 0)
		}
	}
}

// excess frees a chunk and requests about 128 MiB less: where splitting begins.
func (d *driver) excess() {
	size := 128<<20 + d.logUniform(8, 27)&^255
	d.do(opAlloc, size+128<<20+256*d.random.Uint64N(3)-256, 0)
	last := uint64(len(d.live)) - 1
	d.do(opAlloc, 256, 0)
	if last < uint64(len(d.live)) {
		d.do(opFree, last, 0)
	}
	d.do(opAlloc, size, 0)
}

// unmap unmaps pages of a few free chunks; sometimes a range that cannot be unmapped.
func (d *driver) unmap() {
	unit := d.memory.granularity
	for _, r := range d.heap.Regions() {
		for _, c := range r.Chunks {
			from := (r.Addr + c.Offset + unit - 1) &^ (unit - 1)
			to := (r.Addr + c.Offset + c.Size) &^ (unit - 1)
			if !c.Free() || to <= from || d.oneIn(2) {
				continue
			}
			granules := (to - from) / unit
			first := d.random.Uint64N(granules)
			count := 1 + d.random.Uint64N(granules-first)
			d.do(opUnmap, from+first*unit, count*unit+d.maybe(truth(d.oneIn(50))*unit))
		}
	}
}

// shrinkAll frees the slack of all blocks, some of which have none.
func (d *driver) shrinkAll() {
	for _, r := range d.heap.Regions() {
		for _, c := range r.Chunks {
			if !c.Free() && (c.Size > c.Requested+255 || d.oneIn(20)) {
				d.do(opShrink, r.Addr+c.Offset, 0)
			}
		}
	}
}

// restore makes part of a chunk a block at its place; some are in use, misaligned or too long.
func (d *driver) restore() {
	regions := d.heap.Regions()
	if len(regions) == 0 {
		return
	}
	r := regions[d.random.IntN(len(regions))]
	c := r.Chunks[d.random.IntN(len(r.Chunks))]
	first := d.random.Uint64N(c.Size / 256)
	count := 1 + d.random.Uint64N(c.Size/256-first)
	d.do(opRestore, r.Addr+c.Offset+256*first+truth(d.oneIn(50)), 256*count+256*truth(d.oneIn(50)))
}
