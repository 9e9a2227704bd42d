package torchalloc

// expand returns a block of at least size by mapping pages; nil: the device refuses. What was mapped
// before the refusal stays mapped and free.
func (a *Allocator) expand(p *pool, size, stream uint64) *Block {
	b := a.room(p, size, stream)
	if b == nil {
		return nil
	}
	if !b.mapped && !a.mapBlock(b, min(b.size, size)) {
		return nil
	}
	for b.size < size {
		next := b.next
		if !a.mapBlock(next, min(size-b.size, next.size)) {
			return nil
		}
		b = next // which has absorbed what was before it
	}
	p.free.Delete(b)
	return b
}

// room returns the first of adjacent idle blocks, mapped or not, whose sizes add up to size.
func (a *Allocator) room(p *pool, size, stream uint64) *Block {
	var found *Block
	a.key.stream = stream
	p.unmapped.Ascend(&a.key, func(b *Block) bool {
		if b.stream != stream {
			return false
		}
		if b.prev != nil && b.prev.idle() {
			b = b.prev
		}
		if roomy(b, size) {
			found = b
		}
		return found == nil
	})
	if found != nil {
		return found
	}
	bytes := (a.total + a.total/8 + p.page - 1) / p.page * p.page
	if bytes < size { // PyTorch reserves these addresses in vain, each time anew
		return nil
	}
	addr, ok := a.device.Reserve(bytes)
	if !ok {
		return nil
	}
	b := a.newSegment(p, addr, bytes, stream, p.page)
	p.unmapped.Set(b)
	return b
}

// roomy says whether the sizes of idle blocks from b on add up to size.
func roomy(b *Block, size uint64) bool {
	var sum uint64
	for ; sum < size && b != nil && b.idle(); b = b.next {
		sum += b.size
	}
	return sum >= size
}

// mapBlock maps the first bytes of an unmapped block, rounded up to pages, and makes a free block of them,
// merged with its neighbours.
func (a *Allocator) mapBlock(b *Block, bytes uint64) bool {
	page := b.segment.page
	bytes = (bytes + page - 1) / page * page
	if !a.device.Map(b.addr, bytes) {
		return false
	}
	a.stats.PagesMapped += bytes / page
	a.stats.reserve(bytes)
	p := b.pool
	p.unmapped.Delete(b)
	if bytes < b.size {
		p.unmapped.Set(b.cutBack(bytes))
	}
	b.mapped = true
	p.merge(b)
	p.insert(b)
	return true
}

// unmap unmaps the pages that lie wholly inside a free block. The bytes before and behind them stay free
// blocks. A reservation without mapped memory is released.
func (a *Allocator) unmap(b *Block) {
	s, p := b.segment, b.pool
	from := s.addr + (b.addr-s.addr+s.page-1)/s.page*s.page
	to := s.addr + (b.addr+b.size-s.addr)/s.page*s.page
	if from >= to {
		return
	}
	p.free.Delete(b)
	a.device.Unmap(from, to-from)
	a.stats.PagesUnmapped += (to - from) / s.page
	a.stats.unreserve(to - from)
	if from > b.addr {
		p.insert(b.cutFront(from - b.addr))
	}
	if to < b.addr+b.size {
		p.insert(b.cutBack(to - b.addr))
	}
	b.mapped = false
	p.merge(b)
	if b.whole() {
		a.device.Unreserve(b.addr, b.size)
		a.closeSegment(b)
		return
	}
	p.unmapped.Set(b)
}
