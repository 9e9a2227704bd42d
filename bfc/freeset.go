package bfc

import "math/bits"

// Free chunks are divided into classes of nearly equal size: 16 to every power of two, so
// that a class is 1/16 of a bin and small sizes have a class each. A class of greater
// number holds greater sizes only. Two levels of bitmap say which classes hold anything;
// within a class, a treap keeps the order (size, address). With the usual few chunks in a
// class an operation costs a few instructions, and it is O(log n) whatever the sizes are.
const (
	classBits  = 4
	classCount = (64 - granuleBits - classBits + 1) << classBits
	classWords = (classCount + 63) / 64
)

// freeNode is the place of a free chunk in its class; undefined while the chunk is in use.
type freeNode struct {
	size, addr uint64
	child      [2]int32 // lesser and greater keys; none where there are none
	priority   uint32   // no child has a greater one; fixed for the life of the slot
}

// freeSet is the free chunks in the order (size, address), by index.
type freeSet struct {
	nodes   []freeNode // by index; 0 is not used
	roots   [classCount]int32
	words   [classWords]uint64 // bit c: class c holds something
	summary uint64             // bit w: words[w] is not zero
}

// classOf is monotone: a greater size never has a lesser class. Size is a positive
// multiple of the granule.
func classOf(size uint64) uint {
	granules := size >> granuleBits
	if granules < 1<<classBits {
		return uint(granules)
	}
	shift := uint(bits.Len64(granules)) - 1 - classBits
	return shift<<classBits + uint(granules>>shift)
}

// addSlot makes room for one more slot.
func (s *freeSet) addSlot() {
	// The finalizer of a multiplicative hash: priorities only have to look random, and
	// fixed ones make a run repeatable to the last pointer.
	mixed := uint32(len(s.nodes))
	mixed = (mixed ^ mixed>>16) * 0x85ebca6b
	mixed = (mixed ^ mixed>>13) * 0xc2b2ae35
	s.nodes = append(s.nodes, freeNode{priority: mixed ^ mixed>>16})
}

// side returns 1 if the node's key is less than (size, addr), so that the search goes on with its
// greater child, else 0. It has no branch, since that would be mispredicted half of the time.
func (n *freeNode) side(size, addr uint64) uint64 {
	_, borrow := bits.Sub64(n.addr, addr, 0)
	_, borrow = bits.Sub64(n.size, size, borrow)
	return borrow
}

func (s *freeSet) insert(index int32, size, addr uint64) {
	node := &s.nodes[index]
	node.size, node.addr = size, addr
	class := classOf(size)
	link := &s.roots[class]
	if *link == none {
		*link = index
		node.child = [2]int32{}
		s.words[class/64] |= 1 << (class % 64)
		s.summary |= 1 << (class / 64)
		return
	}
	for *link != none {
		next := &s.nodes[*link]
		if next.priority < node.priority {
			break
		}
		link = &next.child[next.side(size, addr)&1]
	}
	// The subtree that was here is split at the new key and becomes its two children.
	at := *link
	*link = index
	lesser, greater := &node.child[0], &node.child[1]
	for at != none {
		next := &s.nodes[at]
		if next.side(size, addr) == 1 {
			*lesser = at
			lesser = &next.child[1]
			at = *lesser
		} else {
			*greater = at
			greater = &next.child[0]
			at = *greater
		}
	}
	*lesser, *greater = none, none
}

func (s *freeSet) remove(index int32) {
	node := &s.nodes[index]
	class := classOf(node.size)
	link := &s.roots[class]
	for *link != index {
		next := &s.nodes[*link]
		link = &next.child[next.side(node.size, node.addr)&1]
	}
	lesser, greater := node.child[0], node.child[1]
	for lesser != none && greater != none {
		low, high := &s.nodes[lesser], &s.nodes[greater]
		if low.priority > high.priority {
			*link = lesser
			link = &low.child[1]
			lesser = *link
		} else {
			*link = greater
			link = &high.child[0]
			greater = *link
		}
	}
	*link = lesser | greater // at most one of them is not none
	if s.roots[class] != none {
		return
	}
	s.words[class/64] &^= 1 << (class % 64)
	if s.words[class/64] == 0 {
		s.summary &^= 1 << (class / 64)
	}
}

// first returns the first free chunk at or after (size, addr) in the order (size, address); or none.
func (s *freeSet) first(size, addr uint64) int32 {
	class := classOf(size)
	found := none
	for at := s.roots[class]; at != none; {
		node := &s.nodes[at]
		side := node.side(size, addr)
		if side == 0 {
			found = at
		}
		at = node.child[side&1]
	}
	if found != none {
		return found
	}
	at := s.nextRoot(class)
	for at != none {
		found = at
		at = s.nodes[at].child[0]
	}
	return found
}

// after returns the next free chunk in the order; or none.
func (s *freeSet) after(index int32) int32 {
	node := &s.nodes[index]
	return s.first(node.size, node.addr+1)
}

// largest returns the last free chunk in the order; or none.
func (s *freeSet) largest() int32 {
	if s.summary == 0 {
		return none
	}
	word := uint(bits.Len64(s.summary)) - 1
	class := word*64 + uint(bits.Len64(s.words[word])) - 1
	found := none
	for at := s.roots[class]; at != none; at = s.nodes[at].child[1] {
		found = at
	}
	return found
}

// nextRoot returns the root of the first class behind class that is not empty; or none.
func (s *freeSet) nextRoot(class uint) int32 {
	word := class / 64
	rest := s.words[word] &^ (2<<(class%64) - 1)
	if rest == 0 {
		summary := s.summary &^ (2<<word - 1)
		if summary == 0 {
			return none
		}
		word = uint(bits.TrailingZeros64(summary))
		rest = s.words[word]
	}
	return s.roots[word*64+uint(bits.TrailingZeros64(rest))]
}
