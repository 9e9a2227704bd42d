package bfc

// Where plans are made, planner.ends has the free chunks by where they end: a place is asked for
// by its address, and the free chunk around it is the first that does not end before it, or none.
// Free chunks lie apart. So one that becomes longer or shorter stays where it is in the order, and
// only what comes to be free by itself is inserted.

// insertEnd is for a free chunk that no other has become.
func (a *Allocator) insertEnd(index int32) {
	if a.planner != nil {
		c := &a.chunks[index]
		a.planner.ends.insert(index, Granule, c.addr+c.size)
	}
}

// moveEnd is for a free chunk that ends elsewhere, behind the same chunks as before.
func (a *Allocator) moveEnd(index int32) {
	if a.planner != nil {
		c := &a.chunks[index]
		a.planner.ends.nodes[index].addr = c.addr + c.size
	}
}

// removeEnd is for a chunk that is free no more, or part of another.
func (a *Allocator) removeEnd(index int32) {
	if a.planner != nil {
		a.planner.ends.remove(index)
	}
}

// endingAfter is the first free chunk that does not end before addr, or none.
func (a *Allocator) endingAfter(addr uint64) int32 {
	return a.planner.ends.first(Granule, addr)
}
