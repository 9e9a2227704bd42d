package fit

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/memprof/memprof/analysis/accounting"
	"github.com/memprof/memprof/analysis/attribution"
	"github.com/memprof/memprof/analysis/graphs"
	"github.com/memprof/memprof/analysis/torchalloc"
	"github.com/memprof/memprof/trace"
)

// An engine's start: weights, a profiled batch, the KV cache, captures of graphs, then work. The pass keeps the requests of one device. What
// is live when the last graph has been captured is there to stay; the KV cache is found among it by the phase that it was made in, by the
// engine's mark, or by its size.

// ErrNoStart says that a recording has no start of an engine.
var ErrNoStart = errors.New("no start of an engine: no CUDA graph was captured in a pool")

// mostStartOps is how many requests and frees of a start are kept, 24 bytes each.
const mostStartOps = 4 << 20

// start is what the pass keeps of a device.
type start struct {
	blocks []startBlock
	ops    []startOp
	shapes []*startShape
	marks  []kvMark

	last  int   // of ops: the last request of a graph
	total int64 // bytes that the driver says it has; 0: nothing said it
	// first are bytes of other libraries and the driver at the first request; blocks have those of their request.
	first  int64
	driver driverReader
}

// startBlock is an allocation. shape is that of a graph, -1 outside of them.
type startBlock struct {
	seq, bytes, stream, others int64
	phase                      int32 // index of its name
	shape                      int32
	freed                      bool // before the last graph was captured
	kv                         bool
}

// startOp is a request, a free, or, where block is below 0, a release of what is free.
type startOp struct {
	block int32
	free  bool
}

// startShape is a graph, or its pieces. Its blocks are numbered in the order of their requests.
type startShape struct {
	graphs.Sized
	index              int32
	pool, name, family string
	blocks             []int32
	numbers            map[int32]int32 // by block
	streams            []int64
	frees              []lateFree
}

// lateFree is a free of a block outside of its shape, when so many shapes had begun.
type lateFree struct {
	block int32
	begun int
}

// kvMark is an engine's mark of a cache.
type kvMark struct {
	slots, token, block int64
	blocks              int // that there were before it
}

// startReader follows the events of a start.
type startReader struct {
	start
	j      *Job
	device int32
	pools  map[int32]string // by arena, "" for the default one
	native bool             // the arenas are PyTorch's own
	live   map[int64]int32
	phases []string // open ones
	names  []string
	known  map[string]int32
	open   []string // captures, by name
	graphs int64    // captures that began
	of     map[string]*startShape
	now    *startShape // whose requests are being captured
}

func readStart(j *Job, device int32) (*startReader, error) {
	source, err := j.Open()
	if err != nil {
		return nil, err
	}
	defer source.Close()
	r := &startReader{j: j, device: device, pools: map[int32]string{}, live: map[int64]int32{}, known: map[string]int32{}}
	r.of, r.last, r.first = map[string]*startShape{}, -1, -1
	r.driver = driverReader{times: j.Used[device], graphs: map[string]int64{}}
	others := accounting.NewOthers(&accounting.Card{OwnOnly: !j.WholeCard}, j.Text)
	for e, err := range trace.Events(source) {
		if err != nil {
			return nil, err
		}
		others.Add(e)
		r.driver.before(e)
		r.event(e, int64(others.Bytes(device)))
		r.driver.after(e, device, others.Libraries(device))
		if e.Kind == trace.KindAlloc && e.Requested > accounting.LargestCard {
			return nil, fmt.Errorf("event %d: %d bytes: more than any card has", e.Seq, e.Requested)
		}
		if len(r.ops) > mostStartOps {
			return nil, fmt.Errorf("more than %d requests and frees: record the start of the engine alone", mostStartOps)
		}
	}
	if r.last < 0 {
		return nil, ErrNoStart
	}
	r.finish()
	return r, nil
}

func (r *startReader) event(e *trace.Event, others int64) {
	switch e.Kind {
	case trace.KindPhaseBegin:
		r.phases = append(r.phases, trace.ParseContext(e.Kind, r.j.Text(e.Context)).Name())
	case trace.KindPhaseEnd:
		r.phases = r.phases[:max(0, len(r.phases)-1)]
	case trace.KindCaptureBegin:
		r.graphs++
		name := trace.ParseContext(e.Kind, r.j.Text(e.Context)).Get("name")
		if _, rows := sized(cmp.Or(name, r.phase())); rows == 0 { // what a capture without a size belongs to is not known
			name = fmt.Sprintf("capture #%d", r.graphs)
		}
		r.open = append(r.open, cmp.Or(name, r.phase()))
	case trace.KindCaptureEnd:
		if n := len(r.open); n > 0 {
			list, _ := sized(r.open[n-1])
			r.driver.captured = append(r.driver.captured, list)
		}
		r.open = r.open[:max(0, len(r.open)-1)]
	}
	if e.Device != r.device {
		return
	}
	switch e.Kind {
	case trace.KindArena:
		options := trace.ParseContext(e.Kind, r.j.Text(e.Context)).Map()
		if r.pools[e.Arena] = ""; attribution.Pooled(options) {
			r.pools[e.Arena] = options["pool"]
		}
		r.native = r.native || options["allocator"] == "native"
	case trace.KindDeviceUsed:
		r.total, _ = e.DeviceMemory()
	case trace.KindAlloc:
		r.alloc(e, others)
	case trace.KindFree:
		r.free(e)
	case trace.KindReclaim:
		if e.Arena == trace.NoArena && trace.ParseContext(e.Kind, r.j.Text(e.Context)).Name() == "empty_cache" {
			r.ops = append(r.ops, startOp{block: -1})
		}
	case trace.KindUnmap: // PyTorch's own allocator releases all that is free, as empty_cache does, of which there is no event
		if n := len(r.ops); r.native && n > 0 && r.ops[n-1].block >= 0 {
			r.ops = append(r.ops, startOp{block: -1})
		}
	case trace.KindKVCache:
		given := trace.ParseContext(e.Kind, r.j.Text(e.Context))
		r.marks = append(r.marks, kvMark{e.KVSlots(), e.KVTokenBytes(), max(1, given.Count("block", 1)), len(r.blocks)})
	}
}

func (r *startReader) phase() string {
	if len(r.phases) == 0 {
		return ""
	}
	return r.phases[len(r.phases)-1]
}

func (r *startReader) alloc(e *trace.Event, others int64) {
	if e.Requested <= 0 {
		return
	}
	number := int32(len(r.blocks))
	phase, known := r.known[r.phase()]
	if !known {
		phase = int32(len(r.names))
		r.known[r.phase()] = phase
		r.names = append(r.names, r.phase())
	}
	b := startBlock{seq: e.Seq, bytes: e.Requested, stream: e.Stream, others: others, phase: phase, shape: -1}
	if r.first < 0 {
		r.first = others
	}
	if pool := r.pools[e.Arena]; pool != "" {
		s := r.shape(pool)
		b.shape = s.index
		s.numbers[number] = int32(len(s.blocks))
		stream := slices.Index(s.streams, e.Stream)
		if stream < 0 {
			stream = len(s.streams)
			s.streams = append(s.streams, e.Stream)
		}
		s.Ops = append(s.Ops, graphs.Op{Bytes: e.Requested, Block: int32(len(s.blocks)), Stream: int32(stream)})
		s.blocks = append(s.blocks, number)
		r.last = len(r.ops)
	}
	r.blocks = append(r.blocks, b)
	r.live[e.Addr] = number
	r.ops = append(r.ops, startOp{block: number})
}

// shape is that of the graph that is being captured in a pool: of a recording without captures, as a dry run's, the phase tells them apart.
func (r *startReader) shape(pool string) *startShape {
	name := r.phase()
	if len(r.open) > 0 {
		name = r.open[len(r.open)-1]
	}
	key := pool + "\x00" + name
	s := r.of[key]
	if s == nil {
		s = &startShape{index: int32(len(r.shapes)), pool: pool, name: name, numbers: map[int32]int32{}}
		s.Sequence = &graphs.Sequence{}
		s.family, s.Size = sized(name)
		r.of[key] = s
		r.shapes = append(r.shapes, s)
	}
	r.now = s
	return s
}

// sized divides the name of a graph into the name of its list and its rows; 0: it has none.
func sized(name string) (family string, rows int64) {
	head := strings.TrimRight(name, "0123456789")
	rows, err := strconv.ParseInt(name[len(head):], 10, 32)
	if err != nil {
		return name, 0
	}
	if strings.HasSuffix(head, "#") { // numbers captures, not rows
		return strings.TrimRight(head, " #"), 0
	}
	return strings.TrimRight(head, " _-=:"), rows
}

func (r *startReader) free(e *trace.Event) {
	number, live := r.live[e.Addr]
	if !live {
		return
	}
	delete(r.live, e.Addr)
	r.ops = append(r.ops, startOp{number, true})
	b := &r.blocks[number]
	if b.shape < 0 {
		return
	}
	s := r.shapes[b.shape]
	if s == r.now && (len(r.open) > 0 || r.phase() == s.name) { // pieces of one graph are captured in one phase
		s.Ops = append(s.Ops, graphs.Op{Block: s.numbers[number]})
		return
	}
	s.frees = append(s.frees, lateFree{s.numbers[number], len(r.shapes)})
}

// finish says what stays, and what of the graphs outlives them.
func (r *startReader) finish() {
	for _, op := range r.ops[:r.last] {
		if op.free {
			r.blocks[op.block].freed = true
		}
	}
	for i, s := range r.shapes {
		for _, f := range s.frees {
			switch further := f.begun - 1 - i; {
			case f.begun == len(r.shapes) && i < len(r.shapes)-1, further == 0 && i == len(r.shapes)-1: // it outlived all
			case further == 0:
				s.Ops = append(s.Ops, graphs.Op{Block: f.block})
			default:
				s.Late = append(s.Late, graphs.Late{Block: f.block, Shapes: further})
			}
		}
		s.numbers, s.frees = nil, nil
	}
	r.findKV()
}

// stays says whether a block is there when all graphs have been captured.
func (r *startReader) stays(number int, upTo int) bool {
	b := &r.blocks[number]
	return !b.freed && b.shape < 0 && number < upTo
}

// findKV marks the blocks of the KV cache.
func (r *startReader) findKV() {
	last := int(r.ops[r.last].block)
	found := false
	for i := range r.blocks {
		if b := &r.blocks[i]; r.stays(i, last) && attribution.IsKVPhase(r.names[b.phase]) {
			b.kv, found = true, true
		}
	}
	if found {
		return
	}
	if len(r.marks) > 0 { // what was made last before it
		m := r.marks[0]
		left := m.slots * m.token
		for i := min(m.blocks, len(r.blocks)) - 1; i >= 0 && left > 0; i-- {
			if b := &r.blocks[i]; r.stays(i, last) && b.bytes >= m.token {
				b.kv = true
				left -= b.bytes
			}
		}
		return
	}
	r.findLargest(last)
}

// findLargest takes the largest blocks for the cache that were made after the peak of what does not stay.
func (r *startReader) findLargest(last int) {
	var now, peak, most int64
	at := 0
	for _, op := range r.ops[:r.last] {
		if op.block < 0 || r.blocks[op.block].shape >= 0 || !r.blocks[op.block].freed {
			continue
		}
		if op.free {
			now -= r.blocks[op.block].bytes
			continue
		}
		if now += r.blocks[op.block].bytes; now > peak {
			peak, at = now, int(op.block)
		}
	}
	for i := at; i < last; i++ {
		if r.stays(i, last) {
			most = max(most, r.blocks[i].bytes)
		}
	}
	for i := at; i < last; i++ {
		r.blocks[i].kv = r.stays(i, last) && r.blocks[i].bytes >= max(most/2, 1<<20)
	}
}

// peak is the most that PyTorch's allocator reserves for what is neither a graph's nor the cache.
type peak struct {
	reserved  int64
	allocated int64 // the most that is allocated
	seq       int64 // of the request that made it reserve the most, its bytes and phase
	bytes     int64
	phase     string
}

// replay puts all but graphs and the KV cache through PyTorch's allocator.
func (r *startReader) replay() (p peak, err error) {
	const memory = 1 << 46
	options := torchalloc.AllocatorOptions{Settings: torchalloc.DefaultSettings(), Version: torchalloc.Torch211, Total: memory}
	a := torchalloc.NewAllocator(options, torchalloc.NewDriver(memory))
	live := map[int32]*torchalloc.Block{}
	for _, op := range r.ops {
		if op.block < 0 {
			if err := a.EmptyCache(); err != nil {
				return p, err
			}
			continue
		}
		b := &r.blocks[op.block]
		if b.shape >= 0 || b.kv {
			continue
		}
		if op.free {
			a.Free(live[op.block])
			delete(live, op.block)
			continue
		}
		if live[op.block], err = a.Malloc(uint64(b.bytes), uint64(b.stream)); err != nil {
			return p, fmt.Errorf("event %d: %d bytes: %w", b.seq, b.bytes, err)
		}
		stats := a.Stats()
		p.allocated = max(p.allocated, int64(stats.Allocated.Now))
		if now := int64(stats.Reserved.Now); now > p.reserved {
			p = peak{now, p.allocated, b.seq, b.bytes, r.names[b.phase]}
		}
	}
	return p, nil
}
