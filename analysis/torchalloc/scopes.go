package torchalloc

import (
	"fmt"
	"slices"
)

// UsePool makes a private pool if there is none of that id, and adds a use of it, as creating a MemPool
// does.
func (a *Allocator) UsePool(id PoolID) {
	p := a.private[id]
	if p == nil {
		p = &privatePool{id: id}
		p.small = newPool(true, p, a)
		p.large = newPool(false, p, a)
		a.private[id] = p
	}
	if p.uses == 0 {
		a.unused = slices.DeleteFunc(a.unused, func(u *privatePool) bool { return u == p })
	}
	p.uses++
}

// BeginPool sends requests of the streams that accept returns true for to a private pool, until EndPool.
// It counts as a use of the pool.
func (a *Allocator) BeginPool(id PoolID, accept func(stream uint64) bool) {
	a.UsePool(id)
	a.scopes = append(a.scopes, scope{a.private[id], accept})
}

// EndPool closes the pool's scope.
func (a *Allocator) EndPool(id PoolID) error {
	for i := range a.scopes {
		if a.scopes[i].pool.id == id {
			a.scopes = append(a.scopes[:i:i], a.scopes[i+1:]...)
			return nil
		}
	}
	return fmt.Errorf("pool %d.%d has no open scope", id[0], id[1])
}

// ReleasePool ends one use of a pool. After the last one its free memory is released at the next release
// of everything.
func (a *Allocator) ReleasePool(id PoolID) error {
	p := a.private[id]
	if p == nil || p.uses == 0 {
		return fmt.Errorf("pool %d.%d is not in use", id[0], id[1])
	}
	p.uses--
	if p.uses == 0 {
		a.unused = append(a.unused, p)
	}
	return nil
}

// EmptyPool releases the free memory of an unused pool, as the end of a MemPool does. Its pending blocks
// are completed.
func (a *Allocator) EmptyPool(id PoolID) {
	p := a.private[id]
	if p == nil || p.uses > 0 {
		return
	}
	for _, b := range a.Pending() {
		if b.pool.owner == p {
			a.Complete(b)
		}
	}
	a.unused = slices.DeleteFunc(a.unused, func(u *privatePool) bool { return u == p && a.releasePrivate(u) })
}

// releasePrivate releases the free memory of an unused pool, and returns whether that was all of it.
func (a *Allocator) releasePrivate(p *privatePool) bool {
	a.releasePool(p.small)
	a.releasePool(p.large)
	if p.segments == 0 {
		delete(a.private, p.id)
	}
	return p.segments == 0
}

// enter sends requests to a private pool until the returned function is called. first says that it was not in use.
func (a *Allocator) enter(id PoolID, first bool) (leave func()) {
	if first {
		a.UsePool(id)
	}
	a.BeginPool(id, func(uint64) bool { return true })
	return func() { _, _ = a.EndPool(id), a.ReleasePool(id) } // it exists
}

// carve hands out the bytes at an address of a free block, which keeps what is before them.
func (a *Allocator) carve(b *Block, addr, size, requested uint64) *Block {
	p := b.pool
	p.free.Delete(b)
	if addr > b.addr {
		front := b
		b = front.cutBack(addr - front.addr)
		p.insert(front)
	}
	if size < b.size {
		p.insert(b.cutBack(size))
	}
	b.allocated, b.requested = true, requested
	a.stats.served(b)
	return b
}
