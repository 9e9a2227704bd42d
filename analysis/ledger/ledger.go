package ledger

import "fmt"

// Segment is a stretch of mapped addresses that is of one kind. The segments of an
// arena tile its mapped ranges and form a list in the order of addresses.
//
// This is the allocator's view of chunks with one thing added: free memory is divided into
// what was handed out since it was mapped (touched) and what never was (untouched), so that
// merging chunks does not lose which bytes were touched.
// An alloc starts where a free chunk starts in every allocator that takes the low part
// of a chunk, which makes the table lookup enough; others cost a search.
//
// What a walk along the list reads comes first: 32 bytes, most often on one line of the cache.
type Segment struct {
	Addr, Size int64
	prev, next int32 // neighbours in the arena, none at the ends; next links vacant slots
	arena      int32 // index into Ledger.Arenas
	Kind       SegmentKind
	Region     bool // starts a region that does not coalesce with what is before it
	shared     bool // live: used by another stream, so its free will be pending
	Within     bool // pending: the visit was open when it was freed

	Requested int64 // live, pending
	Seq       int64 // live, pending: of the alloc; untouched: of the map
	Freed     int64 // pending: seq of the free
	shrunk    int64 // live, pending: seq of its shrink; 0 for none
	lost      int64 // bytes that it lost by that
	stream    int64 // live, pending: that of the request
	Context   int32
	Label     int32 // live, pending: context of the last label event; 0 for none
	Visit     int32 // live, pending: of the phase that the alloc was in; 0 for none
	Phase     uint8 // live, pending: the number of that phase
}

// SegmentKind is the state of the bytes of a segment.
type SegmentKind uint8

const (
	LiveSegment SegmentKind = iota
	PendingSegment
	TouchedSegment
	UntouchedSegment
)

// End is the address behind the segment.
func (s *Segment) End() int64 { return s.Addr + s.Size }

// Shrunk is the seq of the shrink of a live or pending block, and the bytes that it lost; 0 for none.
func (s *Segment) Shrunk() (seq, lost int64) { return s.shrunk, s.lost }

// at is the block as it was after the event seq.
func (s *Segment) at(seq int64) Block {
	b := s.Block()
	if seq < s.shrunk {
		b.Size += s.lost
	}
	return b
}

// Free says whether the segment is free memory.
func (s *Segment) Free() bool { return s.Kind >= TouchedSegment }

// Ledger holds the segments of all arenas of a process.
type Ledger struct {
	segments []Segment
	nodes    []freeNode // of the free segments, by the same index; see freechunks.go
	vacant   int32
	table    addressTable // of all segments, by start

	Arenas   []*Arena // in order of creation
	byID     map[int32]*Arena
	last     *Arena    // the arena of the event before
	mappings RangeTree // what is mapped in all arenas
}

// New is a ledger without arenas.
func New() *Ledger {
	return &Ledger{vacant: none, table: newAddressTable(), byID: map[int32]*Arena{}}
}

// Block is the block of a live or pending segment. Pending is left to the caller, who knows the moment.
func (s *Segment) Block() Block {
	return Block{
		Addr: s.Addr, Size: s.Size, Requested: s.Requested, Seq: s.Seq, Arena: s.arena, Context: s.Context,
		Label: s.Label, Phase: s.Phase, Within: s.Within,
	}
}

// Each calls f with the segments of an arena in the order of addresses.
func (l *Ledger) Each(ar *Arena, f func(*Segment)) {
	for i := ar.head; i != none; i = l.segments[i].next {
		f(&l.segments[i])
	}
}

// insertBefore puts a free segment for r into its arena's list in front of next (none: at the end).
// Seq is that of the map for untouched memory.
func (l *Ledger) insertBefore(ar *Arena, next int32, r Range, kind SegmentKind, seq int64) int32 {
	i := l.vacant
	if i == none {
		i = int32(len(l.segments))
		l.segments = append(l.segments, Segment{})
	} else {
		l.vacant = l.segments[i].next
	}
	s := &l.segments[i]
	*s = Segment{}
	s.Addr, s.Size, s.Seq, s.arena, s.Kind = r.From, r.Bytes(), seq, ar.Index, kind
	s.next = next
	if next == none {
		s.prev, ar.tail = ar.tail, i
	} else {
		s.prev, l.segments[next].prev = l.segments[next].prev, i
	}
	if s.prev == none {
		ar.head = i
	} else {
		l.segments[s.prev].next = i
	}
	l.table.insert(r.From, i)
	ar.segments++
	return i
}

// drop takes a segment out.
func (l *Ledger) drop(ar *Arena, i int32) {
	s := &l.segments[i]
	l.table.remove(s.Addr)
	ar.segments--
	if s.prev == none {
		ar.head = s.next
	} else {
		l.segments[s.prev].next = s.next
	}
	if s.next == none {
		ar.tail = s.prev
	} else {
		l.segments[s.next].prev = s.prev
	}
	s.Size = 0 // it has no address any more: see containing
	s.next, l.vacant = l.vacant, i
}

// splitAt cuts a free segment; addr lies inside it. It returns the upper part.
func (l *Ledger) splitAt(ar *Arena, i int32, addr int64) int32 {
	at := l.cutSegment(ar, i, addr)
	l.cutFree(ar, i, at)
	return at
}

// cutSegment is splitAt without the chunks.
func (l *Ledger) cutSegment(ar *Arena, i int32, addr int64) int32 {
	s := &l.segments[i]
	upper := Range{addr, s.End()}
	s.Size = addr - s.Addr
	return l.insertBefore(ar, s.next, upper, s.Kind, s.Seq)
}

// find is the segment of an arena that has addr, or one of another arena that starts there, or none.
func (l *Ledger) find(ar *Arena, addr int64) int32 {
	if i := l.table.find(addr); i != none {
		return i
	}
	return l.containing(ar, addr)
}

// at returns the free segment that starts at addr, after cutting one that only contains
// it. The error says what is there instead.
func (l *Ledger) at(ar *Arena, addr int64) (int32, error) {
	return l.startAt(ar, l.find(ar, addr), addr)
}

// startAt is at for the segment that find returned.
func (l *Ledger) startAt(ar *Arena, i int32, addr int64) (int32, error) {
	if i != none && l.segments[i].Addr != addr && l.segments[i].Free() {
		return l.splitAt(ar, i, addr), nil
	}
	if i == none {
		return none, fmt.Errorf("%#x is not in mapped memory of the arena", addr)
	}
	s := &l.segments[i]
	if s.arena != ar.Index {
		return none, fmt.Errorf("%#x is mapped for another arena", addr)
	}
	if !s.Free() {
		return none, l.occupied(i)
	}
	return i, nil
}

// containing is the segment that has addr, or none.
func (l *Ledger) containing(ar *Arena, addr int64) int32 {
	if i := ar.recent; i != none {
		if s := &l.segments[i]; s.Addr <= addr && addr < s.End() && s.arena == ar.Index {
			return i
		}
	}
	mapped, ok := ar.mapped.After(addr)
	if !ok || mapped.From > addr {
		return none
	}
	i := ar.waypoints.below(addr, func(start int64) int32 {
		if i := l.table.find(start); i != none && l.segments[i].arena == ar.Index {
			return i
		}
		return none
	})
	if i == none || l.segments[i].Addr < mapped.From {
		i = l.table.find(mapped.From)
	}
	for steps := 1; l.segments[i].End() <= addr; steps++ {
		i = l.segments[i].next
		if steps%waypointSteps == 0 {
			ar.waypoints.note(l.segments[i].Addr, ar.segments)
		}
	}
	return i
}

// following returns the free segment that starts where i ends.
func (l *Ledger) following(i int32) (int32, error) {
	s := &l.segments[i]
	next := s.next
	if next == none || l.segments[next].Addr != s.End() {
		return none, fmt.Errorf("mapped memory of the arena ends at %#x", s.End())
	}
	if !l.segments[next].Free() {
		return none, l.occupied(next)
	}
	return next, nil
}

func (l *Ledger) occupied(i int32) error {
	s := &l.segments[i]
	state := "live"
	if s.Kind == PendingSegment {
		state = "pending"
	}
	return fmt.Errorf("%#x to %#x is a %s chunk, handed out by seq %d", s.Addr, s.End(), state, s.Seq)
}

// occupy makes [addr, addr+size) one segment, live from now on, and returns it with the
// free bytes of it that had never been handed out and those that had.
func (l *Ledger) occupy(ar *Arena, addr, size int64) (i int32, untouched, touched int64, err error) {
	end := addr + size
	i = l.find(ar, addr)
	if i != none {
		if s := &l.segments[i]; s.arena == ar.Index && s.Free() && end <= s.End() {
			if !ar.indexed {
				i, untouched, touched = l.occupyPart(ar, i, Range{addr, end})
				return i, untouched, touched, nil
			}
			if l.single(i) {
				i, untouched, touched = l.occupyIndexed(ar, i, Range{addr, end})
				return i, untouched, touched, nil
			}
		}
	}
	if i, err = l.startAt(ar, i, addr); err != nil {
		return none, 0, 0, err
	}
	chunks := 1
	for piece := i; ; {
		if l.segments[piece].End() > end {
			l.takeFront(ar, piece, end)
		} else {
			l.removeFree(ar, piece)
		}
		s := &l.segments[piece]
		never, before := ar.spend(s, Range{s.Addr, s.End()})
		untouched, touched = untouched+never, touched+before
		if piece != i {
			if l.segments[piece].Region {
				chunks++
			}
			l.absorb(ar, i, piece)
		}
		if l.segments[i].End() == end {
			break
		}
		if piece, err = l.following(i); err != nil {
			return none, 0, 0, err
		}
	}
	l.segments[i].Kind = LiveSegment
	l.occupiedOf(ar, i, touched, chunks)
	return i, untouched, touched, nil
}

// occupiedOf notes that segment i was occupied, which was a part of so many chunks; touched
// bytes of it were handed out before.
func (l *Ledger) occupiedOf(ar *Arena, i int32, touched int64, chunks int) {
	if ar.indexed {
		return
	}
	rest := l.freeBehind(i)
	if l.freeBefore(i) != none {
		chunks--
	}
	if rest != none {
		chunks--
	}
	ar.largest.chunks -= chunks
	s := &l.segments[i]
	l.taken(ar, Range{s.Addr, s.End()}, touched, rest)
}

// occupyPart occupies a part of the free segment i of an arena without an index.
func (l *Ledger) occupyPart(ar *Arena, i int32, r Range) (live int32, untouched, touched int64) {
	untouched, touched = ar.spend(&l.segments[i], r)
	m := &ar.largest
	m.chunks--
	live = i
	if r.From > l.segments[i].Addr { // what is below stays
		live = l.cutSegment(ar, i, r.From)
		m.chunks++
	} else if l.freeBefore(i) != none {
		m.chunks++
	}
	var rest int32
	if r.To < l.segments[live].End() {
		rest = l.cutSegment(ar, live, r.To)
	} else {
		rest = l.freeBehind(live)
	}
	if rest != none {
		m.chunks++
	}
	l.segments[live].Kind = LiveSegment
	l.taken(ar, r, touched, rest)
	return live, untouched, touched
}

// occupyIndexed occupies a part of the free segment i, which is all of its chunk, of an arena with an
// index.
func (l *Ledger) occupyIndexed(ar *Arena, i int32, r Range) (live int32, untouched, touched int64) {
	untouched, touched = ar.spend(&l.segments[i], r)
	entry := l.nodes[i].entry
	live = i
	if r.From > l.segments[i].Addr { // what is below stays
		live = l.cutSegment(ar, i, r.From)
		l.becomes(ar, i, entry)
		entry = none
	}
	if r.To < l.segments[live].End() {
		upper := l.cutSegment(ar, live, r.To)
		l.becomes(ar, upper, entry)
		entry = none
	}
	if entry != none {
		l.removeChunk(ar, entry)
	}
	l.segments[live].Kind = LiveSegment
	return live, untouched, touched
}

// spend notes that r of a free segment is handed out or unmapped, and returns its bytes: as
// untouched, or as touched.
func (ar *Arena) spend(s *Segment, r Range) (untouched, touched int64) {
	if s.Kind == UntouchedSegment {
		ar.Device.touch(ar.Index, r, s.Seq)
		return r.Bytes(), 0
	}
	return 0, r.Bytes()
}

// absorb gives the bytes of next, which lies right behind i, to i.
func (l *Ledger) absorb(ar *Arena, i, next int32) {
	if l.segments[next].Region {
		ar.beforeMapping()
		ar.mapped.JoinAt(l.segments[next].Addr)
		if keeper := ar.Device.Keeper; keeper != nil {
			keeper.Joined(ar.Index, l.segments[next].Addr)
		}
	}
	l.segments[i].Size += l.segments[next].Size
	l.drop(ar, next)
}

// vacate makes a segment free and merges it with the touched segments beside it, within its region.
func (l *Ledger) vacate(ar *Arena, i int32) {
	s := &l.segments[i]
	s.Kind, s.shared, s.Within = TouchedSegment, false, false
	s.shrunk, s.lost = 0, 0
	prev, next := l.freeBefore(i), l.freeBehind(i)
	if !ar.indexed {
		l.merge(ar, i, prev, next)
		return
	}
	if next != none && l.segments[next].Kind == TouchedSegment {
		s.Size += l.segments[next].Size
		if prev == none {
			l.replaceFree(ar, next, i)
			l.drop(ar, next)
			return
		}
		l.removeFree(ar, next)
		l.drop(ar, next)
		next = l.freeBehind(i)
	}
	if prev != none && l.segments[prev].Kind == TouchedSegment {
		if next == none {
			l.segments[prev].Size += s.Size
			l.drop(ar, i)
			l.grewFree(ar, prev)
			return
		}
		l.removeFree(ar, prev)
		l.segments[prev].Size += s.Size
		l.drop(ar, i)
		i = prev
	}
	l.addFree(ar, i)
}

// merge merges segment i, which became free, with the touched ones of prev and next, which touch it
// or are none, in an arena without an index.
func (l *Ledger) merge(ar *Arena, i, prev, next int32) {
	m := &ar.largest
	m.chunks++
	s := &l.segments[i]
	if prev == none && next == none { // most chunks are one segment
		ar.recent = i
		m.freed(freeExtent{s.Addr, s.Size, s.Size}, ar.segments)
		return
	}
	if next != none {
		m.chunks--
		if n := &l.segments[next]; n.Kind == TouchedSegment {
			s.Size += n.Size
			l.drop(ar, next)
		}
	}
	if prev != none {
		m.chunks--
		if p := &l.segments[prev]; p.Kind == TouchedSegment {
			p.Size += s.Size
			l.drop(ar, i)
			i = prev
		}
	}
	ar.recent = i
	l.freed(ar, i)
}

// freeBefore is the free segment of the region that ends where i starts, or none.
func (l *Ledger) freeBefore(i int32) int32 {
	s := &l.segments[i]
	if p := s.prev; p != none && !s.Region && l.segments[p].Free() && l.segments[p].End() == s.Addr {
		return p
	}
	return none
}

// freeBehind is the free segment of the region that starts where i ends, or none.
func (l *Ledger) freeBehind(i int32) int32 {
	s := &l.segments[i]
	if n := s.next; n != none && l.segments[n].Free() && !l.segments[n].Region && s.End() == l.segments[n].Addr {
		return n
	}
	return none
}

// mapRange makes r untouched memory, which may start a region; nothing of it is mapped. Mapped ranges end at gaps and
// where regions start, so that every one starts with a segment.
func (l *Ledger) mapRange(ar *Arena, r Range, seq int64, region bool) {
	next, joins := none, false
	if above, ok := ar.mapped.After(r.From); ok {
		next = l.table.find(above.From)
		joins = !l.segments[next].Region
	}
	i := l.insertBefore(ar, next, r, UntouchedSegment, seq)
	l.segments[i].Region = region
	ar.mapped.Add(r, !region, joins)
	if ar.indexed {
		l.addFree(ar, i)
		return
	}
	ar.largest.chunks++
	if l.freeBefore(i) != none {
		ar.largest.chunks--
	}
	if l.freeBehind(i) != none {
		ar.largest.chunks--
	}
	l.freed(ar, i)
}

// unmapRange takes r, all of it mapped and free, out. It returns how many bytes of it were
// untouched and how many touched.
func (l *Ledger) unmapRange(ar *Arena, r Range) (untouched, touched int64, err error) {
	i, err := l.at(ar, r.From)
	if err != nil {
		return 0, 0, err
	}
	chunks := 1 // that r takes something from
	if l.freeBefore(i) != none {
		chunks--
	}
	for {
		if l.segments[i].End() > r.To {
			l.splitAt(ar, i, r.To)
		}
		s := &l.segments[i]
		never, before := ar.spend(s, Range{s.Addr, s.End()})
		untouched, touched = untouched+never, touched+before
		l.removeFree(ar, i)
		if s.End() == r.To {
			rest := l.freeBehind(i)
			if rest != none {
				chunks--
			}
			l.drop(ar, i)
			ar.mapped.Remove(r)
			if !ar.indexed {
				ar.largest.chunks -= chunks
				l.taken(ar, r, touched, rest)
			}
			return untouched, touched, nil
		}
		next, err := l.following(i)
		if err != nil {
			return 0, 0, err
		}
		if l.segments[next].Region {
			chunks++
		}
		l.drop(ar, i)
		i = next
	}
}
