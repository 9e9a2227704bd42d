package ledger

import "math"

// Most events do not change which free chunk of an arena is the largest. So an arena starts without
// an index of its chunks: it keeps the largest chunk it knows, and those that come next as
// candidates, and reads sizes off the list of segments. Each segment that is read is a step. Each change of an
// arena allows stepsPerChange further ones. An arena that takes more gets the index of freechunks.go, whose
// cost per change is logarithmic however its chunks are cut.

const (
	stepsPerChange = 16
	stepsAtStart   = 1 << 12
)

// noFloor is the floor before the candidates are collected.
const noFloor = math.MaxInt64

// freeExtent is a free chunk, of which touched bytes were handed out before.
type freeExtent struct{ from, bytes, touched int64 }

func (c *freeExtent) end() int64 { return c.from + c.bytes }

// candidate stands for the free chunk that starts at addr. It has at most bytes; where no chunk
// starts there any more, it stands for none.
type candidate struct{ bytes, addr int64 }

// before says whether x is the larger one; of equal ones the lower.
func (x candidate) before(y candidate) bool {
	return x.bytes > y.bytes || x.bytes == y.bytes && x.addr < y.addr
}

// largestChunk finds the largest free chunk of an arena without an index.
type largestChunk struct {
	freeExtent             // if known
	known      bool        // it is the largest chunk after the last change
	floor      int64       // every chunk of at least so many bytes has a candidate; noFloor: none has
	candidates []candidate // a binary heap with the largest one first
	chunks     int         // how many free chunks the arena has
	steps      int         // that it may still take
}

// behind extends a chunk by the free segments of its region from i on, none to end it.
func (l *Ledger) behind(c *freeExtent, i int32) (steps int) {
	for end := int64(0); i != none; steps++ {
		s := &l.segments[i]
		if steps > 0 && (!s.Free() || s.Region || s.Addr != end) {
			break
		}
		c.bytes += s.Size
		if s.Kind == TouchedSegment {
			c.touched += s.Size
		}
		i, end = s.next, s.End()
	}
	return steps
}

// extentOf is the chunk of the free segment i.
func (l *Ledger) extentOf(i int32) (c freeExtent, steps int) {
	steps = l.behind(&c, i)
	c.from = l.segments[i].Addr
	for i = l.freeBefore(i); i != none; i = l.freeBefore(i) {
		s := &l.segments[i]
		c.from = s.Addr
		c.bytes += s.Size
		if s.Kind == TouchedSegment {
			c.touched += s.Size
		}
		steps++
	}
	return c, steps
}

// freed notes that segment i, merged with its neighbours, became free in an arena without an
// index.
func (l *Ledger) freed(ar *Arena, i int32) {
	m := &ar.largest
	if m.floor == noFloor && !m.known {
		m.steps += stepsPerChange
		return
	}
	c, steps := l.extentOf(i)
	m.freed(c, ar.segments)
	l.walked(ar, steps)
}

// freed notes that c became a free chunk, or a larger one.
func (m *largestChunk) freed(c freeExtent, segments int) {
	m.steps += stepsPerChange
	switch {
	case m.known && (c.bytes > m.bytes || c.bytes == m.bytes && c.from <= m.from):
		m.grew(c, segments)
	case c.bytes >= m.floor:
		m.add(candidate{c.bytes, c.from}, segments)
	}
}

// grew makes c the largest chunk. It is larger than the largest so far, or is that chunk with more memory.
func (m *largestChunk) grew(c freeExtent, segments int) {
	old := m.from
	m.freeExtent = c
	switch {
	case m.first(old) && c.from <= old && old < c.end():
		m.candidates[0] = candidate{c.bytes, c.from}
		m.lower()
	case c.bytes >= m.floor:
		m.add(candidate{c.bytes, c.from}, segments)
	}
}

// taken notes that r, of which touched bytes were handed out before, is not free any more in
// an arena without an index. The segment rest, if any, is free right behind it.
func (l *Ledger) taken(ar *Arena, r Range, touched int64, rest int32) {
	m := &ar.largest
	m.steps += stepsPerChange
	hit := m.known && r.From < m.end() && m.from < r.To
	if m.floor == noFloor {
		m.known = m.known && !hit
		return
	}
	right := freeExtent{from: r.To}
	steps := l.behind(&right, rest)
	if hit && m.first(m.from) && m.from <= r.From && r.To <= m.end() {
		left := freeExtent{m.from, r.From - m.from, m.touched - touched - right.touched}
		m.cut(left, right, ar.segments)
	} else {
		m.known = m.known && !hit
		if right.bytes >= m.floor {
			m.add(candidate{right.bytes, right.from}, ar.segments)
		}
	}
	l.walked(ar, steps)
}

// cut replaces the largest chunk, the first candidate, by its rest on either side.
func (m *largestChunk) cut(left, right freeExtent, segments int) {
	larger, smaller := left, right
	if right.bytes > left.bytes {
		larger, smaller = right, left
	}
	if larger.bytes < m.floor {
		m.known = false
		m.pop()
		return
	}
	first := candidate{larger.bytes, larger.from}
	m.candidates[0] = first
	m.lower()
	m.freeExtent, m.known = larger, m.candidates[0] == first
	if smaller.bytes >= m.floor {
		m.add(candidate{smaller.bytes, smaller.from}, segments)
	}
}

// first says whether the first candidate stands for the chunk that starts at addr.
func (m *largestChunk) first(addr int64) bool {
	return len(m.candidates) > 0 && m.candidates[0].addr == addr
}

// walked subtracts steps from those that the arena may still take, and gives it an index if it has taken more.
func (l *Ledger) walked(ar *Arena, steps int) {
	if ar.largest.steps -= steps; ar.largest.steps < 0 {
		l.index(ar)
	}
}

// largestOf is the largest free chunk of an arena, of equal ones the first; of a native allocator's arena
// it is not known.
func (l *Ledger) largestOf(ar *Arena) (bytes, touched int64) {
	switch {
	case ar.largest.known:
		return ar.largest.bytes, ar.largest.touched
	case ar.Native:
		return 0, 0
	case ar.indexed:
		if len(ar.chunks) == 0 {
			return 0, 0
		}
		return ar.chunks[0].bytes, l.nodes[ar.chunks[0].root].touched
	}
	l.findLargest(ar)
	return l.largestOf(ar)
}

// findLargest makes the largest chunk known, or gives the arena an index.
func (l *Ledger) findLargest(ar *Arena) {
	m := &ar.largest
	steps := 0
	for len(m.candidates) > 0 {
		steps++
		top := m.candidates[0]
		i := l.table.find(top.addr)
		if i == none || l.segments[i].arena != ar.Index || !l.segments[i].Free() || l.freeBefore(i) != none {
			m.pop()
			continue
		}
		c := freeExtent{from: top.addr}
		steps += l.behind(&c, i)
		switch {
		case c.bytes == top.bytes:
			m.freeExtent, m.known = c, true
			l.walked(ar, steps)
			return
		case c.bytes < m.floor:
			m.pop()
		default:
			m.candidates[0].bytes = c.bytes
			m.lower()
		}
	}
	l.collect(ar)
	l.walked(ar, steps+ar.segments)
}

// collect makes every chunk of at least half the bytes of the largest a candidate.
func (l *Ledger) collect(ar *Arena) {
	m := &ar.largest
	m.freeExtent, m.known, m.floor, m.candidates = freeExtent{}, true, 1, m.candidates[:0]
	var all []candidate
	l.eachChunk(ar, func(c freeExtent) {
		if c.bytes > m.bytes {
			m.freeExtent = c
			m.floor = max(1, c.bytes/2)
		}
		if c.bytes >= m.floor {
			all = append(all, candidate{c.bytes, c.from})
		}
	})
	for _, c := range all {
		if c.bytes >= m.floor {
			m.push(c)
		}
	}
}

// eachChunk calls f with the free chunks of an arena in the order of addresses.
func (l *Ledger) eachChunk(ar *Arena, f func(freeExtent)) {
	var c freeExtent
	for i := ar.head; i != none; i = l.segments[i].next {
		s := &l.segments[i]
		if c.bytes > 0 && (!s.Free() || s.Region || s.Addr != c.end()) {
			f(c)
			c = freeExtent{}
		}
		if !s.Free() {
			continue
		}
		if c.bytes == 0 {
			c.from = s.Addr
		}
		c.bytes += s.Size
		if s.Kind == TouchedSegment {
			c.touched += s.Size
		}
	}
	if c.bytes > 0 {
		f(c)
	}
}

// add adds a candidate of an arena of so many segments. Of too many most stand for no chunk, or the
// chunks have grown: they are to be collected again.
func (m *largestChunk) add(c candidate, segments int) {
	if len(m.candidates) >= 64+segments/4 {
		m.candidates, m.floor = m.candidates[:0], noFloor
		return
	}
	m.push(c)
}

func (m *largestChunk) push(c candidate) {
	m.candidates = append(m.candidates, c)
	h, i := m.candidates, len(m.candidates)-1
	for i > 0 && c.before(h[(i-1)/2]) {
		h[i] = h[(i-1)/2]
		i = (i - 1) / 2
	}
	h[i] = c
}

func (m *largestChunk) pop() {
	last := len(m.candidates) - 1
	m.candidates[0] = m.candidates[last]
	m.candidates = m.candidates[:last]
	m.lower()
}

// lower moves the first candidate down to its place.
func (m *largestChunk) lower() {
	h := m.candidates
	if len(h) == 0 {
		return
	}
	i, c := 0, h[0]
	for {
		child := 2*i + 1
		if child >= len(h) {
			break
		}
		if right := child + 1; right < len(h) && h[right].before(h[child]) {
			child = right
		}
		if !h[child].before(c) {
			break
		}
		h[i] = h[child]
		i = child
	}
	h[i] = c
}
