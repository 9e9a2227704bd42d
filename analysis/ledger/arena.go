package ledger

import (
	"fmt"
	"sort"
	"strconv"

	"github.com/tidwall/btree"

	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/trace"
)

// Info is an `arena` event, parsed.
type Info struct {
	ID, Device  int32
	Stream      int64
	Base        int64
	Reservation int64
	Limit       int64
	Options     map[string]string // "growth", "headroom", "granularity", ...
	MaxR        int64             // greatest reserved bytes of the arena
	Final       Instant           // the arena after the last event, seen by its own requests: Stranded is 0
	Paused      bool              // it is paused after the last event: Final is what it will be once resumed
}

// Arena is one allocator: its own addresses, on one device.
type Arena struct {
	Split
	Info      Info
	Index     int32 // in Ledger.Arenas
	Device    *Device
	Coalesces bool  // adjacent grants become one region
	Over      bool  // it lies over a range of a graph memory: its terms are no device's
	Released  bool  // no event of it may follow
	MaxR      int64 // greatest reserved bytes

	total  *Split // what its terms are part of: its device's, or away while it is paused
	away   Split
	pauses []PauseSpan
	rank   int32 // index in Device.ranked, or none

	ledger    *Ledger
	chunks    freeChunks
	untouched untouched

	head, tail int32 // segments, by address
	segments   int   // how many
	recent     int32 // the segment that became free last, or none; it may be gone
	mapped     RangeTree
	extents    RangeTree               // regions: what was ever mapped of each, until nothing of it is
	waypoints  btree.Map[int64, int32] // segments by their starts
}

// mostArenas bounds the arenas that ever were, so that the pass stays linear in events.
const mostArenas = 1 << 20

// parseInfo parses an arena event whose context reads options.
func parseInfo(e *trace.Event, options string) Info {
	return Info{
		ID: e.Arena, Device: e.Device, Stream: e.Stream,
		Base: e.Addr, Reservation: e.Provided, Limit: e.Requested,
		Options: trace.ParseContext(e.Kind, options).Map(),
	}
}

// Describe takes an arena event whose context reads options. It returns the new arena, on a device
// that deviceOf gives, or nil: the event may repeat an arena, or describe a further reservation of it.
func (l *Ledger) Describe(e *trace.Event, options string, deviceOf func(id int32) *Device) (*Arena, error) {
	info := parseInfo(e, options)
	if ar := l.byID[e.Arena]; ar != nil {
		if ar.Released {
			return nil, fmt.Errorf("arena %d was released with its pool", e.Arena)
		}
		if ar.Info.Device != info.Device {
			return nil, fmt.Errorf("arena %d is on device %d, and now on %d", e.Arena, ar.Info.Device, info.Device)
		}
		return nil, nil
	}
	if err := served(info.Options); err != nil {
		return nil, err
	}
	if len(l.Arenas) == mostArenas {
		return nil, fmt.Errorf("there are more than %d arenas", mostArenas)
	}
	ar := &Arena{
		Info: info, Index: int32(len(l.Arenas)), Device: deviceOf(e.Device), Coalesces: info.Options["coalesces"] == "1",
		head: none, tail: none, recent: none, rank: none,
		ledger: l, chunks: freeChunks{floor: noFloor},
	}
	ar.Unknown = info.Options["provided"] == "unknown"
	ar.Device.Unknown = ar.Device.Unknown || ar.Unknown
	ar.total = &ar.Device.Split
	l.Arenas = append(l.Arenas, ar)
	l.byID[e.Arena] = ar
	return ar, nil
}

// served refuses a main arena that was recorded under a policy that memprof no longer has.
func served(options map[string]string) error {
	if options["main"] != "1" || options["growth"] == "" {
		return nil
	}
	_, err := bfc.ParseFields(func(name string) (string, bool) { text, said := options[name]; return text, said })
	return err
}

// Lookup is the arena with an ID, released ones too, or nil.
func (l *Ledger) Lookup(id int32) *Arena { return l.byID[id] }

// ArenaOf is the arena of an event. An error says that none is described, or that it was released.
func (l *Ledger) ArenaOf(e *trace.Event) (*Arena, error) {
	ar := l.byID[e.Arena]
	if ar == nil {
		return nil, fmt.Errorf("no arena event describes arena %d", e.Arena)
	}
	if ar.Released {
		return nil, fmt.Errorf("arena %d was released with its pool", e.Arena)
	}
	return ar, nil
}

// Release ends an arena, which must be empty.
func (l *Ledger) Release(ar *Arena) error {
	if ar.Live > 0 || ar.Pending > 0 || ar.R > 0 {
		return fmt.Errorf("the pool has %d live chunks, %d bytes pending, %d mapped", ar.Live, ar.Pending, ar.R)
	}
	ar.Released = true
	return nil
}

// LieOver has an arena lie over a range of a graph memory: its terms are no device's from now on.
func (ar *Arena) LieOver() {
	ar.Over, ar.total = true, &ar.away
	ar.Device.rerank(ar)
}

// Mapped is what is mapped of the arena. It must not be changed.
func (ar *Arena) Mapped() *RangeTree { return &ar.mapped }

// Extent is the region of the arena that r is a part of: memory that was unmapped there may be mapped
// again.
func (ar *Arena) Extent(r Range) (whole Range, known bool) { return ar.extents.Overlapping(r) }

// Segments is how many segments the arena has.
func (ar *Arena) Segments() int { return ar.segments }

// Chunks is how many free chunks the arena has.
func (ar *Arena) Chunks() int {
	return ar.chunks.count
}

// ChunkSizes appends the bytes of each free chunk to out.
func (ar *Arena) ChunkSizes(out []int64) []int64 {
	ar.ledger.Each(ar, func(s *Segment) {
		if s.Free() {
			out = append(out, s.Size)
		}
	})
	return out
}

// EachUntouched calls f with what was never handed out since it was mapped, in the order of addresses, and the seq of the
// map.
func (ar *Arena) EachUntouched(f func(r Range, seq int64)) { ar.untouched.root.each(f) }

// defaultPage is the granularity of devices whose arenas do not have it, in bytes.
const defaultPage = 2 << 20

// Granularity is the size of the device's pages in bytes, a power of two.
func (ar *Arena) Granularity() int64 {
	if n, err := strconv.ParseInt(ar.Info.Options["granularity"], 10, 64); err == nil && n >= granule && n&(n-1) == 0 {
		return n
	}
	return defaultPage
}

// PauseSpan is from the seq of a pause to that of its resume.
type PauseSpan struct{ From, To int64 }

func (s PauseSpan) has(seq int64) bool { return s.From <= seq && seq < s.To }

// Pauses are the pauses of the arena that were not forgotten, in order.
func (ar *Arena) Pauses() []PauseSpan { return ar.pauses }

// Paused says whether the arena is paused: nothing of it is mapped.
func (ar *Arena) Paused() bool { return ar.total == &ar.away && !ar.Over }

// PausedAt says whether the arena was paused after the event of seq. One that lies over a graph memory
// always counts as paused: it is never the device's.
func (ar *Arena) PausedAt(seq int64) bool {
	if ar.Over {
		return true
	}
	behind := sort.Search(len(ar.pauses), func(i int) bool { return ar.pauses[i].From > seq })
	return behind > 0 && seq < ar.pauses[behind-1].To
}
