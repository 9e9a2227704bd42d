package tune

import "github.com/memprof/memprof/trace"

// otherMemory is the bytes of devices that are in use by others than the recorded arenas: other
// libraries, CUDA contexts, other processes. Each allocation of a library has an event, with its requested
// bytes; the rest is known when the recorded allocator asked the device how much is in use.
type otherMemory struct {
	library map[int32]int64 // by device: allocations of other libraries in device memory
	rest    map[int32]int64 // by device: all else, as last measured
}

// otherUse returns the operation of an event that changes what others than the arenas use of a device; changed is
// false for other events. The device is the memory's: a thread may free what is on another one than its own. The kind is
// opOthers where another library allocates, opDriver where the driver does, opMeasured where others free or the device was
// measured. The event is not yet in f.live.
func (f *feed) otherUse(e *trace.Event) (o op, changed bool) {
	if f.cardOthers != nil {
		change, ok := f.cardOthers.Add(e)
		if !ok {
			return o, false
		}
		o = op{kind: opMeasured, arena: change.Device, bytes: f.cardOthers.Bytes(change.Device)}
		switch {
		case change.Grown > 0 && change.Driver:
			o.kind = opDriver
		case change.Grown > 0:
			o.kind = opOthers
		}
		return o, true
	}
	b := &f.others
	o = op{kind: opMeasured, arena: e.Device}
	switch e.Kind {
	case trace.KindDeviceUsed:
		_, used := e.DeviceMemory()
		b.rest[e.Device] = used - f.live.ReservedOn(e.Device) - b.library[e.Device]
		changed = true
	case trace.KindExternalAlloc:
		o.arena, changed = f.otherFreed(e) // its free was not seen
		if f.onDevice(e) {
			b.library[e.Device] += e.Requested
			o.kind, o.arena, changed = opOthers, e.Device, true
		}
	case trace.KindExternalFree:
		o.arena, changed = f.otherFreed(e)
	default:
		return o, false
	}
	o.bytes = b.sum(o.arena)
	return o, changed
}

// onDevice says whether another library's allocation is in device memory.
func (f *feed) onDevice(alloc *trace.Event) bool {
	fields := trace.ParseContext(alloc.Kind, f.text(alloc.Context))
	return !fields.Is("host") && !fields.Is("managed")
}

// otherFreed subtracts another library's allocation in device memory, if there is one at the event's address.
func (f *feed) otherFreed(e *trace.Event) (device int32, ok bool) {
	alloc, ok := f.live.Other(e.Addr)
	if !ok || !f.onDevice(&alloc) {
		return e.Device, false
	}
	f.others.library[alloc.Device] -= alloc.Requested
	return alloc.Device, true
}

func (b *otherMemory) sum(device int32) uint64 {
	return uint64(max(0, b.library[device]+b.rest[device]))
}
