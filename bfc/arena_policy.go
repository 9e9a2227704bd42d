package bfc

import "math/bits"

// Arena is what decides which part of a policy an arena gets.
type Arena struct {
	OtherStream bool   // than the device's default stream
	Pool        bool   // of a private pool: of CUDA graphs, or a MemPool
	Tag         bool   // of a tag, whose memory is paused as a whole
	Small       bool   // of requests below Policy.SmallArenas
	Graphs      bool   // over a range of a graph memory, which is a pool
	Total       uint64 // bytes of the device's memory, NoLimit if not known
	Granularity uint64 // bytes of the device's page
}

// ArenaPolicy is what an arena gets of a policy.
type ArenaPolicy struct {
	Policy             // Limit is NoLimit for none, and Handle is positive
	Page        uint64 // bytes of its page, a power of two: of the device's, or larger
	Reservation uint64 // bytes of addresses that it reserves at a time
	Unmaps      bool   // it unmaps free pages before it grows: Memory.TryUnmap may succeed for a request
	Fine        bool   // handles are smaller than Handle where little of the device is free
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
)

// ForArena is the part of the policy that an arena gets. Only the arenas of the default stream,
// outside of pools and tags, have its growth, headroom and limit; the others grow by what is
// needed. Those of pools and tags are neither trimmed nor planned, and unmap nothing to grow: a
// graph uses free memory of its pool without asking, and a pause unmaps all of a tag. All split
// alike, but for graph memory, which splits always: the largest shape decides how much all take.
func (p Policy) ForArena(a Arena) ArenaPolicy {
	apart := a.Pool || a.Tag
	out := ArenaPolicy{Policy: p, Reservation: min(otherReservation, a.Total), Unmaps: !apart && (p.Growth == Needed || p.Growth == Pages), Fine: p.Handle == 0 && !a.Tag}
	out.Handle = p.handle(&a)
	if apart || a.OtherStream {
		out.Step, out.Headroom, out.Limit = 0, 0, NoLimit
		if apart || p.Growth != Pages {
			out.Growth = Needed
		}
	} else {
		out.Reservation = a.Total
		if p.Limit == 0 {
			out.Limit = a.Total
		}
	}
	out.Page = a.Granularity
	if out.Growth == Pages { // each page has a handle of its own
		out.Page = max(a.Granularity, 1<<(bits.Len64(out.Handle)-1))
		out.Handle, out.Fine = out.Page, false
	}
	if apart {
		out.Trim, out.Placement = Trim{}, PlacementBestFit
	}
	if a.Graphs {
		out.Split = SplitAlways
	}
	if !a.Small {
		out.SmallArenas = 0
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
	case !a.Pool && p.Growth == Pages:
		return max(a.Granularity, UsualPage)
	case !a.Pool && (p.Growth == Needed || p.Trim.When != TrimNever):
		return a.Granularity
	}
	return usualHandle
}

// InSmallArena says whether a request of that size is served from an arena of small requests.
// Pools and tags have none.
func (p *Policy) InSmallArena(size uint64, pool, tag bool) bool {
	return size < p.SmallArenas && !pool && !tag
}

// Heap are the options of an allocator under the policy.
func (p *Policy) Heap() Options {
	return Options{
		Limit: p.Limit, Headroom: p.Headroom, Growth: p.Growth, Step: p.Step, Split: p.Split, Trim: p.Trim, Placement: p.Placement,
	}
}

// Policy is the policy whose Heap has these options.
func (o Options) Policy() Policy {
	return Policy{
		Limit: o.Limit, Headroom: o.Headroom, Growth: o.Growth, Step: o.Step, Split: o.Split, Trim: o.Trim, Placement: o.Placement,
	}
}
