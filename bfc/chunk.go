package bfc

// chunk is a part of a region. The chunks of a region and its wall form a ring in the order of
// addresses. The wall is a chunk of 0 bytes at the region's end that counts as in use, so that each
// chunk has neighbours and a merge ends there.
type chunk struct {
	addr, size uint64
	requested  uint64 // 0 while free
	left       uint64 // while free: the number of the last free that is a part of it; 0: none is
	id         int64  // of the block while in use; freeID, or wallID
	prev, next int32  // indices of the neighbours; of an unused slot, next is the next unused one
}

const (
	freeID int64 = -1
	wallID int64 = 0
)

// none is the index of no chunk.
const none int32 = 0

// region is a range of addresses that one grant, or several adjacent ones, brought.
type region struct {
	addr, size uint64
	wall       int32  // its next is the first chunk, its prev the last
	pages      []page // with growth Pages or TrimIteration
}

func (r *region) end() uint64 { return r.addr + r.size }

// page is what is known of one page of a region, with growth Pages or TrimIteration.
type page struct {
	back uint32 // 1 + the number of the frame that was mapped there last; 0: none
	used uint32 // 1 + the iteration in which the last block that touched it was freed; 0: never
	left uint64 // the number of the free after which no block touched it any more; 0: none has
	// registered counts the registrations by which others know its physical memory: it is not taken.
	registered uint32
	live       bool // a block touches it
	listed     bool // it is about to be unmapped
}

// isClear says whether nobody can read a page any more: all work is over that was queued before blocks left it. One that is
// not noted is never clear.
func (p *page) isClear(over uint64) bool { return p != nil && p.left <= over }
