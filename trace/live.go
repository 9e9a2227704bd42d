package trace

import (
	"iter"
	"maps"
	"slices"
)

// Live is the memory of a process after the last event added: which chunks are live or pending free,
// and what its arenas have mapped or paused. The opening rows of parts, exports and replays under
// other policies follow it by this structure; package verify judges recordings and has its own.
//
// Live trusts its events: an event that does not fit the ones before changes as little as
// possible. A reader that needs events to add up checks them first (package analysis).
type Live struct {
	totals Totals

	blocks   map[int64]int32 // of each live or pending chunk: its address, and index in slots
	inRanges map[int64]int32 // likewise for arenas in ranges of graph memory: the chunks of a native allocator may lie at the same addresses
	ranges   map[int32]bool  // these arenas
	slots    []Block
	vacant   []int32         // slots without a chunk; the last is used next
	frees    map[int32]Event // of pending blocks, by slot

	mapped   mappings        // maps, those of paused arenas included
	reserve  mappings        // of them, what was never handed out since
	aliases  mappings        // what ranges of graph memory show of their store
	paused   map[int32]Event // the pause of each arena that has not resumed; requested is what a resume would map
	reserved map[int32]int64 // bytes by device: mapped and not paused
	others   map[int64]Event // allocations of other libraries, by address
	slotOnly Block           // of AddFrom
}

// Block is a chunk from its alloc to its free, or free_done if it is pending.
type Block struct {
	Slot    int32   // small and unique among the blocks that are live or pending; used again later
	Alloc   Event   // an alloc or a restore
	Uses    []Event // the last stream_use of each stream, the last label
	Pending bool
}

// Totals are sums over all devices of a process, after its last event. Sizes are in bytes.
type Totals struct {
	Events       int64
	Requested    int64 // T: requested by live allocations
	Provided     int64 // C: in their chunks
	Reserved     int64 // R: mapped by arenas that are not paused
	PeakReserved int64
	OOMs         int64
}

// Add adds the totals of another process. PeakReserved becomes the sum of both peaks.
func (t *Totals) Add(o Totals) {
	t.Events += o.Events
	t.Requested += o.Requested
	t.Provided += o.Provided
	t.Reserved += o.Reserved
	t.PeakReserved += o.PeakReserved
	t.OOMs += o.OOMs
}

// NewLive is the memory of a process before its first event.
func NewLive() *Live {
	return &Live{
		blocks: map[int64]int32{}, inRanges: map[int64]int32{}, ranges: map[int32]bool{},
		paused: map[int32]Event{}, reserved: map[int32]int64{}, others: map[int64]Event{}, frees: map[int32]Event{},
	}
}

// Totals are the sums over all devices.
func (l *Live) Totals() Totals { return l.totals }

// Outcome is what an event did to the block or the arena that it is about.
type Outcome uint8

const (
	Unchanged Outcome = iota // also if the block or arena of the event is not known
	Allocated
	Replaced // allocated where another block was live, which is forgotten: the trace is damaged
	Pended   // freed; another stream may still use it
	Freed
	Mapped   // Addr and Provided of the event are mapped, or show a store's memory
	Unmapped // they no longer are; of a paused arena, whose memory is not mapped, Unchanged
	Paused   // the arena's memory is unmapped; its blocks stay
	Resumed
)

// Add takes the next event. The block is the one that the event is about, nil if there is none or it is
// not known; it is valid until the next call.
func (l *Live) Add(e *Event) (Outcome, *Block) {
	l.totals.Events++
	outcome, block := l.change(e)
	l.totals.PeakReserved = max(l.totals.PeakReserved, l.totals.Reserved)
	return outcome, block
}

// AddFrom adds an event of a batch. Where the batch has the effect of the event, the block that it returns has a slot and nothing else.
func (l *Live) AddFrom(b *Batch, i int, e *Event) (Outcome, *Block) {
	if b.Effects == nil || b.Effects[i].Slot < 0 {
		return l.Add(e)
	}
	l.slotOnly.Slot = b.Effects[i].Slot
	return b.Effects[i].Outcome, &l.slotOnly
}

func (l *Live) change(e *Event) (Outcome, *Block) {
	switch e.Kind {
	case KindAlloc, KindRestore:
		return l.alloc(e)
	case KindFree:
		return l.free(e)
	case KindFreeDone:
		return l.drop(e.Arena, e.Addr)
	case KindStreamUse, KindLabel:
		if i, ok := l.chunks(e.Arena)[e.Addr]; ok {
			l.slots[i].use(e)
			return Unchanged, &l.slots[i]
		}
	case KindShrink:
		return Unchanged, l.shrink(e)
	case KindMap:
		l.unmap(e.Addr, e.Provided)
		if l.mapped.insert(e) {
			l.reserve.insert(e)
			l.addReserved(e.Device, e.Provided)
		}
		return Mapped, nil
	case KindUnmap:
		l.unmap(e.Addr, e.Provided)
		return l.unmapped(e), nil
	case KindAlias:
		l.ranges[e.Arena] = true
		l.aliases.cut(e.Addr, e.Provided, nil)
		l.aliases.insert(e)
		return Mapped, nil
	case KindUnalias:
		l.aliases.cut(e.Addr, e.Provided, nil)
		return l.unmapped(e), nil
	case KindPause, KindResume:
		return l.pause(e), nil
	case KindPoolRelease:
		l.release(e.Arena)
	case KindExternalAlloc:
		l.others[e.Addr] = *e
	case KindExternalFree:
		delete(l.others, e.Addr)
	case KindOOM:
		l.totals.OOMs++
	}
	return Unchanged, nil
}

// chunks are those of an arena, among others.
func (l *Live) chunks(arena int32) map[int64]int32 {
	if len(l.ranges) > 0 && l.ranges[arena] {
		return l.inRanges
	}
	return l.blocks
}

func (l *Live) alloc(e *Event) (Outcome, *Block) {
	l.reserve.cut(e.Addr, e.Provided, nil)
	outcome := Allocated
	if _, old := l.drop(e.Arena, e.Addr); old != nil {
		outcome = Replaced
	}
	var i int32
	if n := len(l.vacant); n > 0 {
		i, l.vacant = l.vacant[n-1], l.vacant[:n-1]
		l.slots[i] = Block{Slot: i, Alloc: *e, Uses: l.slots[i].Uses[:0]}
	} else {
		i = int32(len(l.slots))
		l.slots = append(l.slots, Block{Slot: i, Alloc: *e})
	}
	l.chunks(e.Arena)[e.Addr] = i
	l.totals.Requested += e.Requested
	l.totals.Provided += e.Provided
	return outcome, &l.slots[i]
}

// shrink takes the slack from a live block.
func (l *Live) shrink(e *Event) *Block {
	i, ok := l.chunks(e.Arena)[e.Addr]
	if !ok {
		return nil
	}
	b := &l.slots[i]
	if !b.Pending {
		l.totals.Provided += e.Provided - b.Alloc.Provided
	}
	b.Alloc.Provided = e.Provided
	return b
}

// use takes a stream_use or label. Some blocks get the same one in every iteration.
func (b *Block) use(e *Event) {
	same := func(u Event) bool { return u.Kind == e.Kind && (e.Kind == KindLabel || u.Stream == e.Stream) }
	if i := slices.IndexFunc(b.Uses, same); i >= 0 {
		b.Uses[i] = *e
		return
	}
	b.Uses = append(b.Uses, *e)
}

// shared says whether another stream than the block's own has used it, so that a free is not final.
func (b *Block) shared() bool {
	return slices.ContainsFunc(b.Uses, func(u Event) bool { return u.Kind == KindStreamUse && u.Stream != b.Alloc.Stream })
}

func (l *Live) free(e *Event) (Outcome, *Block) {
	i, ok := l.chunks(e.Arena)[e.Addr]
	if !ok {
		l.reserve.cut(e.Addr, e.Provided, nil) // Rows has such a free
		return Unchanged, nil
	}
	b := &l.slots[i]
	if b.Pending {
		return Unchanged, b
	}
	if !b.shared() {
		return l.drop(e.Arena, e.Addr)
	}
	b.Pending, l.frees[i] = true, *e
	l.totals.Requested -= b.Alloc.Requested
	l.totals.Provided -= b.Alloc.Provided
	return Pended, b
}

// drop forgets a block.
func (l *Live) drop(arena int32, addr int64) (Outcome, *Block) {
	chunks := l.chunks(arena)
	i, ok := chunks[addr]
	if !ok {
		return Unchanged, nil
	}
	b := &l.slots[i]
	if !b.Pending {
		l.totals.Requested -= b.Alloc.Requested
		l.totals.Provided -= b.Alloc.Provided
	} else {
		delete(l.frees, i)
	}
	delete(chunks, addr)
	l.vacant = append(l.vacant, i)
	return Freed, b
}

// addReserved adds to what a device has mapped.
func (l *Live) addReserved(device int32, bytes int64) {
	l.totals.Reserved += bytes
	l.reserved[device] += bytes
}

// unmap forgets what is mapped in a range. A paused arena's memory left at the pause; what is cut from
// it will not come back.
func (l *Live) unmap(addr, bytes int64) {
	l.reserve.cut(addr, bytes, nil)
	l.mapped.cut(addr, bytes, func(m *Event, bytes int64) {
		if p, paused := l.paused[m.Arena]; paused {
			p.Requested -= bytes
			l.paused[m.Arena] = p
			return
		}
		l.addReserved(m.Device, -bytes)
	})
}

// unmapped is the outcome of an unmap or unalias.
func (l *Live) unmapped(e *Event) Outcome {
	if l.IsPaused(e.Arena) {
		return Unchanged
	}
	return Unmapped
}

// pause takes a pause or a resume. One of 0 bytes failed, unless nothing was mapped: then there was nothing to unmap or map.
func (l *Live) pause(e *Event) Outcome {
	before, paused := l.paused[e.Arena]
	switch {
	case e.Kind == KindPause && !paused && (e.PausedBytes() > 0 || !l.mapped.any(e.Arena)):
		l.paused[e.Arena] = *e
		l.addReserved(e.Device, -e.PausedBytes())
		return Paused
	case e.Kind == KindResume && paused && (e.PausedBytes() > 0 || before.PausedBytes() == 0):
		delete(l.paused, e.Arena)
		l.addReserved(e.Device, before.PausedBytes())
		return Resumed
	}
	return Unchanged
}

// release ends an arena. An arena in a range of graph memory may still have blocks and aliases, which end with
// it; others have none.
func (l *Live) release(arena int32) {
	if !l.ranges[arena] {
		return
	}
	for _, b := range l.BlocksOf(arena) {
		l.drop(arena, b.Alloc.Addr)
	}
	l.aliases = slices.DeleteFunc(l.aliases, func(m Event) bool { return m.Arena == arena })
	delete(l.ranges, arena)
}

// Blocks are the live and pending blocks, in no order.
func (l *Live) Blocks() iter.Seq[*Block] {
	return func(yield func(*Block) bool) {
		for _, chunks := range []map[int64]int32{l.blocks, l.inRanges} {
			for _, i := range chunks {
				if !yield(&l.slots[i]) {
					return
				}
			}
		}
	}
}

// HandedOut are the parts of what is mapped that were handed out since: each is a free with the seq of its map.
func (l *Live) HandedOut() []Event {
	used := slices.Clone(l.mapped)
	for i := range l.reserve {
		used.cut(l.reserve[i].Addr, l.reserve[i].Provided, nil)
	}
	for i := range used {
		u := &used[i]
		u.Kind, u.Requested, u.Context = KindFree, 0, 0
	}
	return used
}

// Rows restate the memory, in no order: pauses, what is mapped, blocks with their uses and frees, and allocations of other
// libraries.
func (l *Live) Rows() []Event {
	rows := slices.Concat(l.mapped, l.aliases)
	for b := range l.Blocks() {
		rows = append(rows, b.Alloc)
		rows = append(rows, b.Uses...)
		if b.Pending {
			rows = append(rows, l.frees[b.Slot])
		}
	}
	rows = slices.AppendSeq(rows, maps.Values(l.paused))
	return slices.AppendSeq(rows, maps.Values(l.others))
}

// BlocksOf are the live and pending blocks of an arena, by address. It looks at all blocks.
func (l *Live) BlocksOf(arena int32) []*Block {
	var blocks []*Block
	for b := range l.Blocks() {
		if b.Alloc.Arena == arena {
			blocks = append(blocks, b)
		}
	}
	slices.SortFunc(blocks, func(a, b *Block) int { return compareAddresses(&a.Alloc, &b.Alloc) })
	return blocks
}

// Mapped are the maps and aliases of an arena, cut to what is left of them, by address. A paused arena
// has those that a resume would map.
func (l *Live) Mapped(arena int32) []Event {
	var mapped []Event
	for _, all := range []mappings{l.mapped, l.aliases} {
		for i := range all {
			if all[i].Arena == arena {
				mapped = append(mapped, all[i])
			}
		}
	}
	slices.SortFunc(mapped, func(a, b Event) int { return compareAddresses(&a, &b) })
	return mapped
}

// IsPaused says whether an arena is paused: nothing of it is mapped.
func (l *Live) IsPaused(arena int32) bool {
	_, paused := l.paused[arena]
	return paused
}

// ReservedOn is how many bytes the arenas of a device have mapped.
func (l *Live) ReservedOn(device int32) int64 { return l.reserved[device] }

// Other is the allocation of another library at an address.
func (l *Live) Other(addr int64) (alloc Event, ok bool) {
	alloc, ok = l.others[addr]
	return alloc, ok
}
