package bfc

import "math"

// Best fit knows nothing of pages. With growth Pages the chunk that it finds can lack pages whose frames serve
// blocks elsewhere by now: each gets another frame, which an owner that leaves old mappings in place has to map.
// A larger chunk that lacks fewer of them serves as well. Best fit stays where it has all its frames: a job that
// repeats itself keeps its addresses.
//
// An unmapped page of a free chunk is ready if the frame that it had last is free: that comes back. Otherwise it gets another
// frame, if it is clear. If it is not it is retired: somebody may still read it there.

const (
	// readyTries is how many chunks behind the best fit are looked at.
	readyTries = 16
	// readyFactor is how many times as large as the best fit they are at most: the largest chunks stay whole.
	readyFactor = 3
	// retired is the count of pages that move where one of them has a retired address.
	retired = math.MaxUint64
)

// mostReady returns, of the best fit and the next larger chunks, the first that moves the fewest pages, or for a request below
// the size of a page the first; none if all have retired addresses.
func (a *Allocator) mostReady(best int32, rounded uint64) int32 {
	if a.pager == nil {
		return best
	}
	size, index := a.chunks[best].size, best
	taken, least := a.handedOut(size, rounded), a.moves(a.reach(best, rounded))
	if least == retired {
		best = none
	}
	for range readyTries {
		if best != none && (least == 0 || rounded < a.granularity) {
			break
		}
		if index = a.free.after(index); index == none || a.chunks[index].size/readyFactor > size {
			break
		}
		if a.handedOut(a.chunks[index].size, rounded) > taken {
			continue
		}
		if moves := a.moves(a.reach(index, rounded)); moves < least {
			best, least = index, moves
		}
	}
	return best
}

// hasRetired says whether r, a part of a free chunk, has a retired address.
func (a *Allocator) hasRetired(r byteRange) bool {
	return a.pager != nil && !a.unmapped.empty() && a.moves(r) == retired
}

// moves returns how many unmapped pages of r, a part of a free chunk, cannot get the frame that they had last: they
// had none, or a block, a registration or another page of r keeps it where it is. It is retired if one of them is.
func (a *Allocator) moves(r byteRange) uint64 {
	count := uint64(0)
	for i := a.unmapped.from(r.from); i < len(a.unmapped.ranges) && a.unmapped.ranges[i].from < r.to; i++ {
		gap := a.unmapped.ranges[i]
		for addr := max(gap.from, r.from); addr < min(gap.to, r.to); addr += a.granularity {
			if a.ready(addr, r) {
				continue
			}
			if !a.pageAt(addr).isClear(a.over) {
				return retired
			}
			count++
		}
	}
	return count
}

// ready says whether an unmapped page of r can get the frame that it had last.
func (a *Allocator) ready(addr uint64, r byteRange) bool {
	at := a.pageAt(addr)
	if at == nil || at.back == 0 {
		return false
	}
	now := a.pager.frames[at.back-1].page
	if now == noPage {
		return true
	}
	other := a.pageAt(now)
	return other != nil && !other.live && other.registered == 0 && (now < r.from || now >= r.to)
}
