package snapshot

import (
	"cmp"
	"slices"
)

// opening is the memory and the blocks of a device before the first entry of its trace. Torch keeps the newest
// entries only, so opening is inferred from the entries and the final segments: what ends, or is live at the
// end, without a begin existed before.
type opening struct {
	blocks []opened // by address
	memory []extent // by address

	live    map[uint64]tracked // of the entries so far
	mapped  table[extent]
	starts  table[struct{}] // of large requests
	entries int64
	odd     int64 // entries that contradict those before

	requests, completions int64
	reused                int64 // allocs where the block before them was pending
	freers                bool  // frees have stacks of their own, not those of the requests
	halves                bool  // the trace has only one of the two entries of a free
	sized                 bool  // entries say the sizes of blocks: memprof's export

	// emptied are the numbers of the entries with which an emptying of the cache begins: the first of a run of
	// releases that no request made.
	emptied  map[int64]bool
	released int64 // number of the first entry of the run at hand; 0: the last entry is no release
	releaser int64 // stack of that run

	// pools are those of memory that is there at the end, by the number of the entry that took
	// it, where entries do not say. Only private pools.
	pools map[int64][2]uint64

	// asked are the bytes of the request that an entry took memory for, by the number of the entry. finish keeps those of memory that
	// torch released before the end.
	asked  map[int64]uint64
	taking []int64 // the entries that took memory since the last other one
}

// opened is a block that existed before the first entry.
type opened struct {
	addr, size uint64 // size 0: not known, see layout
	requested  uint64
	stream     uint64
	pending    bool
	stack      int64
	behind     uint64 // where the next block of a large request began while this was there; 0 if none did
}

// extent is a mapped range of one stream and class.
type extent struct {
	from, to uint64
	stream   uint64
	class    class
	entry    int64 // that took it, from 1; 0 if none did
}

// class is what tells memory of one stream apart: small and large requests have memory of
// their own, and pages that are mapped one by one join.
type class struct {
	small      bool
	expandable bool
	pool       [2]uint64
}

// tracked is a block of the entries so far, and the stack of its newest entry.
type tracked struct {
	state blockState
	stack int64
}

type blockState uint8

const (
	stateLive blockState = iota + 1
	statePending
)

func newOpening() *opening {
	return &opening{live: map[uint64]tracked{}, emptied: map[int64]bool{}, pools: map[int64][2]uint64{}, asked: map[int64]uint64{}}
}

// classOf returns the class of memory that an entry maps or unmaps.
func classOf(action action, size uint64, pool [2]uint64) class {
	return class{
		small:      size%largePage != 0 && size < ownSegment,
		expandable: action == actionSegmentMap || action == actionSegmentUnmap,
		pool:       pool,
	}
}

const (
	largePage    = 20 << 20
	ownSegment   = 10 << 20
	smallRequest = 1 << 20 // the largest one that is small
)

// entry takes an entry of the trace.
func (o *opening) entry(e *entry) {
	o.entries++
	o.release(e)
	before := o.live[e.addr]
	state := before.state
	if state == stateLive && e.action == actionFreeRequested && e.stack != before.stack {
		o.freers = true
	}
	switch e.action {
	case actionAlloc:
		o.sized = o.sized || e.block > 0
		switch state {
		case stateLive:
			o.odd++
		case statePending:
			o.reused++
		}
		o.live[e.addr] = tracked{stateLive, e.stack}
		for _, entry := range o.taking {
			o.asked[entry] = e.size
		}
		if e.size > smallRequest {
			o.starts.set(e.addr, struct{}{})
		}
	case actionFreeRequested:
		o.requests++
		if state == 0 {
			o.blocks = append(o.blocks, opened{addr: e.addr, size: e.block, requested: e.size, stream: e.stream, stack: e.stack, behind: o.behind(e)})
		}
		o.live[e.addr] = tracked{statePending, e.stack}
	case actionFreeCompleted, actionFree:
		o.completions++
		if state == 0 {
			o.blocks = append(o.blocks, opened{addr: e.addr, size: e.block, requested: e.size, stream: e.stream, stack: e.stack, behind: o.behind(e), pending: true})
		}
		delete(o.live, e.addr)
	case actionSegmentAlloc, actionSegmentMap:
		o.mapped.set(e.addr, extent{e.addr, e.addr + e.size, e.stream, classOf(e.action, e.size, e.pool), o.entries})
		o.taking = append(o.taking, o.entries)
		return
	case actionSegmentFree, actionSegmentUnmap:
		o.gone(extent{e.addr, e.addr + e.size, e.stream, classOf(e.action, e.size, e.pool), 0})
	}
	o.taking = o.taking[:0]
}

// release follows the runs of releases. Those of a request have its stack, and a map or a refusal of that request is behind them.
// Where entries have no stacks, releases before a map count as the request's.
func (o *opening) release(e *entry) {
	releases := e.action == actionSegmentFree || e.action == actionSegmentUnmap
	requests := e.action == actionSegmentAlloc || e.action == actionSegmentMap || e.action == actionOOM
	if o.released > 0 && (e.stack != o.releaser || !releases && !requests) {
		o.emptied[o.released] = true
		o.released = 0
	}
	switch {
	case !releases:
		o.released = 0
	case o.released == 0:
		o.released, o.releaser = o.entries, e.stack
	}
}

// mostHeld bounds held over what any job has: it takes some 300 MB.
const mostHeld = 4 << 20

// held is how many blocks, mappings and addresses are kept.
func (o *opening) held() int {
	return len(o.live) + len(o.blocks) + len(o.memory) + o.mapped.len() + o.starts.len() + len(o.emptied) + len(o.asked)
}

// behind is where the first block behind a large request began that entries made: without a free
// block in between, since the lowest part of one is handed out first.
func (o *opening) behind(e *entry) (at uint64) {
	if e.size > smallRequest {
		at, _ = o.starts.from(e.addr + 1)
	}
	return at
}

// gone takes memory that was unmapped. The part that no entry mapped existed before the first entry.
func (o *opening) gone(e extent) {
	at := e.from
	for _, m := range o.overlapping(e.from, e.to) {
		o.mapped.delete(m.from)
		if m.from < e.from {
			left := m
			left.to = e.from
			o.mapped.set(left.from, left)
		}
		if m.to > e.to {
			right := m
			right.from = e.to
			o.mapped.set(right.from, right)
		}
		if m.from > at {
			o.memory = append(o.memory, extent{at, m.from, e.stream, e.class, 0})
		}
		at = max(at, m.to)
	}
	if at < e.to {
		o.memory = append(o.memory, extent{at, e.to, e.stream, e.class, 0})
	}
}

// overlapping returns the memory that entries mapped between two addresses.
func (o *opening) overlapping(from, to uint64) (found []extent) {
	for _, start := range o.mapped.between(from, to, func(e *extent) uint64 { return e.to }) {
		found = append(found, *o.mapped.get(start))
	}
	return found
}

// finish adds the memory and blocks of the final segments that no entry created, and sorts both by address. It
// skips segments that overlap earlier ones.
func (o *opening) finish(segments []segment) {
	if o.released > 0 { // the last entries
		o.emptied[o.released] = true
	}
	slices.SortStableFunc(segments, func(a, b segment) int { return cmp.Compare(a.addr, b.addr) })
	if o.freers {
		for at := range o.blocks {
			o.blocks[at].stack = 0 // it is that of the free
		}
	}
	for addr, m := o.mapped.from(0); m != nil; addr, m = o.mapped.from(addr + 1) {
		delete(o.asked, m.entry)
	}
	end, pending := uint64(0), false
	for i := range segments {
		s := &segments[i]
		if s.addr < end {
			o.odd++
			continue
		}
		end = s.addr + s.size
		o.addMemory(s)
		for _, b := range s.blocks {
			pending = pending || b.pending
			if (b.live || b.pending) && o.live[b.addr].state == 0 {
				o.blocks = append(o.blocks, opened{b.addr, b.size, b.requested, s.stream, b.pending, b.stack, 0})
			}
		}
	}
	if o.completions == 0 && !pending {
		o.halves = true
	}
	if o.requests == 0 {
		o.halves = true
		for i := range o.blocks {
			o.blocks[i].pending = o.blocks[i].pending && o.blocks[i].size > 0 // else only its free_completed says so
		}
	}
	if !o.halves {
		o.odd += o.reused
	}
	slices.SortFunc(o.memory, func(a, b extent) int { return cmp.Compare(a.from, b.from) })
	slices.SortFunc(o.blocks, func(a, b opened) int { return cmp.Compare(a.addr, b.addr) })
	o.live, o.mapped, o.starts = nil, table[extent]{}, table[struct{}]{}
}

// addMemory adds the memory of a segment that no entry mapped, and keeps the pool of the memory that entries mapped.
func (o *opening) addMemory(s *segment) {
	c := class{small: s.small, expandable: s.expandable, pool: s.pool}
	at := s.addr
	for _, m := range o.overlapping(s.addr, s.addr+s.size) {
		if m.class.pool != s.pool {
			o.pools[m.entry] = s.pool
		}
		if m.from > at {
			o.memory = append(o.memory, extent{at, m.from, s.stream, c, 0})
		}
		at = max(at, m.to)
	}
	if end := s.addr + s.size; at < end {
		o.memory = append(o.memory, extent{at, end, s.stream, c, 0})
	}
}
