package tune

import (
	"maps"
	"slices"

	"github.com/memprof/memprof/analysis/accounting"
	"github.com/memprof/memprof/analysis/iterations"
	"github.com/memprof/memprof/bfc"
)

// steadyFrom is the first steady iteration, counted from 0: by then the optimizer's state is allocated.
const steadyFrom = iterations.SteadyFrom

// replay is a job under one policy.
type replay struct {
	policy  bfc.Policy
	limit   uint64 // most that may be mapped on a device, in bytes
	limited bool   // limit is --limit; else the limit is what others do not use of the device

	heaps    []*heap            // by number of the arena; nil once it ended
	born     []*heap            // by the order of their first requests; nil once they ended
	mayUnmap numbers            // numbers in born of heaps that may have free memory to unmap
	movable  numbers            // of those that have pages that no block touches, which other heaps take
	unshrunk []*heap            // those that were there before their device's first shortage: their blocks may have slack
	blocks   []placed           // by slot
	pending  map[int32]struct{} // slots of pending blocks
	ending   []placed           // pending blocks that the recorded allocator freed during the coming request, or the one under way
	swept    []int32            // arenas that it ended then
	unplacer *heap              // the heap of the last request, which unplaced more than it mapped; nil: it did not

	devices     []*device
	granularity uint64

	t, c, r uint64 // now, of all devices

	captures int     // streams that are captured now
	resuming []*heap // of the call under way

	inRequest  bool // a request is under way: it waits for driver calls
	reclaiming bool // it unmaps free memory because it lacks memory

	observe func(seq int64, reserved uint64) // nil, or that of Options
	current figures                          // of the iteration under way
	trail   trail
	refused int64

	card  *accounting.Card // nil, or one of Options
	first *accounting.Refusal
}

// device is a device of a replay. Sizes are in bytes.
type device struct {
	number   int32
	total    uint64      // its memory; 0 if not known
	used     uint64      // what arenas have mapped
	others   uint64      // what others than the arenas use
	touched  uint64      // pages in use of heaps that give pages, all that others have mapped
	streams  bfc.Streams // what its heaps take of each other
	shortage bool        // it has been short of memory
	shortNow bool        // it is: handles are of a page
	active   bool        // something was requested or freed
	trimmed  bool        // its free memory was unmapped since
	last     int64       // when that was, ns
	live     int64       // requested, with a card
	// see Outcome
	usage, needs, spared int64
}

func (p *replay) on(number int32) *device {
	for _, d := range p.devices {
		if d.number == number {
			return d
		}
	}
	d := &device{number: number}
	if p.card != nil {
		d.others = uint64(max(p.card.Base[number], 0)) // until an event says more
	}
	p.devices = append(p.devices, d)
	return d
}

// each calls f for each heap.
func (p *replay) each(f func(*heap)) {
	for _, h := range p.heaps {
		if h != nil {
			f(h)
		}
	}
}

// placed is a live block.
type placed struct {
	heap            *heap // nil if the request was refused
	addr            uint64
	size, requested uint64
	number          int32 // of the block in its heap
	pending         bool  // it is in neither sum
}

func newReplay(policy bfc.Policy, limit uint64) *replay {
	return &replay{policy: policy, limit: limit, limited: limit > 0, pending: map[int32]struct{}{}}
}

// run replays operations in order.
func (p *replay) run(ops []op) {
	for i := range ops {
		p.apply(&ops[i])
	}
}

func (p *replay) apply(o *op) {
	if p.unplacer != nil {
		p.putBack(p.unplacer)
		p.unplacer = nil
	}
	p.idle(o)
	switch o.kind {
	case opArena:
		p.begin(o)
	case opAlloc:
		p.alloc(o)
		p.freeEnding()
	case opPend:
		p.pend(o)
	case opFree, opDone:
		p.free(o)
	case opEnd:
		p.end(o)
	case opMark:
		p.mark(o.time)
	case opRelease:
		p.release(o.arena)
	case opSwept:
		p.swept = append(p.swept, o.arena)
	case opPin, opUnpin:
		p.heaps[o.arena].pinned = o.kind == opPin
		p.heaps[o.arena].changed()
	case opPause:
		p.pause(p.heaps[o.arena])
	case opLeaveOut:
		if h := p.heaps[o.arena]; h != nil && h.paused {
			h.leaveOutFree()
		}
	case opResume:
		p.resume(p.heaps[o.arena], o)
	case opCapture:
		p.captures = int(o.bytes)
	case opUnmapFree:
		p.reclaim(p.on(o.arena), everything)
		p.emptied(p.on(o.arena))
	case opOthers:
		p.others(p.on(o.arena), o.bytes)
		p.outside(o)
	case opDriver:
		p.on(o.arena).others = o.bytes
		p.outside(o)
	case opMeasured:
		p.on(o.arena).others = o.bytes
	case opRefused:
		p.refusedThen(o)
		p.freeEnding()
	}
	if p.observe != nil && (o.kind == opAlloc || o.kind == opPend || o.kind == opFree || o.kind == opDone || o.kind == opRefused) {
		p.observe(o.seq, p.r)
	}
}

// begin makes the heap of a new arena.
func (p *replay) begin(o *op) {
	for len(p.heaps) <= int(o.arena) {
		p.heaps = append(p.heaps, nil)
	}
	shape := o.shape
	if p.card != nil {
		shape = shape.toCard(p.card.Bytes)
	}
	p.heaps[o.arena] = newHeap(p, shape)
	p.granularity = max(p.granularity, shape.granularity)
	if shape.total > 0 {
		p.on(shape.device).total = shape.total
	}
}

func (p *replay) alloc(o *op) {
	for len(p.blocks) <= int(o.slot) {
		p.blocks = append(p.blocks, placed{})
	}
	p.clear(o.slot)
	if o.bytes == 0 { // no allocator serves it
		return
	}
	h := p.heaps[o.arena]
	block, ok := p.request(h, o.bytes)
	spared := p.card.Spares(o.seq)
	if !ok {
		if spared && !p.card.Strict {
			return
		}
		p.refuse(accounting.Refusal{Seq: o.seq, Device: h.shape.device, Bytes: int64(o.bytes)})
		return
	}
	h.changed()
	p.blocks[o.slot] = placed{heap: h, number: h.bfc.Number(), addr: block.Addr, size: block.Size, requested: block.Requested}
	p.onCard(h.on, int64(block.Requested), spared)
	p.t += block.Requested
	p.c += block.Size
	p.peak()
}

// request makes a request of a heap, and makes it again as the hook does: first when as much memory was
// unmapped as it can need, then all that is free, and once more if the heap grew in vain. Each time the hook waits for the device
// if what nobody reads any more does not suffice.
func (p *replay) request(h *heap, bytes uint64) (bfc.Block, bool) {
	h.number()
	p.inRequest = true
	block, ok := p.attempt(h, bytes)
	wanted := bytes + h.shape.granularity
	for round := 0; round < 3 && !ok; round++ {
		p.putBack(h)
		changed := !p.hopeless(h, bytes) && p.shortage(h.on)
		unmapped, freed := p.reclaim(h.on, wanted), false
		if unmapped < wanted && p.captures == 0 {
			freed = p.freePending(h.on)
			unmapped += p.reclaim(h.on, wanted-unmapped)
		}
		if unmapped == 0 && !changed && !freed {
			break
		}
		block, ok = p.attempt(h, bytes)
		wanted = everything
	}
	p.inRequest = false
	if h.unplaced != nil && h.unplaced.count > 0 {
		p.unplacer = h
	}
	return block, ok
}

// attempt makes a request once.
func (p *replay) attempt(h *heap, bytes uint64) (bfc.Block, bool) {
	h.released = 0
	block, ok := h.bfc.Alloc(bytes)
	h.changed()
	return block, ok
}

// freePending frees the blocks of a device that other streams used, as the hook does when the device was waited for. It
// returns whether there were any.
func (p *replay) freePending(d *device) (freed bool) {
	if freed = p.freeEnding(); len(p.pending) == 0 {
		return freed
	}
	for _, slot := range slices.Sorted(maps.Keys(p.pending)) {
		if b := &p.blocks[slot]; b.heap.on == d && !b.heap.paused {
			p.free(&op{slot: slot})
			freed = true
		}
	}
	return freed
}

// end takes a pending block out of its slot, which the request under way can get, and leaves it to freeEnding.
func (p *replay) end(o *op) {
	p.pend(o)
	if b := p.blocks[o.slot]; b.heap != nil {
		p.ending = append(p.ending, b)
	}
	p.clear(o.slot)
}

// clear forgets what a slot has.
func (p *replay) clear(slot int32) {
	if p.blocks[slot].pending {
		delete(p.pending, slot)
	}
	p.blocks[slot] = placed{}
}

// freeEnding frees the blocks that the recorded allocator freed during the request, and ends the arenas of pools that it ended; it
// returns whether there were any. A request that does not wait for the device comes before that.
func (p *replay) freeEnding() (freed bool) {
	for _, b := range p.ending {
		p.freeBlock(b)
	}
	for _, number := range p.swept {
		p.release(number)
	}
	freed = len(p.ending)+len(p.swept) > 0
	p.ending, p.swept = p.ending[:0], p.swept[:0]
	return freed
}

// hopeless says whether a request exceeds the device, or the limit of a main arena.
func (p *replay) hopeless(h *heap, bytes uint64) bool {
	total := h.on.total
	return total > 0 && bytes > max(total, p.limit) || h.shape.main && h.shape.limit > 0 && bytes > max(h.shape.limit, p.limit)
}

// refusedThen makes a request that the recorded allocator refused. The job went on without the block,
// or ended, so that the block is freed at once. A card has to serve it, too, if any can. Where neither the device's size nor a limit
// is known, as of an imported snapshot, nothing would refuse it: it is not made.
func (p *replay) refusedThen(o *op) {
	if o.bytes == 0 || p.card != nil && o.bytes > accounting.LargestCard {
		return
	}
	h := p.heaps[o.arena]
	if h.on.total == 0 && !p.limited && p.card == nil && h.shape.limit == 0 {
		return
	}
	switch block, ok := p.request(h, o.bytes); {
	case ok:
		h.changed()
		p.onCard(h.on, int64(block.Requested), false)
		p.freeBlock(placed{heap: h, number: h.bfc.Number(), requested: block.Requested, pending: true}) // it is in no sum of blocks
	case p.card != nil:
		p.refuse(accounting.Refusal{Seq: o.seq, Device: h.shape.device, Bytes: int64(o.bytes)})
	}
}

// peak updates the maxima of the iteration.
func (p *replay) peak() {
	f := &p.current
	f.t, f.c, f.r = max(f.t, p.t), max(f.c, p.c), max(f.r, p.r)
}

// pend subtracts a block that other streams may still use from what is live.
func (p *replay) pend(o *op) {
	if b := &p.blocks[o.slot]; b.heap != nil && !b.heap.paused && !b.pending {
		b.pending = true
		p.pending[o.slot] = struct{}{}
		p.t -= b.requested
		p.c -= b.size
	}
}

func (p *replay) free(o *op) {
	block := p.blocks[o.slot]
	p.clear(o.slot)
	p.freeBlock(block)
}

func (p *replay) freeBlock(block placed) {
	if block.heap == nil {
		return
	}
	if !block.heap.paused {
		p.onCard(block.heap.on, -int64(block.requested), false)
	}
	block.heap.bfc.FreeNumber(block.number)
	block.heap.changed()
	if !block.heap.paused && !block.pending { // the blocks of a paused heap are in neither sum
		p.t -= block.requested
		p.c -= block.size
	}
}

// mark ends an iteration. What a trim unmaps then still counts as mapped in the iteration that ends.
func (p *replay) mark(now int64) {
	for _, d := range p.devices {
		d.streams.EndIteration(d.used)
	}
	p.each(func(h *heap) {
		if h.born > 0 { // else the hook has no arena yet, which counts only iterations that it was there for
			h.bfc.EndIteration()
		}
	})
	p.trim()
	p.trail.add(&p.current, now)
	p.current = figures{t: p.t, c: p.c, r: p.r}
}

// release ends an arena.
func (p *replay) release(number int32) {
	h := p.heaps[number]
	if h == nil {
		return
	}
	if !h.paused {
		h.count(-int64(h.bfc.Stats().Reserved))
	}
	p.heaps[number] = nil
	h.end()
}
