package accounting

// This file puts a recorded job on a card of a chosen size. A replay of its requests then knows how much of the card its
// allocator can have at each event: all but what other libraries and the driver use, as recorded.

import "github.com/memprof/memprof/trace"

// LargestCard is more than any GPU has, in bytes: no card serves a request above it.
const LargestCard = 1 << 40

// Card is the card of a replay. Each device of the process is one.
type Card struct {
	Bytes uint64 // that the driver can allocate
	// Base is the memory of each device that no event explains, in bytes: used beyond arenas, other
	// libraries and the driver overhead of events. Below 0 where the events say too much.
	Base map[int32]int64
	// OwnOnly leaves out driver overhead that was measured as growth of the whole card, where other processes may
	// have allocated meanwhile.
	OwnOnly bool
	// Spared are the events, in order, of requests that the job does without where the card cannot serve them.
	Spared []int64
	// Strict refuses these requests like others. Then they only count separately in what the job needs.
	Strict bool
	next   int // of Spared, behind the requests so far
}

// Spares says whether the job does without the request of an event. Events have to be asked about in their order. A nil Card spares none.
func (c *Card) Spares(seq int64) bool {
	if c == nil {
		return false
	}
	for c.next < len(c.Spared) && c.Spared[c.next] < seq {
		c.next++
	}
	return c.next < len(c.Spared) && c.Spared[c.next] == seq
}

// Refusal is the first allocation that a card cannot serve.
type Refusal struct {
	Seq     int64 // of the event
	Device  int32
	Bytes   int64 // requested; 0 for memory of the driver whose size is not known
	Outside bool  // of another library or the driver, not of the allocator
	// Reserved and Others are in use when it fails, by the allocator and by all others, in bytes.
	Reserved, Others int64
}

// Others follows the memory outside of the allocator's arenas.
type Others struct {
	text      func(context int32) string
	base      map[int32]int64
	ownOnly   bool
	overhead  map[int32]int64 // of the driver, by device
	libraries map[int32]int64
	blocks    map[int64]block // of libraries, by address
}

type block struct {
	device int32
	bytes  int64
}

// NewOthers is before the first event.
func NewOthers(c *Card, text func(context int32) string) *Others {
	return &Others{text: text, base: c.Base, ownOnly: c.OwnOnly, overhead: map[int32]int64{}, libraries: map[int32]int64{}, blocks: map[int64]block{}}
}

// Change is what an event did to a device.
type Change struct {
	Device int32
	Grown  int64 // bytes; below 0: freed
	Driver bool  // driver overhead, not a library's allocation
}

// Add takes the next event. ok is false if it changes nothing outside of the arenas.
func (o *Others) Add(e *trace.Event) (c Change, ok bool) {
	switch e.Kind {
	case trace.KindOverhead:
		given, grown := trace.ParseContext(e.Kind, o.text(e.Context)), e.OverheadBytes()
		switch {
		case contextEnded(e, given):
			grown = -o.overhead[e.Device]
		case o.ownOnly && given.Get("what") != "pool" && !ownGrowth(given): // growth of the whole card
			return c, false
		}
		o.overhead[e.Device] += grown
		return Change{e.Device, grown, true}, true
	case trace.KindExternalAlloc:
		freed, was := o.drop(e.Addr) // its free was not seen
		if fields := trace.ParseContext(e.Kind, o.text(e.Context)); fields.Is("host") || fields.Is("managed") {
			return freed, was
		}
		o.blocks[e.Addr] = block{e.Device, e.Requested}
		o.libraries[e.Device] += e.Requested
		return Change{e.Device, e.Requested, false}, true
	case trace.KindExternalFree:
		return o.drop(e.Addr)
	}
	return Change{}, false
}

func (o *Others) drop(addr int64) (c Change, ok bool) {
	b, ok := o.blocks[addr]
	if ok {
		delete(o.blocks, addr)
		o.libraries[b.device] -= b.bytes
	}
	return Change{b.device, -b.bytes, false}, ok
}

// Bytes returns what others than the allocator use of a device now.
func (o *Others) Bytes(device int32) uint64 {
	return uint64(max(0, o.libraries[device]+o.Driver(device)))
}

// Driver returns what is neither the allocator's nor another library's now, in bytes.
func (o *Others) Driver(device int32) int64 { return o.base[device] + o.overhead[device] }

// Libraries returns what other libraries have allocated now, in bytes.
func (o *Others) Libraries(device int32) int64 { return o.libraries[device] }
