package tune

import (
	"fmt"
	"strconv"

	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/trace"
)

// opKind is what a replay is to do.
type opKind uint8

const (
	opArena   opKind = iota // a new arena, described by shape
	opRelease               // the arena ends
	opAlloc
	opFree
	opMark
	opPause
	opResume
	opUnmapFree // of the device: what the program asked for
	opOthers    // of the device: bytes that others than the arenas have in use, who asked for more
	opMeasured  // the same, found out or less than before
	opRefused   // a request that the recorded allocator refused
)

// op is one step of a replay. Blocks are numbered by slots that are used again, so that a
// replay finds them without a map.
type op struct {
	kind  opKind
	arena int32 // number of the arena in this process, from 0; of those of a device, the device
	slot  int32
	time  int64 // ns
	bytes uint64
	shape *shape // of opArena
}

// shape is what a replay must know of an arena.
type shape struct {
	device      int32
	main        bool
	pool        bool // of captured graphs or a MemPool: nothing of it is given back
	tag         bool
	apart       bool // of a pool or a tag: never trimmed nor planned, and small requests stay in it
	granularity uint64
	reservation uint64 // bytes of addresses at a time; 0 is all there are
	total       uint64 // bytes of the device, as a main arena reports it; 0 is not known
	limit       uint64 // of what a main arena may map, as recorded; 0 is not known
	headroom    uint64
}

// feed turns events into steps. Host memory is bounded by what is live.
type feed struct {
	text   func(context int32) string
	live   *trace.Live     // of the recording; a step names a block by its slot there
	arenas map[int32]int32 // by the recording's number
	count  int32           // of arenas

	// joined are arenas that are one under a policy: a watched allocator has two for a place, and
	// ours has under a policy with small arenas.
	joined map[place]int32

	beside beside

	allocs, marks int64
	leftOut       int64 // arenas
}

// place is what blocks may share an arena by.
type place struct {
	device int32
	stream int64
	pool   string
}

func newFeed(text func(context int32) string) *feed {
	return &feed{text: text, live: trace.NewLive(), arenas: map[int32]int32{}, joined: map[place]int32{}, beside: newBeside()}
}

// step appends what an event means to out. The error is of an event that cannot be.
func (f *feed) step(e *trace.Event, out []op) ([]op, error) {
	o := op{time: e.Time}
	if kind, bytes, changed := f.besideArenas(e); changed {
		o.kind, o.arena, o.bytes = kind, e.Device, bytes
		out = append(out, o)
	}
	outcome, block := f.live.Add(e)
	switch e.Kind {
	case trace.KindArena:
		return f.begin(e, o, out)
	case trace.KindIteration:
		f.marks++
		o.kind = opMark
		return append(out, o), nil
	case trace.KindReclaim:
		if e.Arena == trace.NoArena && trace.ParseContext(e.Kind, f.text(e.Context)).Name() == "empty_cache" {
			o.kind, o.arena, o.bytes = opUnmapFree, e.Device, uint64(e.Requested)
			return append(out, o), nil
		}
		return out, nil
	}
	arena, known := f.arenas[e.Arena]
	if !known {
		return out, nil
	}
	o.arena = arena
	switch e.Kind {
	case trace.KindOOM:
		o.kind, o.bytes = opRefused, uint64(e.Requested)
		return append(out, o), nil
	case trace.KindPoolRelease:
		o.kind = opRelease
		delete(f.arenas, e.Arena)
		return append(out, o), nil
	case trace.KindFree, trace.KindFreeDone:
		if block == nil {
			return out, fmt.Errorf("event %d: a free at %#x, where no block is live", e.Seq, e.Addr)
		}
	}
	switch outcome {
	case trace.Replaced:
		return out, fmt.Errorf("event %d: a block at %#x, where one is live", e.Seq, e.Addr)
	case trace.Allocated:
		f.allocs++
		o.kind, o.slot, o.bytes = opAlloc, block.Slot, uint64(e.Requested)
	case trace.Freed:
		o.kind, o.slot = opFree, block.Slot
	case trace.Paused:
		o.kind = opPause
	case trace.Resumed:
		o.kind = opResume
	default:
		return out, nil
	}
	return append(out, o), nil
}

// begin is a new arena. Ranges of graph memory are left out: they have no memory of their own.
func (f *feed) begin(e *trace.Event, o op, out []op) ([]op, error) {
	words := trace.ParseContext(e.Kind, f.text(e.Context)).Map()
	if words["graph_memory"] != "" {
		f.leftOut++
		return out, nil
	}
	shape, err := newShape(e, words)
	if err != nil {
		return out, fmt.Errorf("event %d: arena %d: %w", e.Seq, e.Arena, err)
	}
	at := place{e.Device, e.Stream, words["pool"]}
	_, watched := words["allocator"]
	joins := watched || !shape.apart
	if number, known := f.joined[at]; joins && known {
		f.arenas[e.Arena] = number
		return out, nil
	}
	o.kind, o.arena, o.shape = opArena, f.count, shape
	f.arenas[e.Arena] = f.count
	if joins {
		f.joined[at] = f.count
	}
	f.count++
	return append(out, o), nil
}

// defaultGranularity is of arenas that do not say theirs: those of an allocator that was only
// watched.
const defaultGranularity = 2 << 20

func newShape(e *trace.Event, words map[string]string) (*shape, error) {
	s := &shape{device: e.Device, granularity: defaultGranularity}
	// The arena for small requests beside the main one grows as that does.
	s.main = words["main"] == "1" || words["below"] != "" && e.Stream == 0
	s.pool = words["pool"] != "" && words["pool"] != "0.0"
	s.tag = words["tag"] != ""
	s.apart = s.pool || s.tag
	for key, to := range map[string]*uint64{"granularity": &s.granularity, "headroom": &s.headroom} {
		if text, said := words[key]; said {
			n, err := strconv.ParseUint(text, 10, 64)
			if err != nil {
				return nil, fmt.Errorf("%s=%q is not a number of bytes", key, text)
			}
			*to = n
		}
	}
	if s.granularity < bfc.Granule || s.granularity&(s.granularity-1) != 0 {
		return nil, fmt.Errorf("granularity=%d is not a power of two of at least %d", s.granularity, bfc.Granule)
	}
	if _, ours := words["growth"]; !ours {
		return s, nil
	}
	s.reservation = uint64(e.Provided)
	if s.main {
		s.limit, s.total = uint64(e.Requested), s.reservation // a main arena reserves what the device has
	}
	return s, nil
}
