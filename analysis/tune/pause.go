package tune

import (
	"cmp"
	"slices"

	"github.com/memprof/memprof/analysis/accounting"
)

// pause subtracts a heap's memory from what is mapped, and its blocks from what is live.
func (p *replay) pause(h *heap) {
	if h == nil || h.paused {
		return
	}
	h.count(-int64(h.bfc.Stats().Reserved))
	t, c := p.liveIn(h)
	p.t, p.c = p.t-t, p.c-c
	p.onCard(h.on, -int64(t), false)
	h.paused = true
	h.changed()
}

// resume takes the heaps that one call resumes, and maps their memory when it has the last of them: but for pages without a block, unless
// the call wants these, too, and the device has the memory. A call that failed makes room, and maps nothing.
func (p *replay) resume(h *heap, o *op) {
	if h != nil && h.paused {
		p.resuming = append(p.resuming, h)
	}
	if o.bytes > 0 || len(p.resuming) == 0 {
		return
	}
	for _, h := range p.resuming {
		if !o.free || h.bfc.Stats().BytesInUse == 0 {
			h.leaveOutFree()
		}
	}
	for d, needed := range p.resumeNeeds() {
		if needed > p.room(d) {
			p.resumeShort(d, o)
		}
	}
	p.freeEnding()
	for _, h := range p.resuming {
		if !o.failed {
			p.resumed(h)
		}
	}
	p.resuming = p.resuming[:0]
}

// resumeNeeds returns what the heaps under way map of their devices, in bytes.
func (p *replay) resumeNeeds() map[*device]uint64 {
	needs := map[*device]uint64{}
	for _, h := range p.resuming {
		needs[h.on] += h.bfc.Stats().Reserved
	}
	return needs
}

// resumeShort leaves out all free pages, and unmaps free memory of other heaps where the device lacks more than that. A resume that still
// lacks memory is refused.
func (p *replay) resumeShort(d *device, o *op) {
	for _, h := range p.resuming {
		h.leaveOutFree()
	}
	needed := p.resumeNeeds()[d]
	if room := p.room(d); needed > room {
		p.freePending(d)
		if needed <= d.total {
			p.shortage(d)
		}
		p.reclaim(d, needed-room+p.granularity)
	}
	switch {
	case needed <= p.room(d):
	case o.failed && p.card == nil:
	default:
		p.refuse(accounting.Refusal{Seq: o.seq, Device: d.number, Bytes: int64(needed)})
	}
}

// leaveOutFree unmaps the pages of a paused heap that hold no block: a resume does not map them. A graph uses free memory of its pool.
func (h *heap) leaveOutFree() {
	if h.pinned {
		return
	}
	for _, r := range h.bfc.Idle() {
		if h.bfc.Unmap(r.Addr, r.Bytes) == nil {
			h.Device.Unmap(r.Addr, r.Bytes)
		}
	}
}

// resumed adds what is left of a heap's memory and blocks.
func (p *replay) resumed(h *heap) {
	h.paused = false
	t, c := p.liveIn(h)
	p.t, p.c = p.t+t, p.c+c
	p.onCard(h.on, int64(t), false)
	h.handles.remake(h.bfc.Mapped(), p.largeIn(h), h.on.shortNow)
	h.count(int64(h.bfc.Stats().Reserved))
}

// largeIn returns the whole pages of a heap's blocks, by address; none if the device has been short of memory. It visits all blocks, since
// resumes are rare.
func (p *replay) largeIn(h *heap) []span {
	if h.on.shortage {
		return nil
	}
	page := h.handles.page
	var whole []span
	for i := range p.blocks {
		if b := &p.blocks[i]; b.heap == h {
			whole = append(whole, span{(b.addr + page - 1) &^ (page - 1), (b.addr + b.size) &^ (page - 1)})
		}
	}
	slices.SortFunc(whole, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	return whole
}

// liveIn sums the live blocks of a heap. It visits all blocks, since pauses are rare.
func (p *replay) liveIn(h *heap) (t, c uint64) {
	for i := range p.blocks {
		if b := &p.blocks[i]; b.heap == h && !b.pending {
			t += b.requested
			c += b.size
		}
	}
	return t, c
}
