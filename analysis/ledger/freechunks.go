package ledger

import "math/rand/v2"

// A free chunk is a longest run of free segments that touch: it ends at a block, at memory that is
// not mapped, and where a region starts. The index of an arena's chunks is kept while events come,
// so that the largest one and the bytes of it that were handed out before are known after each of
// them. Few arenas need one: see largest.go.
//
// A chunk is a treap of its segments in the order of addresses: each node has the sums of its
// subtree, and a parent, so that the chunk of a segment, a cut and a join take logarithmic time
// however many segments there are. Most chunks have one or two.

// freeNode is what a free segment is in its chunk. It has the index of the segment.
type freeNode struct {
	bytes, touched  int64 // of the segments of the subtree; touched: handed out before
	left, right, up int32
	entry           int32  // of a root: index of the chunk in freeChunks of its arena
	priority        uint32 // greater than those of the children
}

// freeChunk is the entry of a chunk in the heap of its arena.
type freeChunk struct {
	bytes, addr int64
	root        int32
}

// before says whether x is the larger one; of equal ones the lower.
func (x *freeChunk) before(y *freeChunk) bool {
	return x.bytes > y.bytes || x.bytes == y.bytes && x.addr < y.addr
}

// freeChunks are the chunks of an arena, a binary heap with the largest one first.
type freeChunks []freeChunk

// chunkOf is the root of the chunk that free segment i is in.
func (l *Ledger) chunkOf(i int32) int32 {
	for l.nodes[i].up != none {
		i = l.nodes[i].up
	}
	return i
}

// sum computes the sums of a node from its segment and its children.
func (l *Ledger) sum(i int32) {
	s, n := &l.segments[i], &l.nodes[i]
	n.bytes, n.touched = s.Size, 0
	if s.Kind == TouchedSegment {
		n.touched = s.Size
	}
	if n.left != none {
		n.bytes += l.nodes[n.left].bytes
		n.touched += l.nodes[n.left].touched
	}
	if n.right != none {
		n.bytes += l.nodes[n.right].bytes
		n.touched += l.nodes[n.right].touched
	}
}

// alone makes segment i a tree of one node.
func (l *Ledger) alone(i int32) {
	n := l.node(i)
	n.left, n.right, n.up = none, none, none
	l.sum(i)
}

// node is the node of segment i, which may be a new one.
func (l *Ledger) node(i int32) *freeNode {
	for int(i) >= len(l.nodes) {
		l.nodes = append(l.nodes, freeNode{priority: rand.Uint32()})
	}
	return &l.nodes[i]
}

// cutBefore cuts the tree that segment i is in into what lies before i and the rest.
func (l *Ledger) cutBefore(i int32) (left, right int32) {
	n := &l.nodes[i]
	left, right = n.left, i
	n.left = none
	return l.cut(i, left, right)
}

// cutAfter cuts the tree that segment i is in into what ends with i and the rest.
func (l *Ledger) cutAfter(i int32) (left, right int32) {
	n := &l.nodes[i]
	left, right = i, n.right
	n.right = none
	return l.cut(i, left, right)
}

// cut goes up from i, whose subtree is cut already, and adds each ancestor with its other subtree
// to the side that it is on.
func (l *Ledger) cut(i, left, right int32) (int32, int32) {
	up := l.nodes[i].up
	l.nodes[i].up = none
	l.sum(i)
	if left != none {
		l.nodes[left].up = none
	}
	if right != none {
		l.nodes[right].up = none
	}
	for from := i; up != none; {
		n := &l.nodes[up]
		next := n.up
		n.up = none
		if n.right == from {
			if n.right = left; left != none {
				l.nodes[left].up = up
			}
			left = up
		} else {
			if n.left = right; right != none {
				l.nodes[right].up = up
			}
			right = up
		}
		l.sum(up)
		from, up = up, next
	}
	return left, right
}

// join makes two trees one; all of left lies before right.
func (l *Ledger) join(left, right int32) int32 {
	switch {
	case left == none:
		return right
	case right == none:
		return left
	case l.nodes[left].priority > l.nodes[right].priority:
		below := l.join(l.nodes[left].right, right)
		l.nodes[left].right, l.nodes[below].up = below, left
		l.sum(left)
		return left
	default:
		below := l.join(left, l.nodes[right].left)
		l.nodes[right].left, l.nodes[below].up = below, right
		l.sum(right)
		return right
	}
}

// index gives an arena an index of its chunks.
func (l *Ledger) index(ar *Arena) {
	ar.indexed, ar.largest = true, largestChunk{}
	root, addr := none, int64(0)
	for i := ar.head; i != none; i = l.segments[i].next {
		if !l.segments[i].Free() {
			continue
		}
		if root == none {
			addr = l.segments[i].Addr
		}
		l.alone(i)
		root = l.join(root, i)
		if l.freeBehind(i) == none {
			l.addChunk(ar, root, addr)
			root = none
		}
	}
}

// addFree puts segment i, which has become free, into a chunk: its own, or with the free segments
// that it touches.
func (l *Ledger) addFree(ar *Arena, i int32) {
	if !ar.indexed {
		return
	}
	l.alone(i)
	root, entry, addr := i, none, l.segments[i].Addr
	if prev := l.freeBefore(i); prev != none {
		left := l.chunkOf(prev)
		entry = l.nodes[left].entry
		addr = ar.chunks[entry].addr
		root = l.join(left, root)
	}
	if next := l.freeBehind(i); next != none {
		right := l.chunkOf(next)
		if other := l.nodes[right].entry; entry == none {
			entry = other
		} else {
			// The left chunk's entry may be the one that takes the place of the removed one.
			left := ar.chunks[entry].root
			l.removeChunk(ar, other)
			entry = l.nodes[left].entry
		}
		root = l.join(root, right)
	}
	if entry == none {
		l.addChunk(ar, root, addr)
		return
	}
	l.setChunk(ar, entry, root, addr)
}

// single says whether the free segment i is all of its chunk.
func (l *Ledger) single(i int32) bool {
	n := &l.nodes[i]
	return n.left == none && n.right == none && n.up == none
}

// becomes makes the free segment i a chunk by itself: at the index entry of the heap, or if that is none, behind
// its last entry.
func (l *Ledger) becomes(ar *Arena, i, entry int32) {
	l.alone(i)
	if entry == none {
		l.addChunk(ar, i, l.segments[i].Addr)
	} else {
		l.setChunk(ar, entry, i, l.segments[i].Addr)
	}
}

// grewFree notes that the last segment of a chunk has become larger.
func (l *Ledger) grewFree(ar *Arena, i int32) {
	if !ar.indexed {
		return
	}
	root := l.resum(i)
	entry := l.nodes[root].entry
	l.setChunk(ar, entry, root, ar.chunks[entry].addr)
}

// replaceFree puts i, which has become free and has taken over the bytes of the free segment next
// behind it, into the place of next: the first one of a chunk.
func (l *Ledger) replaceFree(ar *Arena, next, i int32) {
	if !ar.indexed {
		return
	}
	root := l.replace(next, i)
	l.setChunk(ar, l.nodes[root].entry, root, l.segments[i].Addr)
}

// replace puts segment i into the place of node old of a tree, and returns the root.
func (l *Ledger) replace(old, i int32) int32 {
	y := l.node(i)
	x := &l.nodes[old]
	y.left, y.right, y.up, y.entry = x.left, x.right, x.up, x.entry
	x.priority, y.priority = y.priority, x.priority
	if y.left != none {
		l.nodes[y.left].up = i
	}
	if y.right != none {
		l.nodes[y.right].up = i
	}
	if y.up != none {
		if up := &l.nodes[y.up]; up.left == old {
			up.left = i
		} else {
			up.right = i
		}
	}
	return l.resum(i)
}

// resum computes the sums of i and of all above it, and returns the root.
func (l *Ledger) resum(i int32) int32 {
	for {
		l.sum(i)
		if l.nodes[i].up == none {
			return i
		}
		i = l.nodes[i].up
	}
}

// removeFree takes segment i, which will not be free any more, out of its chunk: what lies before
// it and what lies behind it are chunks of their own.
func (l *Ledger) removeFree(ar *Arena, i int32) {
	if !ar.indexed {
		return
	}
	entry := l.nodes[l.chunkOf(i)].entry
	addr, end := ar.chunks[entry].addr, l.segments[i].End()
	first, last := addr == l.segments[i].Addr, addr+ar.chunks[entry].bytes == end
	switch {
	case first && last:
		l.removeChunk(ar, entry)
	case first:
		l.setChunk(ar, entry, l.removeEnd(i, l.nodes[i].right), end)
	case last:
		l.setChunk(ar, entry, l.removeEnd(i, l.nodes[i].left), addr)
	default:
		left, _ := l.cutBefore(i)
		_, right := l.cutAfter(i)
		l.setChunk(ar, entry, left, addr)
		l.addChunk(ar, right, end)
	}
}

// removeEnd takes the first or last node out of its tree, child its only one, and returns the root.
func (l *Ledger) removeEnd(i, child int32) int32 {
	up := l.nodes[i].up
	if child != none {
		l.nodes[child].up = up
	}
	if up == none {
		return child
	}
	if n := &l.nodes[up]; n.left == i {
		n.left = child
	} else {
		n.right = child
	}
	return l.resum(up)
}

// takeFront takes the front of the free segment i, up to addr, out of its chunk, and returns the
// segment that is left.
func (l *Ledger) takeFront(ar *Arena, i int32, addr int64) (rest int32) {
	rest = l.cutSegment(ar, i, addr)
	if !ar.indexed {
		return rest
	}
	root := l.replace(i, rest)
	entry := l.nodes[root].entry
	c := &ar.chunks[entry]
	if c.addr == l.segments[i].Addr {
		l.setChunk(ar, entry, root, addr)
		return rest
	}
	from := c.addr
	left, right := l.cutBefore(rest)
	l.setChunk(ar, entry, left, from)
	l.addChunk(ar, right, addr)
	return rest
}

// cutFree puts upper, the part that was cut from the end of the free segment i, into the chunk of i.
func (l *Ledger) cutFree(ar *Arena, i, upper int32) {
	if !ar.indexed {
		return
	}
	entry := l.nodes[l.chunkOf(i)].entry
	left, right := l.cutAfter(i)
	l.alone(upper)
	root := l.join(l.join(left, upper), right)
	ar.chunks[entry].root, l.nodes[root].entry = root, entry
}

// addChunk adds a chunk to the heap.
func (l *Ledger) addChunk(ar *Arena, root int32, addr int64) {
	ar.chunks = append(ar.chunks, freeChunk{})
	l.raise(ar.chunks, len(ar.chunks)-1, freeChunk{l.nodes[root].bytes, addr, root})
}

// setChunk makes an entry of the heap another chunk.
func (l *Ledger) setChunk(ar *Arena, entry, root int32, addr int64) {
	c := freeChunk{l.nodes[root].bytes, addr, root}
	if c.before(&ar.chunks[entry]) {
		l.raise(ar.chunks, int(entry), c)
	} else {
		l.lower(ar.chunks, int(entry), c)
	}
}

// removeChunk takes an entry out of the heap; the last one takes its place.
func (l *Ledger) removeChunk(ar *Arena, entry int32) {
	n := len(ar.chunks) - 1
	last := ar.chunks[n]
	ar.chunks = ar.chunks[:n]
	if int(entry) < n {
		l.setChunk(ar, entry, last.root, last.addr)
	}
}

// raise puts a chunk at an index, or above it where it is larger.
func (l *Ledger) raise(h freeChunks, i int, c freeChunk) {
	for i > 0 {
		parent := (i - 1) / 2
		if !c.before(&h[parent]) {
			break
		}
		h[i] = h[parent]
		l.nodes[h[i].root].entry = int32(i)
		i = parent
	}
	h[i] = c
	l.nodes[c.root].entry = int32(i)
}

// lower puts a chunk at an index, or below it where others are larger.
func (l *Ledger) lower(h freeChunks, i int, c freeChunk) {
	for {
		child := 2*i + 1
		if child >= len(h) {
			break
		}
		if right := child + 1; right < len(h) && h[right].before(&h[child]) {
			child = right
		}
		if !h[child].before(&c) {
			break
		}
		h[i] = h[child]
		l.nodes[h[i].root].entry = int32(i)
		i = child
	}
	h[i] = c
	l.nodes[c.root].entry = int32(i)
}
