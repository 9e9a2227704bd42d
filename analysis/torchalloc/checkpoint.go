package torchalloc

// restored serves a request in the open scope as a checkpoint does, if the block is one of a checkpoint: where
// the rules have it too, nil is returned. The block at addr is a whole segment, or lies behind last, which was handed out
// before it; nothing but addresses without memory is behind it.
func (a *Allocator) restored(n, addr, stream uint64, last *Block) *Block {
	size := a.settings.Round(n)
	if ruled := a.find(a.poolOf(size, stream), size, stream); size != n || ruled != nil && ruled.addr == addr {
		return nil
	}
	owner := a.scopes[len(a.scopes)-1].pool
	for _, p := range [...]*pool{owner.small, owner.large} {
		for _, b := range p.blocks() {
			ends := b.next == nil || !b.next.mapped
			if b.addr == addr && b.stream == stream && b.size >= n && ends && (b.prev == nil || b.prev == last) {
				p.free.Delete(b)
				return a.serve(b, n, n, b.size > n)
			}
		}
	}
	return nil
}
