package tune

import (
	"fmt"
	"maps"
	"strconv"

	"github.com/memprof/memprof/analysis/accounting"
	"github.com/memprof/memprof/analysis/iterations"
	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/trace"
)

// opKind is the kind of an operation.
type opKind uint8

const (
	opArena   opKind = iota // a new arena, described by shape
	opRelease               // the arena ends
	opSwept                 // the arena ends during the request or resume that comes next, which has waited for the device
	opPin                   // of a pool: nothing of it is unmapped, since somebody holds it
	opUnpin                 // nobody holds it any more
	opAlloc
	opPend // it is freed, and another stream may still use it
	opFree
	opDone // a pending block becomes free
	opEnd  // a pending block becomes free during the request or resume that comes next, which has waited for the device
	opMark
	opCapture // bytes is how many streams are captured now
	opPause
	opLeaveOut  // of a paused arena: unmap free pages, which a resume does not map
	opResume    // bytes is how many arenas more the same call resumes, which come next
	opUnmapFree // of the device: unmap free memory, as the program requested (empty_cache)
	opOthers    // of the device: another library allocates; bytes are all that others than the arenas use
	opMeasured  // of the device: the same bytes were measured, or became less
	opDriver    // of the device: the driver allocates for itself, where the hook unmaps nothing for it; bytes as of opOthers
	opRefused   // a request that the recorded allocator refused
)

// op is one operation of a replay. Blocks are numbered by slots, which are reused, so that a replay finds
// them in an array.
type op struct {
	kind   opKind
	free   bool  // of opResume: pages without a block are to be mapped, too
	failed bool  // of opResume: the call failed, after free pages were unmapped for it
	arena  int32 // number of the arena in this process, from 0; of an operation on a device, the device
	slot   int32
	time   int64 // ns
	seq    int64 // of the event
	bytes  uint64
	shape  *shape // of opArena
}

// shape is what a replay needs to know of an arena.
type shape struct {
	device      int32
	main        bool
	pool        bool // of CUDA graphs or a MemPool: nothing of it is unmapped
	tag         bool
	apart       bool // of a pool or a tag
	granularity uint64
	reservation uint64 // bytes of addresses reserved at a time; 0: all
	total       uint64 // bytes of the device, as its main arena has it; 0: not known
	limit       uint64 // bytes that a main arena may map, as recorded; 0: not known
	headroom    uint64
}

// feed makes operations of events. Host memory is proportional to live blocks.
type feed struct {
	text   func(context int32) string
	live   *trace.Live // of the recording; an operation names a block by its slot there
	event  trace.Event
	arenas map[int32]int32 // by the recording's number
	count  int32           // of arenas

	// joined are recorded arenas that are one in a replay: torch's allocator has two for a place.
	joined map[place]int32
	uses   map[int32]int // how many recorded arenas a number stands for
	pools  pools
	totals map[int32]uint64 // bytes of the devices whose main arena was seen

	others     otherMemory
	cardOthers *accounting.Others // nil without cards
	cache      []op               // an empty_cache under way: first the blocks become free that waited for other streams
	resumes    []op               // of the call of memprof_resume that the last event is of
	resumed    int64              // when that was written, ns
	reclaiming bool               // the last events are a reclaim and the frees and unmaps that follow it
	requesting bool               // a request has reclaimed memory, and its own event, alloc or oom, has not come yet

	allocs  int64
	calls   iterations.CallLog
	leftOut int64 // arenas
}

// place is what blocks of one arena have in common.
type place struct {
	device int32
	stream int64
	pool   string
}

func newFeed(text func(context int32) string) *feed {
	return &feed{text: text, live: trace.NewLive(), arenas: map[int32]int32{}, joined: map[place]int32{}, uses: map[int32]int{}, pools: pools{}, totals: map[int32]uint64{}, others: otherMemory{map[int32]int64{}, map[int32]int64{}}}
}

// look notes the sizes of devices that events of a batch have. An arena of another stream may come before the main one,
// and the size of its handles depends on what the device has: so a batch is looked at before its steps are made.
func (f *feed) look(batch *trace.Batch) {
	for i, kind := range batch.Kind {
		if kind != trace.KindArena {
			continue
		}
		e := batch.Event(i)
		// A damaged event is refused when it is its turn.
		if s, err := newShape(&e, trace.ParseContext(e.Kind, f.text(e.Context)).Map()); err == nil && s.total > 0 {
			f.totals[e.Device] = s.total
		}
	}
}

// waited says whether an event only says that a reclaim has waited for the device.
func (f *feed) waited(e *trace.Event) bool {
	return e.Kind == trace.KindReclaim && e.Arena == trace.NoArena && f.reclaiming && trace.ParseContext(e.Kind, f.text(e.Context)).Name() == "waited"
}

// add appends the operations of an event of a batch to out. It fails for one that contradicts those before.
func (f *feed) add(b *trace.Batch, i int, out []op) ([]op, error) {
	e := &f.event
	b.Read(i, e)
	o := op{time: e.Time, seq: e.Seq}
	switch e.Kind {
	case trace.KindDeviceUsed, trace.KindOverhead, trace.KindExternalAlloc, trace.KindExternalFree:
		if other, changed := f.otherUse(e); changed {
			other.time, other.seq = e.Time, e.Seq
			out = append(out, other)
		}
	}
	outcome, block := f.live.AddFrom(b, i, e)
	if len(f.resumes) > 0 && (e.Kind != trace.KindResume || e.Time-e.PauseDuration().Nanoseconds() > f.resumed) {
		out = f.flushResumes(out)
	}
	switch e.Kind {
	case trace.KindFreeDone, trace.KindUnmap, trace.KindPoolRelease, trace.KindShortage, trace.KindShrink, trace.KindFence:
	default:
		if f.waited(e) { // the reclaim goes on
			return out, nil
		}
		out = f.flushCache(out)
		f.reclaiming = e.Kind == trace.KindReclaim
	}
	switch e.Kind {
	case trace.KindArena:
		return f.begin(e, o, out)
	case trace.KindIteration:
		f.calls.Mark()
		o.kind = opMark
		return append(out, o), nil
	case trace.KindCaptureBegin, trace.KindCaptureEnd:
		o.kind, o.bytes = opCapture, uint64(e.Requested)
		return append(out, o), nil
	case trace.KindTotals:
		f.calls.Add(e, f.text(e.Context))
		return out, nil
	case trace.KindReclaim:
		name := trace.ParseContext(e.Kind, f.text(e.Context)).Name()
		f.requesting = e.Arena != trace.NoArena || name == "resume"
		if e.Arena == trace.NoArena && name == "empty_cache" {
			o.kind, o.arena, o.bytes = opUnmapFree, e.Device, uint64(e.Requested)
			f.cache = append(f.cache, o)
		}
		return out, nil
	case trace.KindPoolBegin:
		return f.pools.begin(place{device: e.Device, pool: trace.ParseContext(e.Kind, f.text(e.Context)).Map()["pool"]}, o, out), nil
	}
	arena, known := f.arenas[e.Arena]
	if !known {
		return out, nil
	}
	o.arena = arena
	switch e.Kind {
	case trace.KindAlloc:
		f.requesting = false
	case trace.KindOOM:
		f.requesting = false
		o.kind, o.bytes = opRefused, uint64(e.Requested)
		return append(out, o), nil
	case trace.KindPoolRelease:
		delete(f.arenas, e.Arena)
		if f.uses[arena]--; f.uses[arena] > 0 {
			return out, nil
		}
		delete(f.uses, arena)
		maps.DeleteFunc(f.joined, func(_ place, number int32) bool { return number == arena })
		delete(f.pools, arena)
		o.kind = opRelease
		if f.requesting {
			o.kind = opSwept
		}
		return append(out, o), nil
	case trace.KindUnmap:
		paused := f.live.IsPaused(e.Arena)
		if !f.reclaiming && !paused {
			return out, nil
		}
		out = f.pools.unmapped(o, out)
		if paused { // the coming resume does not map free pages; if it fails, it does not name an arena of which nothing is left
			o.kind = opLeaveOut
			out = append(out, o)
		}
		return out, nil
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
	case trace.Pended:
		o.kind, o.slot = opPend, block.Slot
	case trace.Freed:
		o.kind, o.slot = opFree, block.Slot
		if e.Kind == trace.KindFreeDone {
			o.kind = opDone
			if f.requesting {
				o.kind = opEnd
			}
		}
	case trace.Paused:
		o.kind = opPause
	case trace.Resumed:
		f.resume(e, o, false)
		return out, nil
	default:
		if e.Kind == trace.KindResume && f.live.IsPaused(e.Arena) {
			f.resume(e, o, true)
		}
		return out, nil
	}
	return append(out, o), nil
}

// resume adds an arena to those that a call resumes.
func (f *feed) resume(e *trace.Event, o op, failed bool) {
	context := trace.ParseContext(e.Kind, f.text(e.Context))
	o.kind, o.free, o.failed = opResume, context.Is("free") || context.Get("by") == "source", failed
	f.resumes, f.resumed, f.requesting = append(f.resumes, o), e.Time, false
}

// flush appends all operations that wait.
func (f *feed) flush(out []op) []op { return f.flushResumes(f.flushCache(out)) }

// flushCache appends the operations that waited for the end of what the hook did for one event.
func (f *feed) flushCache(out []op) []op {
	out = append(out, f.cache...)
	f.cache = f.cache[:0]
	return out
}

// flushResumes appends the resumes of one call.
func (f *feed) flushResumes(out []op) []op {
	for i, o := range f.resumes {
		o.bytes = uint64(len(f.resumes) - 1 - i)
		out = append(out, o)
	}
	f.resumes = f.resumes[:0]
	return out
}

// begin adds an arena. Ranges of graph memory are left out: they have no memory of their own.
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
	_, native := words["allocator"]
	joins := native || !shape.apart
	if number, known := f.joined[at]; joins && known {
		f.arenas[e.Arena] = number
		f.uses[number]++
		return out, nil
	}
	shape.total = max(shape.total, f.totals[e.Device])
	o.kind, o.arena, o.shape = opArena, f.count, shape
	f.arenas[e.Arena], f.uses[f.count] = f.count, 1
	if joins {
		f.joined[at] = f.count
	}
	if shape.pool {
		f.pools[f.count] = &pool{place: place{device: e.Device, pool: words["pool"]}}
	}
	f.count++
	return append(out, o), nil
}

// defaultGranularity is the page of arenas that do not have theirs: those of torch's own allocator.
const defaultGranularity = 2 << 20

// toCard is an arena on a card of so many bytes. The card is its limit: one that was recorded is of the recorded device, or of
// the user who asks about another.
func (s shape) toCard(bytes uint64) *shape {
	s.limit, s.total = bytes, bytes
	if s.reservation > 0 && s.main {
		s.reservation = max(s.reservation, bfc.MainReservation(bytes))
	}
	return &s
}

func newShape(e *trace.Event, words map[string]string) (*shape, error) {
	s := &shape{device: e.Device, granularity: defaultGranularity}
	s.main = words["main"] == "1"
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
	if words["growth"] == "pages" { // its pages may be larger than the device's
		s.granularity = min(s.granularity, defaultGranularity)
	}
	if _, ours := words["growth"]; !ours {
		return s, nil
	}
	if _, err := bfc.ParseFields(func(name string) (string, bool) { text, said := words[name]; return text, said }); err != nil {
		return nil, err
	}
	s.reservation = uint64(e.Provided)
	if s.main {
		total, err := e.CardMemory(words["total"])
		if err != nil {
			return nil, err
		}
		s.limit, s.total = uint64(e.Requested), total
		s.reservation = max(s.reservation, bfc.MainReservation(total))
	}
	return s, nil
}
