package tune

import "github.com/memprof/memprof/trace"

// otherMemory is the bytes of devices that are in use by others than the recorded arenas: other
// libraries, CUDA contexts, other processes. Each allocation of a library has an event, with its requested
// bytes; the rest is known when the recorded allocator asked the device how much is in use.
type otherMemory struct {
	library map[int32]int64 // by device: allocations of other libraries in device memory
	rest    map[int32]int64 // by device: all else, as last measured
}

func newOtherUse() otherMemory {
	return otherMemory{library: map[int32]int64{}, rest: map[int32]int64{}}
}

// otherUse returns how many bytes others than the arenas use on the event's device; changed is false if
// the event does not change that. kind is opOthers where another library allocates, opMeasured where
// it frees or the device was measured. The event is not yet in f.live.
func (f *feed) otherUse(e *trace.Event) (kind opKind, bytes uint64, changed bool) {
	if f.card != nil {
		change, ok := f.cardOthers.Add(e)
		switch kind = opMeasured; {
		case change.Grown > 0 && change.Driver:
			kind = opDriver
		case change.Grown > 0:
			kind = opOthers
		}
		return kind, f.cardOthers.Bytes(e.Device), ok
	}
	b := &f.others
	switch e.Kind {
	case trace.KindDeviceUsed:
		_, used := e.DeviceMemory()
		b.rest[e.Device] = used - f.live.ReservedOn(e.Device) - b.library[e.Device]
		return opMeasured, b.sum(e.Device), true
	case trace.KindExternalAlloc:
		changed = f.otherFreed(e.Addr) // its free was not seen
		if !f.onDevice(e) {
			return opMeasured, b.sum(e.Device), changed
		}
		b.library[e.Device] += e.Requested
		return opOthers, b.sum(e.Device), true
	case trace.KindExternalFree:
		changed = f.otherFreed(e.Addr)
		return opMeasured, b.sum(e.Device), changed
	}
	return 0, 0, false
}

// onDevice says whether another library's allocation is in device memory.
func (f *feed) onDevice(alloc *trace.Event) bool {
	fields := trace.ParseContext(alloc.Kind, f.text(alloc.Context))
	return !fields.Is("host") && !fields.Is("managed")
}

// otherFreed subtracts another library's allocation in device memory, if there is one at addr.
func (f *feed) otherFreed(addr int64) bool {
	alloc, ok := f.live.Other(addr)
	if !ok || !f.onDevice(&alloc) {
		return false
	}
	f.others.library[alloc.Device] -= alloc.Requested
	return true
}

func (b *otherMemory) sum(device int32) uint64 {
	return uint64(max(0, b.library[device]+b.rest[device]))
}
