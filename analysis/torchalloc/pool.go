package torchalloc

import "github.com/tidwall/btree"

// pool is the blocks of one size class.
type pool struct {
	small    bool
	owner    *privatePool          // nil: the default pair
	free     *btree.BTreeG[*Block] // idle and mapped, in the order of the search
	unmapped *btree.BTreeG[*Block] // by (stream, address)
	searches uint64                // for the ages of blocks; counted while garbage is collected
	page     uint64                // of its expandable segments
}

func newPool(small bool, owner *privatePool, a *Allocator) *pool {
	p := &pool{small: small, owner: owner, page: a.settings.LargeSegment}
	if small {
		p.page = smallSegment
	}
	options := btree.Options{NoLocks: true}
	byAddress := func(a, b *Block) bool {
		return a.stream < b.stream || a.stream == b.stream && a.addr < b.addr
	}
	byNumber := a.rules.creationOrder
	bySize := func(x, y *Block) bool {
		switch {
		case x.stream != y.stream:
			return x.stream < y.stream
		case x.size != y.size:
			return x.size < y.size
		case x.segment == y.segment:
			return x.addr < y.addr
		case byNumber:
			return x.number() < y.number()
		}
		a.placed = a.placed || x.segment != nil && y.segment != nil
		return x.addr < y.addr
	}
	p.free = btree.NewBTreeGOptions(bySize, options)
	p.unmapped = btree.NewBTreeGOptions(byAddress, options)
	return p
}

// number is the segment's; 0 of a key, which comes before every block of its size.
func (b *Block) number() uint64 {
	if b.segment == nil {
		return 0
	}
	return b.segment.number
}

// insert makes an idle, mapped block available to requests.
func (p *pool) insert(b *Block) {
	b.since = p.searches
	p.free.Set(b)
}

// remove removes an idle block from the order that it is in.
func (p *pool) remove(b *Block) {
	if b.mapped {
		p.free.Delete(b)
	} else {
		p.unmapped.Delete(b)
	}
}

// blocks returns a copy of the list of free blocks, in order, so that the caller may release them.
func (p *pool) blocks() []*Block { return p.free.Items() }

// merge makes idle neighbours of the same kind part of b, which is in no order.
func (p *pool) merge(b *Block) {
	for _, other := range [...]*Block{b.prev, b.next} {
		if other != nil && other.idle() && other.mapped == b.mapped {
			p.remove(other)
			b.absorb(other)
		}
	}
}

// PoolID names a private pool, as torch's pair of numbers does.
type PoolID [2]uint64

// privatePool is the pools of a CUDA graph or a MemPool.
type privatePool struct {
	id           PoolID
	small, large *pool
	uses         int // BeginPool less ReleasePool
	segments     int // not yet released
}

// scope routes requests to a private pool.
type scope struct {
	pool   *privatePool
	accept func(stream uint64) bool
}
