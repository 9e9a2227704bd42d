package tune

// unplaced are the handles of a heap with growth pages. There a page that is free can be mapped at another
// address while its old mapping stays: the hook unmaps that only when the address needs another handle. A
// handle is one page.
type unplaced struct {
	page   uint64
	mapped map[uint64]int32 // the handle that an address has a mapping of, old or in use
	free   []int32          // handles that no address uses, in the order in which they became free; some may by now
	isFree []bool           // by handle
	count  int              // of handles that are free
	dead   []bool           // by handle: it was released
}

func newUnplaced(page uint64) *unplaced { return &unplaced{page: page, mapped: map[uint64]int32{}} }

// unplace frees the handles of a range; their mappings stay.
func (l *unplaced) unplace(addr, bytes uint64) {
	for at := addr; at < addr+bytes; at += l.page {
		handle := l.mapped[at]
		l.isFree[handle] = true
		l.count++
		l.free = append(l.free, handle)
	}
}

// end releases the handles of a range with all their mappings.
func (l *unplaced) end(addr, bytes uint64) {
	for at := addr; at < addr+bytes; at += l.page {
		l.dead[l.mapped[at]] = true
		delete(l.mapped, at)
	}
}

// use gives a handle to each page of a range: the one that is still mapped there, if it is free, else one that
// is free, else a new one. Handles of more than a page are all new. It returns how many are new, how many are mapped at another address than
// before, and how many old mappings are unmapped.
func (l *unplaced) use(addr, bytes, size uint64) (created, moved, unmapped int64) {
	var lack []uint64
	for at := addr; at < addr+bytes; at += l.page {
		if handle, old := l.mapped[at]; old && l.isFree[handle] && size <= l.page {
			l.isFree[handle] = false
			l.count--
		} else {
			lack = append(lack, at)
		}
	}
	for _, at := range lack {
		if old, is := l.mapped[at]; is && !l.dead[old] {
			unmapped++
		}
		handle, ok := l.take(size > l.page)
		if l.mapped[at] = handle; ok {
			moved++
		} else {
			created++
		}
	}
	if l.count == 0 {
		l.free = l.free[:0]
	}
	return (created + int64(size/l.page) - 1) / int64(size/l.page), moved, unmapped
}

// replaces says whether an address of a range has an old mapping of a handle that it cannot have back: it would have to be unmapped first.
func (l *unplaced) replaces(addr, bytes uint64) bool {
	for at := addr; at < addr+bytes; at += l.page {
		if handle, old := l.mapped[at]; old && !l.isFree[handle] && !l.dead[handle] {
			return true
		}
	}
	return false
}

// putBack takes a handle that no address uses, and returns the lowest address that still has a mapping of it; ok is false if there is no
// such handle. One without a mapping is released.
func (l *unplaced) putBack() (addr uint64, ok bool) {
	for len(l.free) > 0 {
		handle, taken := l.take(false)
		if !taken {
			break
		}
		for at, has := range l.mapped {
			if has == handle && (!ok || at < addr) {
				addr, ok = at, true
			}
		}
		if ok {
			return addr, true
		}
		l.dead[handle] = true
	}
	return 0, false
}

// take returns a handle that is free and no new one, unless it has to be new or none is free.
func (l *unplaced) take(isNew bool) (handle int32, ok bool) {
	for !isNew && len(l.free) > 0 {
		handle = l.free[len(l.free)-1]
		l.free = l.free[:len(l.free)-1]
		if l.isFree[handle] {
			l.isFree[handle] = false
			l.count--
			return handle, true
		}
	}
	l.isFree, l.dead = append(l.isFree, false), append(l.dead, false)
	return int32(len(l.isFree) - 1), false
}

// putBack maps what a request unplaced and did not map where it was, as the hook does: no driver call is needed.
func (p *replay) putBack(h *heap) {
	if h.unplaced == nil || h.unplaced.count == 0 {
		return
	}
	for addr, ok := h.unplaced.putBack(); ok; addr, ok = h.unplaced.putBack() {
		if h.bfc.Remap(addr, h.unplaced.page) == nil && h.Device.Map(addr, h.unplaced.page) {
			h.handles.add(addr, h.unplaced.page, h.unplaced.page)
			h.count(int64(h.unplaced.page))
		}
	}
}
