package snapshot

import (
	"math/bits"
	"math/rand/v2"
)

// stackTree numbers the nodes of stacks. Each frame of each request is looked up, so it is an
// open hash table of numbers instead of a map: the stacks of 1 GB took half the time then.
type stackTree struct {
	nodes []stackNode // by number less 1; a parent has a lesser number
	slots []uint32    // numbers, 0 where free: a power of two of them, at most half of them taken
	seeds [2]uint64   // random, so that no file can choose nodes that collide
}

type stackNode struct {
	parent int64
	frame  int32
}

func newStackTree() stackTree {
	return stackTree{slots: make([]uint32, 1<<10), seeds: [2]uint64{rand.Uint64(), rand.Uint64()}}
}

// of returns the node of a number.
func (t *stackTree) of(number int64) stackNode { return t.nodes[number-1] }

// find returns the number of a node, or 0 and the slot where it would be.
func (t *stackTree) find(key stackNode) (number int64, slot int) {
	high, low := bits.Mul64(uint64(key.parent)^t.seeds[0], uint64(key.frame)^t.seeds[1])
	last := len(t.slots) - 1
	for slot = int(high^low) & last; t.slots[slot] != 0; slot = (slot + 1) & last {
		if number := int64(t.slots[slot]); t.nodes[number-1] == key {
			return number, slot
		}
	}
	return 0, slot
}

// add numbers a new node, for which find returned the slot.
func (t *stackTree) add(key stackNode, slot int) int64 {
	t.nodes = append(t.nodes, key)
	t.slots[slot] = uint32(len(t.nodes))
	if 2*len(t.nodes) > len(t.slots) {
		t.slots = make([]uint32, 2*len(t.slots))
		for at, node := range t.nodes {
			_, free := t.find(node)
			t.slots[free] = uint32(at + 1)
		}
	}
	return int64(len(t.nodes))
}
