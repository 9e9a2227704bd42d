package bfc

// Register notes that others know the memory behind [addr, addr+size) by its physical pages: a communication library, a
// network card, another process. With growth Pages no request takes a page of it, so that it stays mapped where it is, until
// Deregister was called for the range as often. Other growths need no note: their memory refuses to unmap it.
func (a *Allocator) Register(addr, size uint64) {
	a.eachPage(addr, size, func(p *page) { p.registered++ })
}

// Deregister undoes a Register of the same range.
func (a *Allocator) Deregister(addr, size uint64) {
	a.eachPage(addr, size, func(p *page) { p.registered -= min(p.registered, 1) })
}

// eachPage visits the pages that a range touches, in all regions, as far as they are noted.
func (a *Allocator) eachPage(addr, size uint64, visit func(*page)) {
	end := addr + min(size, -addr-1)
	for i := range a.regions {
		r := &a.regions[i]
		from, to := max(addr, r.addr), min(end, r.end())
		if a.pager == nil || from >= to {
			continue
		}
		pages := a.pagesFrom(from, to-from)
		for k := range pages {
			visit(&pages[k])
		}
	}
}
