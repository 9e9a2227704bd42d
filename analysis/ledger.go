package analysis

import "fmt"

// A segment is a stretch of mapped addresses that is of one kind. The segments of an
// arena tile its mapped ranges and form a list in the order of addresses.
//
// This is the allocator's view of chunks with one thing added: free memory is divided into
// what was handed out since it was mapped (touched) and what never was (untouched), so that
// merging chunks does not lose which bytes were touched.
// An alloc starts where a free chunk starts in every allocator that takes the low part
// of a chunk, which makes the table lookup enough; others cost a search.
type segment struct {
	addr, size int64
	requested  int64 // live, pending
	seq        int64 // live, pending: of the alloc; untouched: of the map
	freed      int64 // pending: seq of the free
	stream     int64 // live, pending: the requester's
	prev, next int32 // neighbours in the arena, none at the ends; next links vacant slots
	arena      int32 // index into analyzer.arenas
	context    int32
	label      int32 // live, pending: context of the last label event; 0 for none
	visit      int32 // live, pending: of the phase that the alloc was in; 0 for none
	phase      uint8 // live, pending: the number of that phase
	kind       segmentKind
	region     bool // starts a region that does not coalesce with what is before it
	shared     bool // live: used by another stream, so its free will be pending
	within     bool // pending: the visit was on when it was freed
}

type segmentKind uint8

const (
	segmentLive segmentKind = iota
	segmentPending
	segmentTouched
	segmentUntouched
)

func (s *segment) end() int64 { return s.addr + s.size }
func (s *segment) free() bool { return s.kind >= segmentTouched }

// ledger holds the segments of all arenas of a process.
type ledger struct {
	segments []segment
	nodes    []freeNode // of the free segments, by the same index; see freechunks.go
	vacant   int32
	table    addressTable // of all segments, by start
}

func newLedger() ledger {
	return ledger{vacant: none, table: newAddressTable()}
}

// insertBefore puts a segment into its arena's list in front of next (none: at the end).
func (l *ledger) insertBefore(ar *arena, next int32, s segment) int32 {
	i := l.vacant
	if i != none {
		l.vacant = l.segments[i].next
	} else {
		i = int32(len(l.segments))
		l.segments = append(l.segments, segment{})
	}
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
	l.segments[i] = s
	l.table.insert(s.addr, i)
	ar.segments++
	return i
}

// drop takes a segment out.
func (l *ledger) drop(ar *arena, i int32) {
	s := &l.segments[i]
	l.table.remove(s.addr)
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
	s.next, l.vacant = l.vacant, i
}

// splitAt cuts a free segment; addr lies inside it. It returns the upper part.
func (l *ledger) splitAt(ar *arena, i int32, addr int64) int32 {
	s := &l.segments[i]
	upper := segment{addr: addr, size: s.end() - addr, seq: s.seq, arena: s.arena, kind: s.kind}
	s.size = addr - s.addr
	at := l.insertBefore(ar, s.next, upper)
	l.cutFree(ar, i, at)
	return at
}

// at returns the free segment that starts at addr, after cutting one that only contains
// it. The error says what is there instead.
func (l *ledger) at(ar *arena, addr int64) (int32, error) {
	i := l.table.find(addr)
	if i == none {
		if i = l.containing(ar, addr); i != none && l.segments[i].free() {
			return l.splitAt(ar, i, addr), nil
		}
	}
	if i == none {
		return none, fmt.Errorf("%#x is not in mapped memory of the arena", addr)
	}
	s := &l.segments[i]
	if s.arena != ar.index {
		return none, fmt.Errorf("%#x is mapped for another arena", addr)
	}
	if !s.free() {
		return none, l.occupied(i)
	}
	return i, nil
}

// containing is the segment that has addr, or none.
func (l *ledger) containing(ar *arena, addr int64) int32 {
	mapped, ok := ar.mapped.after(addr)
	if !ok || mapped.from > addr {
		return none
	}
	i := ar.waypoints.below(addr, func(start int64) int32 {
		if i := l.table.find(start); i != none && l.segments[i].arena == ar.index {
			return i
		}
		return none
	})
	if i == none || l.segments[i].addr < mapped.from {
		i = l.table.find(mapped.from)
	}
	for steps := 1; l.segments[i].end() <= addr; steps++ {
		i = l.segments[i].next
		if steps%waypointSteps == 0 {
			ar.waypoints.note(l.segments[i].addr, ar.segments)
		}
	}
	return i
}

// following returns the free segment that starts where i ends.
func (l *ledger) following(i int32) (int32, error) {
	s := &l.segments[i]
	next := s.next
	if next == none || l.segments[next].addr != s.end() {
		return none, fmt.Errorf("mapped memory of the arena ends at %#x", s.end())
	}
	if !l.segments[next].free() {
		return none, l.occupied(next)
	}
	return next, nil
}

func (l *ledger) occupied(i int32) error {
	s := &l.segments[i]
	state := "live"
	if s.kind == segmentPending {
		state = "pending"
	}
	return fmt.Errorf("%#x to %#x is a %s chunk, handed out by seq %d", s.addr, s.end(), state, s.seq)
}

// occupy makes [addr, addr+size) one segment, live from now on, and returns it with the
// free bytes of it that had never been handed out and those that had.
func (l *ledger) occupy(ar *arena, addr, size int64) (i int32, untouched, touched int64, err error) {
	if i, err = l.at(ar, addr); err != nil {
		return none, 0, 0, err
	}
	end := addr + size
	for piece := i; ; {
		if l.segments[piece].end() > end {
			l.splitAt(ar, piece, end)
		}
		s := &l.segments[piece]
		if s.kind == segmentUntouched {
			untouched += s.size
			ar.device.touch(ar.index, addressRange{s.addr, s.end()}, s.seq)
		} else {
			touched += s.size
		}
		l.removeFree(ar, piece)
		if piece != i {
			l.absorb(ar, i, piece)
		}
		if l.segments[i].end() == end {
			break
		}
		if piece, err = l.following(i); err != nil {
			return none, 0, 0, err
		}
	}
	l.segments[i].kind = segmentLive
	return i, untouched, touched, nil
}

// absorb gives the bytes of next, which lies right behind i, to i.
func (l *ledger) absorb(ar *arena, i, next int32) {
	if l.segments[next].region {
		ar.beforeMapping()
		ar.mapped.joinAt(l.segments[next].addr)
	}
	l.segments[i].size += l.segments[next].size
	l.drop(ar, next)
}

// vacate makes a segment free and merges it with the touched segments beside it, within its region.
func (l *ledger) vacate(ar *arena, i int32) {
	s := &l.segments[i]
	s.kind, s.shared, s.within = segmentTouched, false, false
	if next := s.next; next != none {
		n := &l.segments[next]
		if n.kind == segmentTouched && !n.region && n.addr == s.end() {
			l.removeFree(ar, next)
			s.size += n.size
			l.drop(ar, next)
		}
	}
	if prev := s.prev; prev != none && !s.region {
		p := &l.segments[prev]
		if p.kind == segmentTouched && p.end() == s.addr {
			l.removeFree(ar, prev)
			p.size += s.size
			l.drop(ar, i)
			i = prev
		}
	}
	l.addFree(ar, i)
}

// mapRange makes r untouched memory, which may start a region; nothing of it is mapped. Mapped ranges end at gaps and
// where regions start, so that every one starts with a segment.
func (l *ledger) mapRange(ar *arena, r addressRange, seq int64, region bool) {
	next, joins := none, false
	if above, ok := ar.mapped.after(r.from); ok {
		next = l.table.find(above.from)
		joins = !l.segments[next].region
	}
	i := l.insertBefore(ar, next, segment{
		addr: r.from, size: r.bytes(), seq: seq, arena: ar.index, kind: segmentUntouched, region: region,
	})
	ar.mapped.add(r, !region, joins)
	l.addFree(ar, i)
}

// unmapRange takes r, all of it mapped and free, out. It returns how many bytes of it were
// untouched and how many touched.
func (l *ledger) unmapRange(ar *arena, r addressRange) (untouched, touched int64, err error) {
	i, err := l.at(ar, r.from)
	if err != nil {
		return 0, 0, err
	}
	for {
		if l.segments[i].end() > r.to {
			l.splitAt(ar, i, r.to)
		}
		s := &l.segments[i]
		if s.kind == segmentUntouched {
			untouched += s.size
			ar.device.touch(ar.index, addressRange{s.addr, s.end()}, s.seq)
		} else {
			touched += s.size
		}
		l.removeFree(ar, i)
		if s.end() == r.to {
			l.drop(ar, i)
			ar.mapped.remove(r)
			return untouched, touched, nil
		}
		next, err := l.following(i)
		if err != nil {
			return 0, 0, err
		}
		l.drop(ar, i)
		i = next
	}
}
