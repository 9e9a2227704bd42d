package torchalloc

// Block is a range of a segment: one allocation, or free memory. Callers keep the Block that
// Malloc returns to name the allocation; it is theirs until Free.
type Block struct {
	addr, size uint64
	requested  uint64 // bytes of its last allocation
	stream     uint64

	allocated bool
	pending   bool // freed; events on the recorded streams have not passed
	deferred  bool // freed in a scope; the events are recorded when none is open
	mapped    bool // false: addresses of an expandable segment without memory

	streams []use // of other streams since the allocation, each stream once

	prev, next *Block // in the segment, by address
	segment    *segment
	pool       *pool
	since      uint64 // searches of the pool when the block became free
}

// use is a stream that was recorded for a block.
type use struct {
	stream   uint64
	captured bool // in a scope, be it before or after it was recorded outside
}

// Addr is the first address, Size the bytes that the allocator uses for the block, Requested
// the bytes asked for.
func (b *Block) Addr() uint64      { return b.addr }
func (b *Block) Size() uint64      { return b.size }
func (b *Block) Requested() uint64 { return b.requested }

// Stream is the stream that asked for the block.
func (b *Block) Stream() uint64 { return b.stream }

// idle says whether the block may merge or serve a request.
func (b *Block) idle() bool {
	return !b.allocated && !b.pending && !b.deferred && len(b.streams) == 0
}

// whole says whether the block is its whole segment.
func (b *Block) whole() bool { return b.prev == nil && b.next == nil }

// expandable says whether the block is of an expandable segment.
func (b *Block) expandable() bool { return b.segment.expandable }

// grown returns the size plus that of an unmapped block right behind.
func (b *Block) grown() uint64 {
	if b.next != nil && !b.next.mapped {
		return b.size + b.next.size
	}
	return b.size
}

// segment is what one call of the device returned.
type segment struct {
	addr, size uint64
	number     uint64 // of its creation, from 1
	expandable bool
	page       uint64 // of an expandable one
	first      *Block
}

// cutFront splits the first bytes off b as a new block before it, and returns that. B keeps
// its identity and shrinks to the rest. The new block is in no order.
func (b *Block) cutFront(bytes uint64) *Block {
	front := &Block{
		addr: b.addr, size: bytes, stream: b.stream, mapped: b.mapped,
		prev: b.prev, next: b, segment: b.segment, pool: b.pool,
	}
	if b.prev != nil {
		b.prev.next = front
	} else {
		b.segment.first = front
	}
	b.prev = front
	b.addr += bytes
	b.size -= bytes
	return front
}

// cutBack splits what is behind the first bytes off b as a new block, and returns that.
func (b *Block) cutBack(bytes uint64) *Block {
	back := &Block{
		addr: b.addr + bytes, size: b.size - bytes, stream: b.stream, mapped: b.mapped,
		prev: b, next: b.next, segment: b.segment, pool: b.pool,
	}
	if b.next != nil {
		b.next.prev = back
	}
	b.next = back
	b.size = bytes
	return back
}

// absorb makes a neighbour part of b. The neighbour must be in no order any more.
func (b *Block) absorb(other *Block) {
	if other == b.prev {
		b.addr = other.addr
		b.prev = other.prev
		if b.prev != nil {
			b.prev.next = b
		} else {
			b.segment.first = b
		}
	} else {
		b.next = other.next
		if b.next != nil {
			b.next.prev = b
		}
	}
	b.size += other.size
}
