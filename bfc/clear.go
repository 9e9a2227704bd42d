package bfc

// Work that was queued before a free may still read the freed bytes, on any stream. Within an allocator the order of its
// stream makes reuse right. But a page that is unmapped, or gets another frame, changes under such a reader, whatever its
// order. So frees have numbers, and the owner says how far the work before them is over.

// Over says that all work that was queued before so many frees, on whatever stream, is over. Until the first call all
// work counts as over as soon as it is queued.
func (a *Allocator) Over(frees uint64) { a.over = frees }

// Frees returns how many blocks were freed or lost their slack so far.
func (a *Allocator) Frees() uint64 { return a.frees }

// IsClear says whether nobody can read a range of free memory any more: all work is over that was queued before blocks
// left its pages. Where pages are not noted it goes by the last free that is a part of the free chunk that has the range.
func (a *Allocator) IsClear(addr, bytes uint64) bool {
	if !a.notes() {
		index := a.freeAround(byteRange{addr, addr + bytes})
		return index != none && a.chunks[index].left <= a.over
	}
	for at := addr &^ (a.granularity - 1); at < addr+bytes; at += a.granularity {
		if !a.pageAt(at).isClear(a.over) {
			return false
		}
	}
	return true
}
