package tune

import (
	"cmp"
	"math"
	"slices"
)

// reclaim is what the hook does where a device lacks memory: what is free in all arenas, pools
// aside, goes back in whole handles, the newest arena first, until it is at least wanted bytes. It
// returns how many went.
func (p *replay) reclaim(device int32, wanted uint64) (given uint64) {
	p.reclaiming = true
	for _, h := range p.newestFirst() {
		if given < wanted && h.shape.device == device && !h.shape.pool && !h.paused {
			given += h.unmapFree(wanted - given)
		}
	}
	p.reclaiming = false
	return given
}

// newestFirst are the heaps in the order in which the hook visits arenas: by their first request.
func (p *replay) newestFirst() []*heap {
	var heaps []*heap
	p.each(func(h *heap) {
		if h.born > 0 {
			heaps = append(heaps, h)
		}
	})
	slices.SortFunc(heaps, func(a, b *heap) int { return cmp.Compare(b.born, a.born) })
	return heaps
}

// others has somebody else allocate: bytes are what the device then has in use that is none of the
// arenas'. Where there is too little room the hook gives back what lacks, and a granule for the
// device's rounding.
func (p *replay) others(device int32, bytes uint64) {
	p.beside[device] = bytes
	if used, most := p.used[device], p.mostOf(device); used > most {
		p.reclaim(device, used-most+p.granularity)
	}
}

// mostOf is the most that arenas can have mapped on a device: what was asked for, or else what others
// leave of all it has.
func (p *replay) mostOf(device int32) uint64 {
	if p.limited {
		return p.limit
	}
	total := p.totals[device]
	if total == 0 {
		return math.MaxInt64
	}
	return total - min(total, p.beside[device])
}

// unmapFree gives back whole handles of what is free, from the last address down, until it is at
// least wanted bytes, and returns how many.
func (h *heap) unmapFree(wanted uint64) (given uint64) {
	if h.handles.size == 0 {
		return h.bfc.UnmapFree(wanted)
	}
	for _, r := range slices.Backward(h.bfc.Idle(nil)) {
		if given >= wanted {
			break
		}
		addr, bytes := h.handles.last(r.Addr, r.Bytes, wanted-given)
		if bytes == 0 || h.bfc.Unmap(addr, bytes) != nil {
			continue
		}
		h.Unmap(addr, bytes)
		given += bytes
	}
	return given
}
