package bfc

// Where plans are made, planner.ends has the free chunks by where they end: a place is asked for
// by its address, and the free chunk around it is the first that does not end before it, or none.
// Free chunks lie apart. So one that becomes longer or shorter stays where it is in the order, and
// only what comes to be free by itself is inserted.

// insertEnd is for a free chunk that no other has become.
func (a *Allocator) insertEnd(handle int32) {
	if a.planner != nil {
		c := &a.chunks[handle]
		a.planner.ends.insert(handle, Granule, c.addr+c.size)
	}
}

// moveEnd is for a free chunk that ends elsewhere, behind the same chunks as before.
func (a *Allocator) moveEnd(handle int32) {
	if a.planner != nil {
		c := &a.chunks[handle]
		a.planner.ends.nodes[handle].addr = c.addr + c.size
	}
}

// removeEnd is for a chunk that is free no more, or part of another.
func (a *Allocator) removeEnd(handle int32) {
	if a.planner != nil {
		a.planner.ends.remove(handle)
	}
}

// endingAfter is the first free chunk that does not end before addr, or none.
func (a *Allocator) endingAfter(addr uint64) int32 {
	return a.planner.ends.first(Granule, addr)
}
