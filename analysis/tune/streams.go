package tune

import "github.com/memprof/memprof/bfc"

// takeElsewhere takes for a request what heaps of other streams hold idle, before its own heap maps so many bytes, as the hook
// does. What they hold counts as over: when the device finished work is not in the recording of another policy.
func (p *replay) takeElsewhere(h *heap, bytes uint64) {
	if p.policy.Preset != bfc.Compact || !p.inRequest {
		return
	}
	s := &h.on.streams
	want := s.Want(bytes, h.released, h.on.used, h.on.touched)
	if p.captures > 0 || want == 0 {
		return
	}
	for at := range p.movable.descending() { // the newest first
		each := p.born[at]
		if each == h || each.on != h.on {
			continue
		}
		if want == 0 {
			break
		}
		taken := each.give(h, want)
		s.Took(taken)
		h.released += taken
		want -= min(want, taken)
	}
}

// gives says whether other heaps take its idle pages.
func (h *heap) gives() bool { return h.unplaced != nil }

// give unmaps idle pages, at least as many bytes as another heap wants if there are so many. Their handles serve it
// where they are as large as its own.
func (h *heap) give(to *heap, wanted uint64) (bytes uint64) {
	page := h.unplaced.page
	for _, r := range h.bfc.Movable((wanted + page - 1) / page) {
		if h.bfc.Unmap(r.Addr, r.Bytes) != nil {
			continue
		}
		h.Device.Unmap(r.Addr, r.Bytes)
		h.handles.remove(r.Addr, r.Bytes)
		h.unplaced.end(r.Addr, r.Bytes)
		h.calls().oldMappings += int64(r.Bytes / page)
		if to.unplaced != nil && to.unplaced.page == page {
			to.unplaced.receive(int(r.Bytes / page))
		}
		h.count(-int64(r.Bytes))
		bytes += r.Bytes
	}
	return bytes
}

// receive adds handles that another heap gave, which no address uses.
func (l *unplaced) receive(count int) {
	for range count {
		l.isFree, l.dead = append(l.isFree, true), append(l.dead, false)
		l.free = append(l.free, int32(len(l.isFree)-1))
		l.count++
	}
}
