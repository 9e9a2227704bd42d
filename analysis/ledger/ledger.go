package ledger

// Ledger holds the segments of all arenas of a process.
type Ledger struct {
	segments []Segment
	vacant   int32
	table    addressTable // of all segments, by start
	newest   newest

	Arenas   []*Arena // in order of creation
	byID     map[int32]*Arena
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
	i := l.insertBefore(ar, next, r, FreshSegment)
	l.segments[i].Region = region
	ar.mapped.Add(r, !region, joins)
	ar.untouched.add(r, seq)
	l.merge(ar, i, 0)
}

// unmapRange takes r, all of it mapped and free, out. It returns how many bytes of it were
// untouched and how many touched.
func (l *Ledger) unmapRange(ar *Arena, r Range) (untouched, touched int64, err error) {
	i, err := l.freeAt(ar, r.From)
	if err != nil {
		return 0, 0, err
	}
	for from := r.From; ; {
		to := min(r.To, l.segments[i].End())
		var never, before int64
		i, never, before = l.occupyPart(ar, i, Range{from, to})
		untouched, touched = untouched+never, touched+before
		next := none
		if to < r.To {
			if next, err = l.following(i); err != nil {
				return 0, 0, err
			}
		}
		l.drop(ar, i)
		if to == r.To {
			ar.mapped.Remove(r)
			return untouched, touched, nil
		}
		i, from = next, to
	}
}
