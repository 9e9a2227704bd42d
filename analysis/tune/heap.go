package tune

import (
	"github.com/memprof/memprof/bfc"
)

// heap is one arena under the policy. It is its allocator's Memory: a device of its own for the
// addresses, and the replay's for what is mapped.
type heap struct {
	*bfc.Device
	bfc     *bfc.Allocator
	replay  *replay
	shape   *shape
	handles handles
	born    int64 // in which order of all heaps it served its first request; 0 if it has not
	trimmed bool  // the policy's trim is for it
	unmaps  bool  // it unmaps free pages before it grows
	paused  bool
}

var _ bfc.Memory = (*heap)(nil)

func newHeap(p *replay, s *shape, small bool) *heap {
	policy := p.policy
	policy.Limit, policy.Headroom = s.limit, s.headroom
	got := policy.ForArena(bfc.Arena{
		OtherStream: !s.main, Pool: s.pool, Tag: s.tag, Small: small, Total: bfc.NoLimit, Granularity: s.granularity,
	})
	h := &heap{replay: p, shape: s, trimmed: got.Trim.When != bfc.TrimNever, unmaps: got.Unmaps}
	if got.Handle > s.granularity {
		h.handles.size = got.Handle
	}
	h.Device = bfc.NewDevice(bfc.DeviceOptions{VMM: true, Granularity: s.granularity, Reservation: s.reservation})
	var err error
	if h.bfc, err = bfc.New(got.Heap(), h); err != nil {
		panic("tune: options that New does not take: " + err.Error()) // granularity and options were checked before
	}
	return h
}

// count changes what is mapped on the heap's device.
func (h *heap) count(bytes int64) {
	p := h.replay
	used := p.used[h.shape.device] + uint64(bytes)
	p.used[h.shape.device] = used
	p.most[h.shape.device] = max(p.most[h.shape.device], used)
	p.r += uint64(bytes)
	if bytes > 0 {
		p.peak()
	}
}

// calls are where a call of now is counted.
func (h *heap) calls() *calls {
	if h.replay.inRequest {
		return &h.replay.current.path
	}
	return &h.replay.current.beside
}

// mapped notes a range that was mapped just now.
func (h *heap) mapped(addr, bytes uint64) {
	h.handles.add(addr, bytes)
	h.calls().mapHandles += h.replay.costs.handles(bytes)
	h.count(int64(bytes))
}

// Grow grants what the device has room for.
func (h *heap) Grow(bytes uint64) (addr, granted uint64, ok bool) {
	if bytes > h.Free() {
		return 0, 0, false
	}
	if addr, granted, ok = h.Device.Grow(bytes); ok {
		h.calls().grows++
		h.mapped(addr, granted)
	}
	return addr, granted, ok
}

// Map maps again what was given back. What no request waits for makes no peak of the device.
func (h *heap) Map(addr, bytes uint64) bool {
	p, device := h.replay, h.shape.device
	if !p.inRequest && bytes > p.most[device]-p.used[device] {
		return false
	}
	if bytes > h.Free() || !h.Device.Map(addr, bytes) {
		return false
	}
	h.calls().remaps++
	h.mapped(addr, bytes)
	return true
}

// Unmap undoes a Map, or gives back whole handles.
func (h *heap) Unmap(addr, bytes uint64) {
	h.Device.Unmap(addr, bytes)
	h.handles.remove(addr, bytes)
	h.given(bytes)
}

// Take unmaps pages; for a request only where the policy of the arena says so.
func (h *heap) TryUnmap(addr, bytes uint64) bool {
	p := h.replay
	taking := p.inRequest && !p.reclaiming
	if taking && !h.unmaps || !h.Device.TryUnmap(addr, bytes) {
		return false
	}
	p.took = p.took || p.inRequest
	h.given(bytes)
	return true
}

func (h *heap) given(bytes uint64) {
	c := h.calls()
	c.gives++
	c.giveHandles += h.replay.costs.handles(bytes)
	h.count(-int64(bytes))
}

// Free is what nobody has of the device, in bytes.
func (h *heap) Free() uint64 {
	p, device := h.replay, h.shape.device
	most := p.mostOf(device)
	return most - min(most, p.used[device])
}
