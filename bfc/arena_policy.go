package bfc

import "math/bits"

// Arena is what decides which part of a policy an arena gets.
type Arena struct {
	OtherStream bool   // than the device's default stream
	Pool        bool   // of a private pool: of CUDA graphs, or a MemPool
	Tag         bool   // of a tag, whose memory is paused as a whole
	Graphs      bool   // over a range of a graph memory, which is a pool
	Total       uint64 // bytes of the device's memory, NoLimit if not known
	Granularity uint64 // bytes of the device's page
}

// ArenaPolicy is what an arena gets of a policy.
type ArenaPolicy struct {
	Options            // of its allocator; Limit is NoLimit for none
	Handle      uint64 // bytes of its CUDA handles, positive
	Page        uint64 // bytes of its page, a power of two: of the device's, or larger
	Reservation uint64 // bytes of addresses that it reserves at a time
	Fine        bool   // handles are larger than Handle for large maps, and smaller where little of the device is free
}

const (
	// usualHandle is the size of a handle where nothing else is chosen: large enough to be mapped quickly, and small enough to be unmapped in part.
	usualHandle = 32 << 20
	// UsualPage is the size of a page with growth Pages where nothing else is chosen, and of its handle, in bytes: a job that
	// never repeats moves pages in each iteration, half as many as of 2 MiB, and maps hardly more (samples/results/compact.md).
	UsualPage = 4 << 20
	// taggedHandle is the least size of a handle of a tag, whose memory is paused as a whole: that takes less
	// time in large handles.
	taggedHandle = 256 << 20
	// otherReservation is the size of a reservation of addresses, but for arenas of the default stream
	// outside of pools and tags.
	otherReservation = 16 << 30
	// mainReservations is how many times the device's memory the others reserve: a page whose address somebody may still read serves
	// another address.
	mainReservations = 2
)

// MainReservation is the bytes of addresses that a main arena reserves at a time, on a device with total bytes of memory.
func MainReservation(total uint64) uint64 {
	return mainReservations * min(total, NoLimit/mainReservations)
}

// ForArena is what an arena gets of the policy. Only the arenas of the default stream, outside of pools and
// tags, have its headroom and limit, and double under preset classic; the others grow by what is
// needed, or by pages under preset compact. Those of pools and tags always grow by what is needed, and are not trimmed: a
// graph uses free memory of its pool without asking, and a pause unmaps all of a tag. All split
// alike, but for graph memory, which splits always: the largest shape decides how much all take.
func (p Policy) ForArena(a Arena) ArenaPolicy {
	apart := a.Pool || a.Tag
	out := ArenaPolicy{Reservation: min(otherReservation, a.Total), Page: a.Granularity, Handle: p.handle(&a), Fine: p.Handle == 0 && !a.Tag}
	out.Limit, out.Growth = NoLimit, Needed
	if !apart && !a.OtherStream {
		out.Reservation, out.Headroom, out.Limit, out.Growth = MainReservation(a.Total), p.Headroom, p.Limit, Double
		if p.Limit == 0 {
			out.Limit = a.Total
		}
	}
	if !apart {
		out.Trim = p.Trim
	}
	if !apart && p.Preset == Compact { // each page has a handle of its own
		out.Growth = Pages
		out.Page = max(a.Granularity, 1<<(bits.Len64(out.Handle)-1))
		out.Handle = out.Page
	}
	if p.Preset == Compact || a.Graphs {
		out.Split = SplitAlways
	}
	return out
}

// handle is the size of an arena's handles. Pages can be unmapped one by one only where each has a
// handle of its own.
func (p *Policy) handle(a *Arena) uint64 {
	switch {
	case a.Tag:
		return max(p.Handle, taggedHandle)
	case p.Handle > 0:
		return p.Handle
	case !a.Pool && p.Preset == Compact:
		return max(a.Granularity, UsualPage)
	case !a.Pool && p.Trim.When != TrimNever:
		return a.Granularity
	}
	return usualHandle
}
