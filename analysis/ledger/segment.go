package ledger

// Segment is a stretch of mapped addresses that is of one kind. The segments of an arena tile its mapped ranges and form
// a list in the order of addresses. A free segment is a whole free chunk; which bytes of it were handed out since they
// were mapped (touched) and which never were is kept apart, in the arena, so that merging chunks does not lose it.
//
// What a walk along the list reads comes first: 32 bytes, most often on one line of the cache.
type Segment struct {
	Addr, Size int64
	prev, next int32 // neighbours in the arena, none at the ends; next links vacant slots
	arena      int32 // index into Ledger.Arenas
	Kind       SegmentKind
	Region     bool  // starts a region that does not coalesce with what is before it
	shared     bool  // live: used by another stream, so its free will be pending
	Born       uint8 // live, pending: what had begun and ended when it was allocated; package attribution says it
	Fate       uint8 // pending: how its life ended, likewise

	Requested int64 // live, pending
	Seq       int64 // live, pending: of the alloc
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
	FreeSegment  // all of it was handed out since it was mapped
	FreshSegment // free, and some of it may never have been handed out
)

// End is the address behind the segment.
func (s *Segment) End() int64 { return s.Addr + s.Size }

// Shrunk is the seq of the shrink of a live or pending block, and the bytes that it lost; 0 for none.
func (s *Segment) Shrunk() (seq, lost int64) { return s.shrunk, s.lost }

// Free says whether the segment is free memory.
func (s *Segment) Free() bool { return s.Kind >= FreeSegment }

// Block is the block of a live or pending segment. Pending is left to the caller, who knows the moment.
func (s *Segment) Block() Block {
	return Block{
		Addr: s.Addr, Size: s.Size, Requested: s.Requested, Seq: s.Seq, Arena: s.arena, Context: s.Context,
		Label: s.Label, Phase: s.Phase, Born: s.Born, Fate: s.Fate,
	}
}

// insertBefore puts a segment for r into its arena's list in front of next (none: at the end).
func (l *Ledger) insertBefore(ar *Arena, next int32, r Range, kind SegmentKind) int32 {
	i := l.vacant
	if i == none {
		i = int32(len(l.segments))
		l.segments = append(l.segments, Segment{})
	} else {
		l.vacant = l.segments[i].next
	}
	s := &l.segments[i]
	s.Addr, s.Size, s.arena, s.Kind, s.Region = r.From, r.Bytes(), ar.Index, kind, false // all else is of blocks: see vacate
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
	*l.newest.of(r.From >> bucket) = i
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

// cutSegment cuts a segment; addr lies inside it. It returns the upper part.
func (l *Ledger) cutSegment(ar *Arena, i int32, addr int64) int32 {
	s := &l.segments[i]
	upper := Range{addr, s.End()}
	s.Size = addr - s.Addr
	return l.insertBefore(ar, s.next, upper, s.Kind)
}
