package bfc

// idle returns the one chunk of a region without a block; none for other regions.
func (a *Allocator) idle(r *region) int32 {
	wall := &a.chunks[r.wall]
	if wall.next != wall.prev || a.chunks[wall.next].id != freeID {
		return none
	}
	return wall.next
}

// worthCollecting says whether idle regions have mapped bytes, and the request would be within the
// limit without them.
func (a *Allocator) worthCollecting(rounded uint64) bool {
	mapped := uint64(0)
	for i := range a.regions {
		if r := &a.regions[i]; a.idle(r) != none {
			mapped += r.size - a.unmapped.within(r.addr, r.end())
		}
	}
	return mapped > 0 && rounded <= a.room()+mapped
}

// CollectGarbage releases each region without a block, addresses ascending, and returns how many
// bytes were mapped in them. The size of the next region stays.
func (a *Allocator) CollectGarbage() uint64 {
	released := uint64(0)
	kept := a.regions[:0]
	for i := range a.regions {
		r := a.regions[i]
		if a.idle(&r) == none {
			kept = append(kept, r)
			continue
		}
		released += a.release(&r)
	}
	a.regions = kept
	return released
}

// release removes an idle region and calls Memory.Release for it. It returns how many bytes were
// mapped.
func (a *Allocator) release(r *region) uint64 {
	all := a.chunks[r.wall].next
	a.free.remove(all)
	a.recycle(all)
	a.recycle(r.wall)
	if a.lastGrown == r.wall {
		a.lastGrown = none
	}
	mapped := r.size - a.unmapped.within(r.addr, r.end())
	a.unbacked(byteRange{r.addr, r.end()})
	a.unmapped.remove(byteRange{r.addr, r.end()})
	a.stats.Reserved -= mapped
	a.memory.Release(r.addr, r.size)
	return mapped
}
