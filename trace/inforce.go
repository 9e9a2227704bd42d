package trace

import (
	"cmp"
	"iter"
	"maps"
	"slices"
)

// Totals are the numbers of a process, all devices summed, after the last event. Bytes.
type Totals struct {
	Events       int64
	Requested    int64 // T: asked for by live allocations
	Provided     int64 // C: chunks of live allocations
	Reserved     int64 // R: mapped
	PeakReserved int64
	OOMs         int64
}

// Add sums two processes; the peak becomes the sum of the peaks.
func (t *Totals) Add(o Totals) {
	t.Events += o.Events
	t.Requested += o.Requested
	t.Provided += o.Provided
	t.Reserved += o.Reserved
	t.PeakReserved += o.PeakReserved
	t.OOMs += o.OOMs
}

// inForce holds the events that still hold after the last one added: what a later part
// restates at its start.
type inForce struct {
	arenas   map[int32]Event // the last arena event of each id
	blocks   map[int64]int32 // address of a live or pending chunk -> slot
	ranges   map[int32]bool  // arenas in ranges of graph memories
	inRanges map[int64]int32 // likewise, of their chunks: a watched allocator may have others within
	slots    []block
	vacant   []int32
	mapped   []Event // map events cut to the ranges still mapped, by address
	phases   map[int32][]Event
	external map[int64]Event
	lasting  []Event         // stack and overhead events: they hold for good
	sums     map[int32]Event // the last statistics event of each device
	aliases  map[int64]Event // by address, those that nothing of has been returned
	paused   map[int32]Event // of arenas that have not resumed: their pause, of what is left
	kv       kvInForce
	totals   Totals
}

// block is a chunk from its alloc to its free (or free_done).
type block struct {
	alloc   Event
	uses    []Event // the last stream_use of each stream, the last label
	free    Event   // when pending
	pending bool
}

func newInForce(strings *Strings) *inForce {
	return &inForce{
		kv:       kvInForce{text: strings.Text},
		arenas:   map[int32]Event{},
		blocks:   map[int64]int32{},
		ranges:   map[int32]bool{},
		inRanges: map[int64]int32{},
		phases:   map[int32][]Event{},
		external: map[int64]Event{},
		sums:     map[int32]Event{},
		aliases:  map[int64]Event{},
		paused:   map[int32]Event{},
	}
}

func (f *inForce) add(e *Event) {
	f.totals.Events++
	f.apply(e)
	f.totals.PeakReserved = max(f.totals.PeakReserved, f.totals.Reserved)
}

func (f *inForce) apply(e *Event) {
	switch e.Kind {
	case KindArena:
		f.arenas[e.Arena] = *e
	case KindPoolRelease:
		delete(f.arenas, e.Arena)
		delete(f.ranges, e.Arena)
	case KindPause, KindResume:
		f.pause(e)
	case KindAlloc, KindRestore:
		f.alloc(e)
	case KindFree:
		f.free(e)
	case KindFreeDone:
		f.drop(e)
	case KindStreamUse, KindLabel:
		if i, ok := f.chunks(e.Arena)[e.Addr]; ok {
			f.slots[i].use(e)
		}
	case KindMap:
		f.mapRange(e)
	case KindUnmap:
		f.unmapRange(e.Addr, e.Provided)
		if p, ok := f.paused[e.Arena]; ok {
			p.Requested -= e.Provided
			f.paused[e.Arena] = p
			f.totals.Reserved += e.Provided // it had left with the pause
		}
	case KindAlias:
		f.ranges[e.Arena] = true
		f.aliases[e.Addr] = *e
	case KindUnalias:
		maps.DeleteFunc(f.aliases, func(addr int64, _ Event) bool { return addr >= e.Addr && addr-e.Addr < e.Provided })
	case KindPhaseBegin:
		f.phases[e.Thread] = append(f.phases[e.Thread], *e)
	case KindPhaseEnd:
		f.endPhase(e)
	case KindExternalAlloc:
		f.external[e.Addr] = *e
	case KindExternalFree:
		delete(f.external, e.Addr)
	case KindStack, KindOverhead:
		f.lasting = append(f.lasting, *e)
	case KindStatistics:
		f.sums[e.Device] = *e
	case KindKVCache, KindKVReserve, KindKVAppend, KindKVShare, KindKVFree:
		f.kv.apply(e)
	case KindOOM:
		f.totals.OOMs++
	}
}

// pause takes a pause or a resume. One that moved nothing failed.
func (f *inForce) pause(e *Event) {
	before, paused := f.paused[e.Arena]
	switch {
	case e.Requested == 0:
	case e.Kind == KindPause && !paused:
		f.paused[e.Arena] = *e
		f.totals.Reserved -= e.Requested
	case e.Kind == KindResume && paused:
		delete(f.paused, e.Arena)
		f.totals.Reserved += before.Requested
	}
}

// chunks are those of an arena, among others.
func (f *inForce) chunks(arena int32) map[int64]int32 {
	if len(f.ranges) > 0 && f.ranges[arena] {
		return f.inRanges
	}
	return f.blocks
}

// inUse are the slots of all chunks.
func (f *inForce) inUse() iter.Seq[int32] {
	return func(yield func(int32) bool) {
		for _, chunks := range []map[int64]int32{f.blocks, f.inRanges} {
			for _, i := range chunks {
				if !yield(i) {
					return
				}
			}
		}
	}
}

func (f *inForce) alloc(e *Event) {
	f.drop(e) // a damaged trace may hand out an address twice; the later one counts
	var i int32
	if n := len(f.vacant); n > 0 {
		i, f.vacant = f.vacant[n-1], f.vacant[:n-1]
		f.slots[i] = block{alloc: *e, uses: f.slots[i].uses[:0]}
	} else {
		i = int32(len(f.slots))
		f.slots = append(f.slots, block{alloc: *e})
	}
	f.chunks(e.Arena)[e.Addr] = i
	f.totals.Requested += e.Requested
	f.totals.Provided += e.Provided
}

// use takes a stream_use or label. Some blocks get the same one in every iteration.
func (b *block) use(e *Event) {
	same := func(u Event) bool { return u.Kind == e.Kind && (e.Kind == KindLabel || u.Stream == e.Stream) }
	if i := slices.IndexFunc(b.uses, same); i >= 0 {
		b.uses[i] = *e
		return
	}
	b.uses = append(b.uses, *e)
}

func (f *inForce) free(e *Event) {
	i, ok := f.chunks(e.Arena)[e.Addr]
	if !ok || f.slots[i].pending {
		return
	}
	b := &f.slots[i]
	if slices.ContainsFunc(b.uses, func(u Event) bool { return u.Kind == KindStreamUse && u.Stream != b.alloc.Stream }) {
		b.pending, b.free = true, *e
		f.totals.Requested -= b.alloc.Requested
		f.totals.Provided -= b.alloc.Provided
		return
	}
	f.drop(e)
}

func (f *inForce) drop(e *Event) {
	chunks := f.chunks(e.Arena)
	i, ok := chunks[e.Addr]
	if !ok {
		return
	}
	if b := &f.slots[i]; !b.pending {
		f.totals.Requested -= b.alloc.Requested
		f.totals.Provided -= b.alloc.Provided
	}
	delete(chunks, e.Addr)
	f.vacant = append(f.vacant, i)
}

// firstEndingAfter is the first mapped range that ends behind addr.
func (f *inForce) firstEndingAfter(addr int64) int {
	i, _ := slices.BinarySearchFunc(f.mapped, addr, func(m Event, addr int64) int {
		if m.Addr+m.Provided <= addr {
			return -1
		}
		return 1
	})
	return i
}

func (f *inForce) mapRange(e *Event) {
	if e.Provided <= 0 {
		return
	}
	f.unmapRange(e.Addr, e.Provided)
	f.mapped = slices.Insert(f.mapped, f.firstEndingAfter(e.Addr), *e)
	f.totals.Reserved += e.Provided
}

func (f *inForce) unmapRange(addr, bytes int64) {
	if bytes <= 0 {
		return
	}
	end := addr + bytes
	first := f.firstEndingAfter(addr)
	last := first
	var rest []Event
	for ; last < len(f.mapped) && f.mapped[last].Addr < end; last++ {
		m := f.mapped[last]
		f.totals.Reserved -= m.Provided
		if m.Addr < addr {
			left := m
			left.Provided = addr - m.Addr
			rest = append(rest, left)
			f.totals.Reserved += left.Provided
		}
		if mEnd := m.Addr + m.Provided; mEnd > end {
			right := m
			right.Addr, right.Provided = end, mEnd-end
			rest = append(rest, right)
			f.totals.Reserved += right.Provided
		}
	}
	f.mapped = slices.Replace(f.mapped, first, last, rest...)
}

// endPhase closes the innermost open phase of the thread with the same name.
func (f *inForce) endPhase(e *Event) {
	open := f.phases[e.Thread]
	for i := len(open) - 1; i >= 0; i-- {
		if open[i].Context == e.Context {
			f.phases[e.Thread] = slices.Delete(open, i, i+1)
			return
		}
	}
}

// rows are the events in force, in order of seq.
func (f *inForce) rows() []Event {
	var rows []Event
	for _, e := range f.arenas {
		rows = append(rows, e)
	}
	rows = append(rows, f.lasting...)
	for _, e := range f.sums {
		rows = append(rows, e)
	}
	for _, e := range f.paused {
		rows = append(rows, e)
	}
	rows = append(rows, f.mapped...)
	for _, e := range f.aliases {
		rows = append(rows, e)
	}
	for i := range f.inUse() {
		b := &f.slots[i]
		rows = append(rows, b.alloc)
		rows = append(rows, b.uses...)
		if b.pending {
			rows = append(rows, b.free)
		}
	}
	for _, open := range f.phases {
		rows = append(rows, open...)
	}
	for _, e := range f.external {
		rows = append(rows, e)
	}
	rows = append(rows, f.kv.rows()...)
	slices.SortStableFunc(rows, func(a, b Event) int {
		if a.Kind >= KindKVReserve && a.Kind <= KindKVCache && a.Seq == b.Seq {
			return 0 // of one sequence, in the order that they need
		}
		return cmp.Or(cmp.Compare(a.Seq, b.Seq), cmp.Compare(a.Addr, b.Addr))
	})
	return rows
}
