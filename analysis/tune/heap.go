package tune

import (
	"github.com/memprof/memprof/bfc"
)

// heap is one arena under a policy. It is its allocator's Memory: addresses come from a device of its
// own, and mapped bytes are counted on the replay's devices.
type heap struct {
	*bfc.Device
	bfc      *bfc.Allocator
	replay   *replay
	shape    *shape
	on       *device
	handles  handles
	unplaced *unplaced // nil but with growth pages
	reserved uint64    // bytes that it has mapped
	released uint64    // of the request under way: bytes unmapped for it, and not mapped
	inUse    uint64    // its part of device.touched
	born     int       // number of its first request among those of all heaps, from 1; 0: it has served none
	trimmed  bool      // its arena has the policy's trim
	paused   bool
	lean     bool // its blocks have no slack: they were placed in a shortage
	pinned   bool // it is of a pool that somebody holds: nothing of it is unmapped
}

var _ bfc.Memory = (*heap)(nil)

func newHeap(p *replay, s *shape) *heap {
	policy := p.policy
	policy.Limit, policy.Headroom = s.limit, s.headroom
	reservation := s.reservation
	if p.limited && p.limit > s.limit { // a larger device than the recorded one
		reservation = max(reservation, bfc.MainReservation(p.limit))
		if s.limit > 0 {
			policy.Limit = p.limit
		}
	}
	got := policy.ForArena(bfc.Arena{
		OtherStream: !s.main, Pool: s.pool, Tag: s.tag, Total: bfc.NoLimit, Granularity: s.granularity,
	})
	h := &heap{replay: p, shape: s, on: p.on(s.device), pinned: s.pool, trimmed: got.Trim.When != bfc.TrimNever}
	size := (got.Handle + got.Page - 1) / got.Page * got.Page
	if got.Growth == bfc.Pages {
		h.unplaced = newUnplaced(got.Page)
	}
	h.handles = handles{page: got.Page, size: size, fine: got.Fine, pages: got.Growth == bfc.Pages}
	h.Device = bfc.NewDevice(bfc.DeviceOptions{VMM: true, Granularity: got.Page, Reservation: reservation})
	var err error
	if h.bfc, err = bfc.New(got.Options, h); err != nil {
		panic("tune: options that New does not take: " + err.Error()) // granularity and options were checked before
	}
	expected := 0
	if s.main {
		expected = cap(p.blocks)
	}
	h.bfc.Expect(expected)
	if h.on.shortage {
		h.bfc.Shortage()
		h.lean = true
	}
	return h
}

// count adds to the bytes mapped on the heap's device.
func (h *heap) count(bytes int64) {
	p := h.replay
	h.reserved += uint64(bytes)
	h.on.used += uint64(bytes)
	p.r += uint64(bytes)
	h.changed()
	if bytes > 0 {
		p.peak()
	}
}

// calls returns the counters for a driver call made now.
func (h *heap) calls() *calls {
	if h.replay.inRequest {
		return &h.replay.current.path
	}
	return &h.replay.current.background
}

// mapped counts a range that was mapped, which is free of the device no longer.
func (h *heap) mapped(addr, bytes uint64) {
	size := h.handles.next(bytes, h.Free(), h.on.shortNow)
	if h.unplaced == nil {
		h.calls().mapHandles += handlesOf(bytes)
	} else {
		if bytes <= uint64(h.unplaced.count)*h.handles.page {
			size = h.handles.page
		}
		created, moved, old := h.unplaced.use(addr, bytes, size)
		h.calls().mapHandles += created
		h.calls().movedHandles += moved
		h.calls().oldMappings += old
	}
	h.handles.add(addr, bytes, size)
	h.released -= min(h.released, bytes)
	h.count(int64(bytes))
}

// Grow refuses where the device has too little free.
func (h *heap) Grow(bytes uint64) (addr, granted uint64, ok bool) {
	page := h.Granularity()
	whole := (bytes + page - 1) / page * page
	h.replay.takeElsewhere(h, whole)
	if whole > h.Free() {
		return 0, 0, false
	}
	if addr, granted, ok = h.Device.Grow(bytes); ok {
		h.mapped(addr, granted)
	}
	return addr, granted, ok
}

// Map maps pages that were unmapped.
func (h *heap) Map(addr, bytes uint64) bool {
	p := h.replay
	p.takeElsewhere(h, bytes)
	if bytes > h.Free() || p.captures > 0 && h.unplaced != nil && h.unplaced.replaces(addr, bytes) || !h.Device.Map(addr, bytes) {
		return false
	}
	h.mapped(addr, bytes)
	return true
}

// Unmap unmaps pages: to undo a Map, or whole handles.
func (h *heap) Unmap(addr, bytes uint64) {
	h.Device.Unmap(addr, bytes)
	h.unmapped(addr, bytes)
}

// TryUnmap unmaps whole handles; of those that move, pages.
func (h *heap) TryUnmap(addr, bytes uint64) bool {
	from, to := h.handles.within(addr, bytes)
	if from != addr || to != addr+bytes || h.unplaced != nil && h.handles.find(addr) != h.handles.find(to) || !h.Device.TryUnmap(addr, bytes) {
		return false
	}
	h.unmapped(addr, bytes)
	return true
}

// unmapped counts a range that was unmapped. What a request unmaps is unplaced to what it maps next.
func (h *heap) unmapped(addr, bytes uint64) {
	h.handles.remove(addr, bytes)
	h.released += bytes
	if h.unplaced != nil && h.replay.inRequest && !h.replay.reclaiming {
		h.unplaced.unplace(addr, bytes)
		h.count(-int64(bytes))
		return
	}
	if h.unplaced != nil {
		h.unplaced.end(addr, bytes)
	}
	h.calls().unmapHandles += handlesOf(bytes)
	h.count(-int64(bytes))
}

// Free returns how many bytes of the device nobody uses.
func (h *heap) Free() uint64 {
	return h.replay.room(h.on)
}
