package analysis

import (
	"github.com/tidwall/btree"

	"github.com/memprof/memprof/analysis/pause"
	"github.com/memprof/memprof/trace"
)

// arena is one allocator: its own addresses, on one device.
type arena struct {
	split
	total     *split // what its terms are part of: its device's, or away while it is paused
	away      split
	pauses    []pauseSpan
	info      ArenaInfo
	index     int32 // in analyzer.arenas
	device    *device
	coalesces bool // adjacent grants become one region
	sampled   bool // served by an allocator that was only watched: see Sampled
	pooled    bool // its options name a pool
	released  bool // no event of it may follow

	tag *pause.Arena // nil while its device has no tags

	store  *graphStore // that it is memory of
	window *graphRange // it is a range of a graph memory, and nothing of it is mapped
	over   bool        // it lies over such a range: its terms are no device's

	rank int32 // index in device.ranked, or none

	chunks   freeChunks // none of an arena that was only watched
	reusable int64      // bytes of the largest free chunk that were handed out before

	head, tail int32 // segments, by address
	segments   int   // how many
	mapped     rangeTree
	extents    rangeTree // regions: what was ever mapped of each, until nothing of it is
	waypoints  waypoints
	maxR       int64
	mappings   btree.Map[int64, mapping] // what is mapped, by address, each as it was asked for; only for keyframes

	// mapped at the device's peak, if it has changed since: that of the peak numbered peakOf.
	peakMapped rangeTree
	peakOf     int64

	use *tagUse // of its tag; nil without one

	waiting []waitingGrowth // growths of a request whose end has not been seen
	runs    int             // sizes of free chunks kept in them
}

// waitingGrowth is a growth before the alloc that says what it was for.
type waitingGrowth struct {
	Growth
	asked  int64   // what the memory was asked for
	own    int64   // F of the arena before
	runs   []int64 // sizes of the arena's free chunks before, if they were looked at
	walked bool
}

// beforeMapping keeps what is mapped at the peak, before it changes.
func (ar *arena) beforeMapping() {
	if ar.peakOf == ar.device.peaks {
		return
	}
	ar.peakOf = ar.device.peaks
	ar.peakMapped = ar.mapped.snapshot()
}

// mappedAtPeak are the ranges that were mapped at the device's peak.
func (ar *arena) mappedAtPeak() rangeSet {
	if ar.peakOf == ar.device.peaks {
		return ar.peakMapped.ranges()
	}
	return ar.mapped.ranges()
}

// arenaInfo parses an arena event whose context reads options.
func arenaInfo(e *trace.Event, options string) ArenaInfo {
	return ArenaInfo{
		ID: e.Arena, Device: e.Device, Stream: e.Stream,
		Base: e.Addr, Reservation: e.Provided, Limit: e.Requested,
		Options: trace.ParseContext(e.Kind, options).Map(),
	}
}

// defaultPage is the granularity of devices whose arenas do not tell it.
const defaultPage = 2 << 20

// granularity is the size of the device's pages in bytes, a power of two.
func (ar *arena) granularity() int64 {
	if n := bytesField(ar.info.Options["granularity"]); n >= granule && n&(n-1) == 0 {
		return n
	}
	return defaultPage
}
