package ledger

import "math"

// freeChunks are the free chunks of an arena: its free segments. Most events do not change which one is the largest. So
// the largest is known after most events, and of the others only the candidates for it are kept in order: those of at
// least a floor of bytes. Where none is left all segments are read again, with half the largest as the new floor. An
// arena pays stepsPerChange for each change and a step for each segment that is read; where it cannot pay, all its chunks
// become candidates, so that a change takes logarithmic time at most.
type freeChunks struct {
	count      int         // free chunks
	known      bool        // first is the largest after the last change
	first      freeChunk   // if known; the zero chunk if there is none
	touched    int64       // bytes of first that were handed out before
	floor      int64       // every chunk of at least so many bytes is a candidate; noFloor: none is
	candidates []freeChunk // a binary heap with the largest first; one that is no chunk any more is passed over
	most       int         // candidates, before they are collected anew
	steps      int         // that it may still take
}

const stepsPerChange = 16

// noFloor is the floor before the candidates are collected.
const noFloor = math.MaxInt64

type freeChunk struct{ bytes, addr int64 }

// before says whether x is the larger one; of equal ones the lower.
func (x freeChunk) before(y freeChunk) bool {
	return x.bytes > y.bytes || x.bytes == y.bytes && x.addr < y.addr
}

// isLargest makes a segment the largest chunk.
func (ar *Arena) isLargest(s *Segment) {
	c := &ar.chunks
	c.known, c.first, c.touched = true, freeChunk{s.Size, s.Addr}, s.Size
	if s.Kind == FreshSegment {
		c.touched -= ar.untouched.in(Range{s.Addr, s.End()})
	}
}

// freed notes that segment i became a free chunk, or a larger one; touched bytes of what is new were handed out before.
func (l *Ledger) freed(ar *Arena, i int32, touched int64) {
	c, s := &ar.chunks, &l.segments[i]
	c.steps += stepsPerChange
	chunk := freeChunk{s.Size, s.Addr}
	if c.known && !c.first.before(chunk) {
		old := c.first
		if touched == s.Size-old.bytes && s.Addr <= old.addr && old.addr < s.End() { // as in most events
			c.first, c.touched = chunk, c.touched+touched
		} else {
			ar.isLargest(s)
		}
		if len(c.candidates) > 0 && c.candidates[0] == old && s.Addr <= old.addr && old.addr < s.End() { // it has grown
			c.candidates[0] = chunk
			return
		}
	}
	c.add(chunk)
}

// taken notes that r, touched bytes of it handed out before, is no part of a free chunk any more; what is left of that are
// the segments left and right, or none.
func (l *Ledger) taken(ar *Arena, r Range, touched int64, left, right int32) {
	c := &ar.chunks
	c.steps += stepsPerChange
	if c.known && r.From < c.first.addr+c.first.bytes && c.first.addr < r.To {
		c.known = false
		larger, other := left, right
		if left == none || right != none && l.segments[right].Size > l.segments[left].Size {
			larger, other = right, left
		}
		if larger != none && len(c.candidates) > 0 && c.candidates[0] == c.first && l.segments[larger].Size >= c.floor {
			s := &l.segments[larger]
			rest := freeChunk{s.Size, s.Addr}
			c.candidates[0] = rest
			if c.lower(); c.candidates[0] == rest && other == none {
				c.known, c.first, c.touched = true, rest, c.touched-touched
			} else if c.candidates[0] == rest {
				ar.isLargest(s)
			}
			larger = none
		}
		left, right = larger, other
	}
	for _, i := range [2]int32{left, right} {
		if i != none {
			c.add(freeChunk{l.segments[i].Size, l.segments[i].Addr})
		}
	}
}

// largestOf is the largest free chunk of an arena, of equal ones the first; none where chunks are not known.
func (l *Ledger) largestOf(ar *Arena) (bytes, touched int64) {
	c := &ar.chunks
	if ar.Unknown {
		return 0, 0
	}
	if !c.known {
		l.findLargest(ar)
	}
	return c.first.bytes, c.touched
}

// findLargest makes the largest chunk known.
func (l *Ledger) findLargest(ar *Arena) {
	c := &ar.chunks
	for ; len(c.candidates) > 0; c.pop() {
		top := c.candidates[0]
		i := l.table.find(top.addr)
		if i == none {
			continue
		}
		if s := &l.segments[i]; s.arena == ar.Index && s.Free() && s.Size == top.bytes {
			ar.isLargest(s)
			return
		}
	}
	c.known, c.first, c.touched = true, freeChunk{}, 0
	if c.count > 0 {
		l.collect(ar)
	}
}

// collect finds the largest chunk and makes every chunk of at least half its bytes a candidate, or every chunk.
func (l *Ledger) collect(ar *Arena) {
	c := &ar.chunks
	var most *Segment
	l.Each(ar, func(s *Segment) {
		if s.Free() && (most == nil || s.Size > most.Size) {
			most = s
		}
	})
	ar.isLargest(most)
	c.floor = 1
	if c.steps >= ar.segments {
		c.steps, c.floor = c.steps-ar.segments, max(1, c.first.bytes/2)
	}
	c.candidates, c.most = c.candidates[:0], math.MaxInt
	l.Each(ar, func(s *Segment) {
		if s.Free() {
			c.add(freeChunk{s.Size, s.Addr})
		}
	})
	c.most = len(c.candidates) + 64 + ar.segments/4
}

// add adds a candidate. Of too many most are no chunks any more: they are to be collected again.
func (c *freeChunks) add(x freeChunk) {
	if x.bytes < c.floor {
		return
	}
	if len(c.candidates) >= c.most {
		c.candidates, c.floor = c.candidates[:0], noFloor
		return
	}
	c.candidates = append(c.candidates, x)
	h, i := c.candidates, len(c.candidates)-1
	for i > 0 && x.before(h[(i-1)/2]) {
		h[i] = h[(i-1)/2]
		i = (i - 1) / 2
	}
	h[i] = x
}

func (c *freeChunks) pop() {
	last := len(c.candidates) - 1
	c.candidates[0] = c.candidates[last]
	c.candidates = c.candidates[:last]
	c.lower()
}

// lower moves the first candidate down to its place.
func (c *freeChunks) lower() {
	h := c.candidates
	if len(h) == 0 {
		return
	}
	i, x := 0, h[0]
	for {
		child := 2*i + 1
		if child >= len(h) {
			break
		}
		if right := child + 1; right < len(h) && h[right].before(h[child]) {
			child = right
		}
		if !h[child].before(x) {
			break
		}
		h[i] = h[child]
		i = child
	}
	h[i] = x
}
