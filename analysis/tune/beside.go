package tune

import "github.com/memprof/memprof/trace"

// beside follows what devices have in use that is none of the recorded arenas': memory of other
// libraries, contexts, other processes. The events tell allocations of libraries one by one, as
// many bytes as they asked for; the rest is known where the recorded allocator asked the device
// what is in use. Host memory is bounded by live blocks.
type beside struct {
	mapped  map[int32]int64 // by device: what the recorded arenas have mapped
	library map[int32]int64 // and other libraries
	rest    map[int32]int64 // and all else, as it was measured last
	blocks  map[int64]besideBlock
}

type besideBlock struct {
	device int32
	bytes  int64
}

func newBeside() beside {
	return beside{mapped: map[int32]int64{}, library: map[int32]int64{}, rest: map[int32]int64{}, blocks: map[int64]besideBlock{}}
}

// event returns what the event's device has in use beside the arenas, if the event is about that.
// The kind of the step says whether somebody asked for more, or it was measured or freed.
func (b *beside) event(e *trace.Event, text string) (kind opKind, bytes uint64, changed bool) {
	switch e.Kind {
	case trace.KindMap:
		b.mapped[e.Device] += e.Provided
	case trace.KindUnmap:
		b.mapped[e.Device] -= e.Provided
	case trace.KindPause:
		b.mapped[e.Device] -= e.Requested
	case trace.KindResume:
		b.mapped[e.Device] += e.Requested
	case trace.KindDeviceUsed:
		b.rest[e.Device] = e.Provided - b.mapped[e.Device] - b.library[e.Device]
		return opMeasured, b.sum(e.Device), true
	case trace.KindExternalAlloc:
		if fields := trace.ParseContext(e.Kind, text); fields.Is("host") || fields.Is("managed") {
			return 0, 0, false
		}
		b.free(e.Addr) // its free was not seen
		b.blocks[e.Addr] = besideBlock{e.Device, e.Requested}
		b.library[e.Device] += e.Requested
		return opOthers, b.sum(e.Device), true
	case trace.KindExternalFree:
		changed = b.free(e.Addr)
		return opMeasured, b.sum(e.Device), changed
	}
	return 0, 0, false
}

func (b *beside) free(addr int64) bool {
	block, live := b.blocks[addr]
	if live {
		b.library[block.device] -= block.bytes
		delete(b.blocks, addr)
	}
	return live
}

func (b *beside) sum(device int32) uint64 { return uint64(max(0, b.library[device]+b.rest[device])) }
