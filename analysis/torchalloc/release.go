package torchalloc

import (
	"errors"
	"slices"
)

// ErrInScope is the error of a release that torch 2.6 refuses while a scope is open.
var ErrInScope = errors.New("torch 2.6 releases nothing in a scope")

// EmptyCache releases free memory, as torch.cuda.empty_cache does.
func (a *Allocator) EmptyCache() error {
	if len(a.scopes) > 0 && !a.rules.scopeRelease {
		return ErrInScope
	}
	a.releaseAll()
	return nil
}

// releaseAll releases whole free segments and free pages; in a scope only those of unused private pools.
func (a *Allocator) releaseAll() {
	if len(a.scopes) == 0 {
		a.freeDeferred()
		for _, b := range a.pending {
			a.complete(b)
		}
		a.pending = nil
		a.releasePool(a.large)
		a.releasePool(a.small)
	}
	a.unused = slices.DeleteFunc(a.unused, a.releasePrivate)
}

func (a *Allocator) releasePool(p *pool) {
	var expandable []*Block
	for _, b := range p.blocks() {
		if b.expandable() {
			expandable = append(expandable, b)
		} else if b.whole() {
			a.release(b)
		}
	}
	for _, b := range expandable {
		a.unmap(b)
	}
}

// release releases a whole free segment.
func (a *Allocator) release(b *Block) {
	b.pool.free.Delete(b)
	a.device.Free(b.addr, b.size)
	a.stats.DeviceFrees++
	a.stats.unreserve(b.size)
	a.closeSegment(b)
}

// releaseOversize releases free blocks of at least S until they have a rounded size; false: they do not,
// or S is off.
func (a *Allocator) releaseOversize(p *pool, size, stream uint64) bool {
	s := a.settings.MaxSplit
	if s == unlimited {
		return false
	}
	want := max(size, s)
	key := &Block{stream: stream, size: want}
	var single *Block
	p.free.Ascend(key, func(b *Block) bool {
		if b.stream == stream && !b.expandable() {
			single = b
		}
		return false
	})
	if single != nil {
		a.release(single)
		return true
	}
	var several []*Block
	var sum uint64
	p.free.Descend(key, func(b *Block) bool {
		if b.stream != stream || b.size < s || sum >= want {
			return false
		}
		if !b.expandable() {
			sum += b.size
			several = append(several, b)
		}
		return true
	})
	for _, b := range several {
		a.release(b)
	}
	return sum >= want
}

// collects says whether garbage collection is on.
func (a *Allocator) collects() bool {
	return a.limit != unlimited && a.settings.GarbageCollection > 0
}

// collectGarbage releases old whole segments while more than the threshold is reserved.
func (a *Allocator) collectGarbage() {
	threshold := uint64(a.settings.GarbageCollection * float64(a.limit))
	if a.stats.Reserved.Now <= threshold {
		return
	}
	aim := a.stats.Reserved.Now - threshold
	age := func(b *Block) uint64 { return a.large.searches - b.since }
	var ages, count uint64
	for _, b := range a.large.blocks() {
		if b.whole() {
			ages += age(b)
			count++
		}
	}
	if count == 0 {
		return
	}
	var got uint64
	for freed := true; got < aim && freed && count > 0; {
		mean := float64(ages) / float64(count)
		freed = false
		for _, b := range a.large.blocks() {
			if b.whole() && !b.expandable() && float64(age(b)) >= mean {
				freed = true
				got += b.size
				ages -= age(b)
				count--
				a.release(b)
			}
		}
	}
}
