package ledger

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

// Each calls f with the segments of an arena in the order of addresses.
func (l *Ledger) Each(ar *Arena, f func(*Segment)) {
	for i := ar.head; i != none; i = l.segments[i].next {
		f(&l.segments[i])
	}
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
