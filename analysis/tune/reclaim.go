package tune

import (
	"math"
	"slices"
)

// everything is more bytes than there are.
const everything = math.MaxInt64

// reclaim unmaps free memory of a device when a request lacks memory, as the hook does: whole handles
// of all arenas but those of pools that somebody holds, the newest arena first, until it is at least wanted bytes. It
// returns how many bytes it unmapped.
func (p *replay) reclaim(d *device, wanted uint64) (unmapped uint64) {
	if p.captures > 0 { // what is over by then is not known
		return 0
	}
	p.reclaiming = true
	for at := range p.mayUnmap.descending() {
		h := p.born[at]
		if h.on != d {
			continue
		}
		if unmapped += h.unmapFree(wanted - unmapped); unmapped >= wanted {
			break
		}
		p.mayUnmap.put(at, false)
	}
	p.reclaiming = false
	return unmapped
}

// shortage has the heaps of a device count pages, since it is short of memory, and frees the slack of their
// blocks, as the hook does. changed is false if both were so already.
func (p *replay) shortage(d *device) (changed bool) {
	changed = !d.shortage || !d.shortNow
	if !d.shortage {
		p.each(func(h *heap) {
			if h.on == d {
				h.bfc.Shortage()
			}
		})
	}
	d.shortage, d.shortNow = true, true
	shrinking := map[*heap]bool{}
	p.unshrunk = slices.DeleteFunc(p.unshrunk, func(h *heap) bool {
		if h.on != d || h.paused {
			return false
		}
		changed = true
		if !h.lean {
			shrinking[h] = true
		}
		return true
	})
	if len(shrinking) > 0 {
		p.shrink(shrinking)
	}
	return changed
}

// emptied ends what a shortage does to handles, as the hook does once the program had all free memory unmapped: if no
// more is mapped than can be mapped.
func (p *replay) emptied(d *device) {
	if d.used <= p.room(d) {
		d.shortNow = false
	}
}

// shrink frees the slack of the blocks of heaps.
func (p *replay) shrink(heaps map[*heap]bool) {
	for i := range p.blocks {
		b := &p.blocks[i]
		if b.pending || !heaps[b.heap] {
			continue
		}
		slack := b.heap.bfc.ShrinkNumber(b.number)
		p.c -= slack
		b.size -= slack
	}
	for h := range heaps {
		h.changed()
	}
}

// others notes that another library allocates: bytes are all that others than the arenas then use.
// Where the device has too little, the hook unmaps what lacks, and one page for the rounding of the
// device.
func (p *replay) others(d *device, bytes uint64) {
	d.others = bytes
	if used, most := d.used, p.mostOf(d); used > most {
		p.shortage(d)
		p.reclaim(d, used-most+p.granularity)
	}
}

// mostOf returns the most bytes that arenas can have mapped on a device: --limit, or else what others do
// not use of the device.
func (p *replay) mostOf(d *device) uint64 {
	if p.limited {
		return p.limit
	}
	if d.total == 0 {
		return math.MaxInt64
	}
	return d.total - min(d.total, d.others)
}

// room returns how many bytes more arenas can map on a device.
func (p *replay) room(d *device) uint64 {
	most := p.mostOf(d)
	return most - min(most, d.used)
}

// unmapFree unmaps free whole handles, last first, until it is at least wanted bytes, and returns how
// many bytes.
func (h *heap) unmapFree(wanted uint64) (unmapped uint64) {
	for _, r := range slices.Backward(h.bfc.Idle()) {
		if unmapped >= wanted {
			break
		}
		addr, bytes := h.handles.last(r.Addr, r.Bytes, wanted-unmapped)
		if bytes == 0 || h.bfc.Unmap(addr, bytes) != nil {
			continue
		}
		h.Unmap(addr, bytes)
		unmapped += bytes
	}
	return unmapped
}

// trimSlice is how many bytes a trim unmaps at a time. The hook has the same.
const trimSlice = 16 << 20

// trim unmaps what the iteration that ended has not touched, as far as it is whole handles.
func (h *heap) trim() {
	for _, r := range h.bfc.Excess() {
		from, to := h.handles.within(r.Addr, r.Bytes)
		end := to
		for to > from {
			addr, bytes := h.handles.last(from, to-from, trimSlice)
			if h.bfc.Unmap(addr, bytes) != nil {
				break
			}
			to = addr
		}
		if end > to {
			h.Unmap(to, end-to)
		}
	}
}
