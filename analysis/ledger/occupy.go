package ledger

// occupy makes [addr, addr+size) one segment, live from now on, and returns it with the
// free bytes of it that had never been handed out and those that had.
func (l *Ledger) occupy(ar *Arena, addr, size int64) (i int32, untouched, touched int64, err error) {
	if i, err = l.freeAt(ar, addr); err != nil {
		return none, 0, 0, err
	}
	for addr+size > l.segments[i].End() { // it lies across the start of a region
		next, err := l.following(i)
		if err != nil {
			return none, 0, 0, err
		}
		l.absorb(ar, i, next)
	}
	i, untouched, touched = l.occupyPart(ar, i, Range{addr, addr + size})
	return i, untouched, touched, nil
}

// occupyPart occupies a part of the free segment i.
func (l *Ledger) occupyPart(ar *Arena, i int32, r Range) (live int32, untouched, touched int64) {
	s := &l.segments[i]
	below, above := s.Addr < r.From, r.To < s.End()
	if s.Kind == FreshSegment {
		untouched = ar.touch(r)
	}
	live, rest := i, none
	ar.chunks.count--
	if below {
		live = l.cutSegment(ar, i, r.From)
		ar.chunks.count++
	}
	if above {
		rest = l.cutSegment(ar, live, r.To)
		ar.chunks.count++
	}
	l.segments[live].Kind = LiveSegment
	if !below {
		i = none
	}
	l.taken(ar, r, r.Bytes()-untouched, i, rest)
	return live, untouched, r.Bytes() - untouched
}

// touch notes that r is not untouched any more, and returns how many bytes of it were.
func (ar *Arena) touch(r Range) (bytes int64) {
	if !ar.untouched.any(r) { // as in most events
		return 0
	}
	ar.untouched.take(r, func(part Range, seq int64) {
		ar.Device.touch(ar.Index, part, seq)
		bytes += part.Bytes()
	})
	return bytes
}

// vacate makes a segment free and merges it with the free ones beside it, within its region.
func (l *Ledger) vacate(ar *Arena, i int32) {
	s := &l.segments[i]
	s.Kind, s.shared, s.Born, s.Fate = FreeSegment, false, 0, 0
	s.shrunk, s.lost = 0, 0
	l.merge(ar, i, s.Size)
}

// merge merges segment i, which became free, with the free ones beside it, within its region; touched bytes of it were
// handed out before.
func (l *Ledger) merge(ar *Arena, i int32, touched int64) {
	s := &l.segments[i]
	ar.chunks.count++
	if next := l.freeBehind(i); next != none {
		s.Size, s.Kind = s.Size+l.segments[next].Size, max(s.Kind, l.segments[next].Kind)
		l.drop(ar, next)
		ar.chunks.count--
	}
	if prev := l.freeBefore(i); prev != none {
		p := &l.segments[prev]
		p.Size, p.Kind = p.Size+s.Size, max(p.Kind, s.Kind)
		l.drop(ar, i)
		ar.chunks.count--
		i = prev
	}
	ar.recent = i
	l.freed(ar, i, touched)
}

// absorb gives the bytes of the free segment next, where a region starts right behind i, to the free segment i.
func (l *Ledger) absorb(ar *Arena, i, next int32) {
	s, n := &l.segments[i], &l.segments[next]
	if n.Region {
		ar.mapped.JoinAt(n.Addr)
		if keeper := ar.Device.Keeper; keeper != nil {
			keeper.Joined(ar.Index, n.Addr)
		}
	}
	s.Size, s.Kind = s.Size+n.Size, max(s.Kind, n.Kind)
	l.drop(ar, next)
	ar.chunks.count--
	l.freed(ar, i, 0)
}
