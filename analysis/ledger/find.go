package ledger

import "fmt"

// find is the segment of an arena that has addr, or one of another arena that starts there, or none.
func (l *Ledger) find(ar *Arena, addr int64) int32 {
	if i := l.table.find(addr); i != none {
		return i
	}
	return l.containing(ar, addr)
}

// freeAt returns the free segment of an arena that has addr. The error says what is there instead.
func (l *Ledger) freeAt(ar *Arena, addr int64) (int32, error) {
	i := l.find(ar, addr)
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
	i := l.newestBelow(ar, addr)
	for steps := 0; steps < waypointSteps && i != none && l.segments[i].Addr <= addr; steps++ {
		if addr < l.segments[i].End() {
			return i
		}
		i = l.segments[i].next
	}
	mapped, ok := ar.mapped.After(addr)
	if !ok || mapped.From > addr {
		return none
	}
	i = l.waypointBelow(ar, addr)
	if i == none || l.segments[i].Addr < mapped.From {
		i = l.table.find(mapped.From)
	}
	for steps := 1; l.segments[i].End() <= addr; steps++ {
		i = l.segments[i].next
		if steps%waypointSteps == 0 {
			l.noteWaypoint(ar, i)
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
