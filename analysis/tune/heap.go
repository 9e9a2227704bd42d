package tune

import (
	"cmp"

	"github.com/memprof/memprof/bfc"
)

// heap is one arena under the policy. It is its allocator's Memory: a device of its own for the
// addresses, and the replay's for what is mapped.
type heap struct {
	*bfc.Device
	bfc     *bfc.Allocator
	replay  *replay
	shape   *shape
	trimmed bool // the policy's trim is for it
	paused  bool
}

var _ bfc.Memory = (*heap)(nil)

func newHeap(p *replay, s *shape) *heap {
	h := &heap{replay: p, shape: s, trimmed: !s.apart && p.policy.Trim.When != bfc.TrimNever}
	h.Device = bfc.NewDevice(bfc.DeviceOptions{VMM: true, Granularity: s.granularity, Reservation: s.reservation})
	options := bfc.Options{Limit: bfc.NoLimit, Growth: bfc.Needed, Split: p.policy.Split}
	if s.main {
		options.Growth, options.Step = p.policy.Growth, p.policy.Step
		options.Limit = cmp.Or(s.limit, options.Limit)
		options.Headroom = s.headroom
	}
	if h.trimmed {
		options.Trim = p.policy.Trim
	}
	if !s.apart {
		options.Placement = p.policy.Placement
	}
	var err error
	if h.bfc, err = bfc.New(options, h); err != nil {
		panic("tune: options that New does not take: " + err.Error()) // granularity and options were checked before
	}
	return h
}

// count changes what is mapped on the heap's device.
func (h *heap) count(bytes int64) {
	p := h.replay
	p.used[h.shape.device] += uint64(bytes)
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

// mapped counts bytes that were mapped just now.
func (h *heap) mapped(bytes uint64) {
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
		h.mapped(granted)
	}
	return addr, granted, ok
}

// Map maps again what was given back.
func (h *heap) Map(addr, bytes uint64) bool {
	if bytes > h.Free() || !h.Device.Map(addr, bytes) {
		return false
	}
	h.calls().remaps++
	h.mapped(bytes)
	return true
}

// Unmap undoes a Map.
func (h *heap) Unmap(addr, bytes uint64) {
	h.Device.Unmap(addr, bytes)
	h.given(bytes)
}

// Take takes granules back; for a request only where the policy says so, and never from what is
// apart.
func (h *heap) Take(addr, bytes uint64) bool {
	p := h.replay
	if p.inRequest && (h.shape.apart || p.policy.Growth != bfc.Needed) || !h.Device.Take(addr, bytes) {
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
	used := h.replay.used[h.shape.device]
	if used >= h.replay.limit {
		return 0
	}
	return h.replay.limit - used
}
