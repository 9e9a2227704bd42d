package ledger

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
