package bfc

// With plans, planner.ends orders the free chunks by the address at which they end, to find the free
// chunk around a place: it is the first that ends at or behind the place's end, if it begins early enough.
// Free chunks of a region do not touch. So one that becomes longer or shorter keeps its position in the order,
// and only a chunk that is not merged into another is inserted.

// insertEnd adds a free chunk that was not merged into another.
func (a *Allocator) insertEnd(index int32) {
	if a.planner != nil {
		c := &a.chunks[index]
		a.planner.ends.insert(index, Granule, c.addr+c.size)
	}
}

// moveEnd notes the new end of a free chunk, whose position in the order is the same.
func (a *Allocator) moveEnd(index int32) {
	if a.planner != nil {
		c := &a.chunks[index]
		a.planner.ends.nodes[index].addr = c.addr + c.size
	}
}

// removeEnd removes a chunk that is no longer free, or was merged into another.
func (a *Allocator) removeEnd(index int32) {
	if a.planner != nil {
		a.planner.ends.remove(index)
	}
}

// endingAfter returns the first free chunk that ends at or behind addr; or none.
func (a *Allocator) endingAfter(addr uint64) int32 {
	return a.planner.ends.first(Granule, addr)
}
