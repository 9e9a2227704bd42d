package tune

import "github.com/memprof/memprof/trace"

// beside is what devices have in use that is none of the recorded arenas': memory of other
// libraries, contexts, other processes. The events name allocations of libraries one by one, as
// many bytes as they asked for; the rest is known where the recorded allocator asked the device
// what is in use. Bytes by device.
type beside struct {
	library map[int32]int64 // allocations of other libraries in device memory
	rest    map[int32]int64 // all else, as it was measured last
}

func newBeside() beside {
	return beside{library: map[int32]int64{}, rest: map[int32]int64{}}
}

// besideArenas returns what the event's device has in use beside the arenas, if the event is about
// that. The kind of the step says whether somebody asked for more, or it was measured or freed. The event
// has not been added to f.live.
func (f *feed) besideArenas(e *trace.Event) (kind opKind, bytes uint64, changed bool) {
	b := &f.beside
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
	f.beside.library[alloc.Device] -= alloc.Requested
	return true
}

func (b *beside) sum(device int32) uint64 { return uint64(max(0, b.library[device]+b.rest[device])) }
