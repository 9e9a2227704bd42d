package stores

// none ends a list of blocks.
const none = int32(-1)

// block is one physical block. While references is 0 it is in the free list, while it is above
// it is not.
type block struct {
	references int32 // entries of block tables that name it
	filled     int32 // slots that hold a token
	final      int32 // slots that will when its users go on to their end; at least filled
	prev, next int32 // in the free list
}

// pool is all blocks, which have one size. Free blocks form a list: the head is taken next and freed
// blocks are added at the tail, so that the least recently used content is evicted first.
//
// Sums over blocks in use are updated at each change, so that shares take the same time for any
// number of blocks.
type pool struct {
	size       int32 // tokens of a block
	blocks     []block
	head, tail int32  // of the free list
	free       int64  // in the list, those with a known content among them
	cached     int64  // in the list, with a known content
	used       int64  // with references
	references int64  // of all blocks
	filled     int64  // of the blocks in use
	final      int64  // of the blocks in use
	keys       chains // full blocks of known content, by a number of that and all before it
	places     chains // those in use, by a number of their content and position alone
	equal      int64  // blocks in use beyond the first of each place
}

// newPool is n blocks, all free in order of their numbers.
func newPool(n int64, size int32) *pool {
	p := &pool{size: size, blocks: make([]block, n), head: none, tail: none}
	p.keys.size, p.places.size = int(n), int(n)
	for i := range p.blocks {
		p.push(int32(i))
	}
	return p
}

// push appends a block to the free list.
func (p *pool) push(i int32) {
	b := &p.blocks[i]
	b.prev, b.next = p.tail, none
	if p.tail == none {
		p.head = i
	} else {
		p.blocks[p.tail].next = i
	}
	p.tail = i
	p.free++
	if p.keys.number(i) != 0 {
		p.cached++
	}
}

// unlink removes a block from the free list.
func (p *pool) unlink(i int32) {
	b := &p.blocks[i]
	if b.prev == none {
		p.head = b.next
	} else {
		p.blocks[b.prev].next = b.next
	}
	if b.next == none {
		p.tail = b.prev
	} else {
		p.blocks[b.next].prev = b.prev
	}
	p.free--
	if p.keys.number(i) != 0 {
		p.cached--
	}
}

// take hands out the block that was free longest, for its first user; its content is lost. The
// caller has seen that one is free.
func (p *pool) take(filled, final int32) int32 {
	i := p.head
	p.unlink(i)
	p.forget(i)
	b := &p.blocks[i]
	b.filled, b.final = filled, final
	p.enter(i)
	return i
}

// enter counts a block as in use, with its first reference.
func (p *pool) enter(i int32) {
	b := &p.blocks[i]
	b.references = 1
	p.references++
	p.used++
	p.filled += int64(b.filled)
	p.final += int64(b.final)
	p.enterPlace(i)
}

// share adds a reference to a block in use, or to a cached one, which is then in use.
func (p *pool) share(i int32) {
	if p.blocks[i].references == 0 {
		p.unlink(i)
		p.enter(i)
		return
	}
	p.blocks[i].references++
	p.references++
}

// drop removes a reference; without any the block is free.
func (p *pool) drop(i int32) {
	b := &p.blocks[i]
	b.references--
	p.references--
	if b.references > 0 {
		return
	}
	p.used--
	p.filled -= int64(b.filled)
	p.final -= int64(b.final)
	if place := p.places.number(i); place != 0 {
		p.places.remove(i)
		if p.places.first(place) != none {
			p.equal--
		}
	}
	p.push(i)
}

// write fills the next slot of a block in use that has one left to fill.
func (p *pool) write(i int32) {
	p.blocks[i].filled++
	p.filled++
}

// forget evicts the content of a free block.
func (p *pool) forget(i int32) {
	if p.keys.number(i) != 0 {
		p.keys.remove(i)
	}
	p.keys.call(i, 0)
	p.places.call(i, 0)
}

// enterPlace counts a block that is used from now on among those of its place.
func (p *pool) enterPlace(i int32) {
	place := p.places.number(i)
	if place == 0 {
		return
	}
	if p.places.first(place) != none {
		p.equal++
	}
	p.places.add(i)
}

// name says what a full block in use holds, so that it can be found while it is in use, and after,
// until the block is taken: key is of its content and all before it, place of its content and
// position alone; 0 is not known.
func (p *pool) name(i int32, key, place uint64) {
	p.keys.call(i, key)
	p.places.call(i, place)
	if key != 0 {
		p.keys.add(i)
	}
	p.enterPlace(i)
}
