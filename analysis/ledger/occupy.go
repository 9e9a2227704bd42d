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
	below, above := r.From-s.Addr, s.End()-r.To
	left, rest := s.touched, none
	if s.touched < s.Size {
		untouched = ar.touch(r)
	}
	touched = r.Bytes() - untouched
	left -= touched // handed out before, of what stays free
	right := left
	if below > 0 && above > 0 {
		if left > 0 && left < below+above {
			left = below - ar.untouched.in(Range{s.Addr, r.From})
		} else {
			left = min(left, below)
		}
		right -= left
	}
	live = i
	ar.chunks.count--
	if below > 0 {
		s.touched = left
		live = l.cutSegment(ar, i, r.From)
		ar.chunks.count++
	}
	if above > 0 {
		rest = l.cutSegment(ar, live, r.To)
		l.segments[rest].touched = right
		ar.chunks.count++
	}
	l.segments[live].Kind = LiveSegment
	if below == 0 {
		i = none
	}
	l.taken(ar, r, i, rest)
	return live, untouched, touched
}

// touch notes that r is not untouched any more, and returns how many bytes of it were.
func (ar *Arena) touch(r Range) (bytes int64) {
	ar.untouched.take(r, func(part Range, seq int64) {
		ar.Device.touch(ar.Index, part, seq)
		bytes += part.Bytes()
	})
	return bytes
}

// vacate makes a segment free and merges it with the free ones beside it, within its region.
func (l *Ledger) vacate(ar *Arena, i int32) {
	s := &l.segments[i]
	s.Kind, s.shared, s.Within = FreeSegment, false, false
	s.shrunk, s.lost, s.touched = 0, 0, s.Size
	l.merge(ar, i)
}

// merge merges segment i, which became free, with the free ones beside it, within its region.
func (l *Ledger) merge(ar *Arena, i int32) {
	s := &l.segments[i]
	ar.chunks.count++
	if next := l.freeBehind(i); next != none {
		n := &l.segments[next]
		s.Size, s.touched = s.Size+n.Size, s.touched+n.touched
		l.drop(ar, next)
		ar.chunks.count--
	}
	if prev := l.freeBefore(i); prev != none {
		p := &l.segments[prev]
		p.Size, p.touched = p.Size+s.Size, p.touched+s.touched
		l.drop(ar, i)
		ar.chunks.count--
		i = prev
	}
	ar.recent = i
	l.freed(ar, i)
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
	s.Size, s.touched = s.Size+n.Size, s.touched+n.touched
	l.drop(ar, next)
	ar.chunks.count--
	l.freed(ar, i)
}
