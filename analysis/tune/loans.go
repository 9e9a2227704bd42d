package tune

// loans are the handles of a heap with growth pages. There a page that is free can be mapped at another
// address while its old mapping stays: the hook unmaps that only when the address needs another handle. A
// handle is one page.
type loans struct {
	page   uint64
	mapped map[uint64]int32 // the handle that an address has a mapping of, old or in use
	free   []int32          // handles that no address uses, in the order in which they became free; some may by now
	isFree []bool           // by handle
	count  int              // of handles that are free
	dead   []bool           // by handle: it was released
}

func newLoans(page uint64) *loans { return &loans{page: page, mapped: map[uint64]int32{}} }

// lend frees the handles of a range; their mappings stay.
func (l *loans) lend(addr, bytes uint64) {
	for at := addr; at < addr+bytes; at += l.page {
		handle := l.mapped[at]
		l.isFree[handle] = true
		l.count++
		l.free = append(l.free, handle)
	}
}

// end releases the handles of a range with all their mappings.
func (l *loans) end(addr, bytes uint64) {
	for at := addr; at < addr+bytes; at += l.page {
		l.dead[l.mapped[at]] = true
		delete(l.mapped, at)
	}
}

// use gives a handle to each page of a range: the one that is still mapped there, if it is free, else one that
// is free, else a new one. It returns how many are new, how many are mapped at another address than before, and
// how many old mappings are unmapped.
func (l *loans) use(addr, bytes uint64) (created, moved, unmapped int64) {
	var lack []uint64
	for at := addr; at < addr+bytes; at += l.page {
		if handle, old := l.mapped[at]; old && l.isFree[handle] {
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
		handle, ok := l.take()
		if ok {
			moved++
		} else {
			created++
		}
		l.mapped[at] = handle
	}
	if l.count == 0 {
		l.free = l.free[:0]
	}
	return created, moved, unmapped
}

// replaces says whether an address of a range has an old mapping of a handle that it cannot have back: it would have to be unmapped first.
func (l *loans) replaces(addr, bytes uint64) bool {
	for at := addr; at < addr+bytes; at += l.page {
		if handle, old := l.mapped[at]; old && !l.isFree[handle] && !l.dead[handle] {
			return true
		}
	}
	return false
}

// drop releases the handles that no address uses, with all their mappings, and returns how many.
func (l *loans) drop() int64 {
	count := int64(l.count)
	for _, handle := range l.free {
		l.dead[handle] = l.dead[handle] || l.isFree[handle]
		l.isFree[handle] = false
	}
	l.free, l.count = l.free[:0], 0
	return count
}

// take returns a handle that is free, or a new one.
func (l *loans) take() (handle int32, ok bool) {
	for len(l.free) > 0 {
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

// keeps returns the bytes of handles of a heap that no address uses. Between requests it has some only after one that was made while a
// stream was captured.
func (h *heap) keeps() uint64 {
	if h.loans == nil {
		return 0
	}
	return uint64(h.loans.count) * h.loans.page
}

// releaseKept releases these handles, and returns their bytes.
func (h *heap) releaseKept() uint64 {
	bytes := h.keeps()
	if bytes > 0 {
		h.calls().unmapHandles += h.loans.drop()
		h.replay.kept[h.shape.device] -= bytes
	}
	return bytes
}
