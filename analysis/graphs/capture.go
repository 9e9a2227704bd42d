package graphs

import (
	"fmt"
	"slices"

	"github.com/memprof/memprof/analysis/attribution"
	"github.com/memprof/memprof/analysis/ledger"
	"github.com/memprof/memprof/trace"
)

const (
	// maxOps is the most requests of a device's captures that are kept, to be replayed.
	maxOps = 1 << 20
	// maxBytes is the most bytes that these request together. No device has so many addresses.
	maxBytes = 1 << 56
)

// Tracker follows the captures of a process: the blocks that are allocated during one, and their frees.
type Tracker struct {
	ledger      *ledger.Ledger
	attribution *attribution.Tracker
	text        func(context int32) string
	finishEvent func(index int32, e *trace.Event) error
	open        []*capture
	byDevice    map[int32]*deviceState
}

// capture is a capture that has begun and not ended.
type capture struct {
	device int32 // NoDevice until it is known
	stream int64
	pool   string // "" until it is known
	name   string
	seq    int64
	begun  int64         // time, ns
	inputs int64         // bytes of the persistent inputs that it uses; 0 if not reported
	shapes []*shapeState // those that it has allocated memory for, one a store
}

// deviceState is what the tracker knows of a device.
type deviceState struct {
	captures int64 // that have ended
	stores   []*storeState
	pooled   int                  // shapes of pools so far
	ops      int                  // requests kept to be replayed
	opBytes  int64                // bytes of these requests
	blocks   map[int64]blockState // live or pending blocks of shapes in pools, by address
	ranges   []*memoryRange
}

// storeState is a [Store] that the pass has not finished.
type storeState struct {
	Store
	arenas  []*Arena // whose memory it consists of
	shapes  []*shapeState
	r       int64  // bytes mapped now
	aliased int64  // bytes mapped in ranges now
	why     string // why its requests cannot be replayed; "" if they can

	log     []Op    // requests and frees of all shapes, in the order in which they were made
	logged  int32   // number of blocks in log
	streams []int64 // stream handles, by their number in log
}

// shapeState is a [Shape] that the pass has not finished.
type shapeState struct {
	Shape
	store *storeState
	index int // among the shapes of pools of the device

	t, c    int64                     // requested and provided bytes of its live blocks
	pages   map[int32]ledger.RangeSet // by index of the arena, the pages in which it was ever handed a byte
	recent  ledger.Range              // the pages that were added last
	within  int32                     // index of the arena of recent; -1: none
	ops     []Op                      // its requests, and the frees during its captures
	late    []lateFree
	blocks  int32   // number of blocks in ops
	streams []int64 // stream handles, by their number in ops
	arena   *Arena  // the arena of its first request, whose policy is replayed
}

// lateFree is a free that came when the block's shape was not being captured.
type lateFree struct {
	block int32
	last  int  // index of the newest shape at the free
	own   bool // the job freed the block during the capture; only the wait for another stream ended later
}

// blockState is a block that was allocated during a capture, or in a range of a graph memory.
type blockState struct {
	shape               *shapeState
	requested, provided int64
	number, logged      int32 // its number in shapeState.ops and in storeState.log; number is -1 if it is not kept
	stream, storeStream int32 // the number of its stream in these two
	pending             bool  // freed during the capture, while another stream may still use it
}

func (g *Tracker) of(device int32) *deviceState {
	d := g.byDevice[device]
	if d == nil {
		d = &deviceState{blocks: map[int64]blockState{}}
		g.byDevice[device] = d
	}
	return d
}

// New returns a Tracker of a process without events. text returns the text of a context. The tracker calls
// finishEvent, during an event, with the index of an arena of which it has changed a term.
func New(of *ledger.Ledger, who *attribution.Tracker, text func(int32) string, finishEvent func(index int32, e *trace.Event) error) *Tracker {
	return &Tracker{ledger: of, attribution: who, text: text, finishEvent: finishEvent, byDevice: map[int32]*deviceState{}}
}

// Arena is what the tracker keeps of an arena.
type Arena struct {
	*ledger.Arena
	pooled     bool         // its options name a pool
	store      *storeState  // the store whose memory it is a part of; nil: none
	graphRange *memoryRange // the range of a graph memory that it grows in, where nothing is mapped for it; nil: none
}

// InRange says whether the arena grows in a range of a graph memory. Its blocks are then not in the ledger.
func (ar *Arena) InRange() bool { return ar.graphRange != nil }

// Backs says whether the arena is the store of a graph memory. Its free bytes are free in the ranges, too, so its
// growths get no verdict.
func (ar *Arena) Backs() bool { return ar.store != nil && ar.store.Memory != "" }

// Grew adds bytes, negative for an unmap, to the mapped bytes of the arena's store.
func (ar *Arena) Grew(bytes int64) {
	if ar.store != nil {
		ar.store.grow(bytes)
	}
}

// maxOpen bounds the captures that are open at once, so that the pass stays linear in events.
const maxOpen = 1024

// Capture takes a capture_begin or a capture_end.
func (g *Tracker) Capture(e *trace.Event) error {
	g.attribution.Capture(e.OpenCaptures())
	if e.Kind == trace.KindCaptureBegin {
		if len(g.open) == maxOpen {
			return fmt.Errorf("more than %d captures at once", maxOpen)
		}
		g.begin(e)
	} else {
		g.end(e)
	}
	return nil
}

// begin opens a capture.
func (g *Tracker) begin(e *trace.Event) {
	fields := trace.ParseContext(e.Kind, g.text(e.Context))
	c := &capture{device: e.Device, stream: e.Stream, pool: fields.Get("pool"), name: fields.Get("name"), seq: e.Seq, begun: e.Time, inputs: fields.Count("inputs", 0)}
	if c.name == "" {
		c.name = g.attribution.Own()
	}
	g.open = append(g.open, c)
	if d := g.byDevice[e.Device]; d != nil && c.pool != "" {
		for _, mr := range d.ranges {
			if mr.pool == c.pool {
				c.setShape(mr.shape)
			}
		}
	}
}

// end closes the newest capture of the event's stream.
func (g *Tracker) end(e *trace.Event) {
	for i := len(g.open) - 1; i >= 0; i-- {
		c := g.open[i]
		if c.stream != e.Stream || c.device != e.Device && c.device != trace.NoDevice && e.Device != trace.NoDevice {
			continue
		}
		g.open = slices.Delete(g.open, i, i+1)
		if c.device == trace.NoDevice {
			return // nothing was allocated in it, on no known device
		}
		d := g.of(c.device)
		d.captures++
		if len(c.shapes) == 0 && c.pool != "" {
			d.shapeIn(d.store(c.pool, ""), c)
		}
		for _, s := range c.shapes {
			s.Captures++
			s.Time += e.Time - c.begun
			s.Outputs = s.t
			s.Inputs = max(s.Inputs, c.inputs)
		}
		return
	}
}

// captureOf returns the open capture that an allocation in a pool's arena belongs to: the newest of that pool, or
// of the stream and no known pool; else the only one without a known pool; else nil.
func (g *Tracker) captureOf(ar *Arena, stream int64) *capture {
	pool := ar.Info.Options["pool"]
	var only *capture
	n := 0
	for i := len(g.open) - 1; i >= 0; i-- {
		c := g.open[i]
		if c.device != ar.Info.Device && c.device != trace.NoDevice {
			continue
		}
		if c.pool == pool || c.pool == "" && c.stream == stream {
			return c
		}
		if c.pool == "" {
			only = c
			n++
		}
	}
	if n == 1 {
		return only
	}
	return nil
}

// Allocated takes an alloc event that the ledger has taken. It counts blocks in arenas of pools that are allocated
// during a capture, or that lie over a range of a graph memory.
func (g *Tracker) Allocated(ar *Arena, e *trace.Event) {
	if !ar.pooled || !g.attribution.Capturing() && !ar.Over {
		return
	}
	d := g.of(ar.Info.Device)
	if mr := d.rangeAt(e.Addr); ar.Over && mr != nil {
		d.allocOver(mr, ar, e)
		g.joinCapture(mr)
		return
	}
	c := g.captureOf(ar, e.Stream)
	if c == nil {
		return
	}
	c.device = ar.Info.Device
	if c.pool == "" {
		c.pool = ar.Info.Options["pool"]
	}
	store := d.store(ar.Info.Options["pool"], "")
	store.addArena(ar)
	s := d.shapeIn(store, c)
	s.addPages(ar, ledger.Range{From: e.Addr, To: e.Addr + e.Provided})
	s.addBlock(ar, e)
	b := blockState{
		shape: s, requested: e.Requested, provided: e.Provided, number: -1,
		stream: number(&s.streams, e.Stream), storeStream: number(&store.streams, e.Stream),
	}
	d.keep(&b, ar)
	d.blocks[e.Addr] = b
}

// Freed takes the event after which a block can be reused: a free without a pending block, or a free_done.
func (g *Tracker) Freed(ar *Arena, e *trace.Event) {
	if !ar.pooled {
		return
	}
	d := g.byDevice[ar.Info.Device]
	if d == nil {
		return
	}
	if ar.Over {
		d.freeOver(e.Addr)
		return
	}
	b, ok := d.blocks[e.Addr]
	if !ok {
		return
	}
	delete(d.blocks, e.Addr)
	s := b.shape
	s.t -= b.requested
	s.c -= b.provided
	if b.number < 0 {
		return
	}
	s.store.log = append(s.store.log, Op{Block: b.logged, Stream: b.storeStream})
	if g.capturing(s) {
		s.ops = append(s.ops, Op{Block: b.number, Stream: b.stream})
		return
	}
	s.late = append(s.late, lateFree{b.number, d.pooled - 1, b.pending})
}

// Waits takes a free event after which the block is pending.
func (g *Tracker) Waits(ar *Arena, e *trace.Event) {
	if !ar.pooled {
		return
	}
	if d := g.byDevice[ar.Info.Device]; d != nil {
		if b, ok := d.blocks[e.Addr]; ok && g.capturing(b.shape) {
			b.pending = true
			d.blocks[e.Addr] = b
		}
	}
}

// capturing says whether a shape is being captured.
func (g *Tracker) capturing(s *shapeState) bool {
	return slices.ContainsFunc(g.open, func(c *capture) bool { return slices.Contains(c.shapes, s) })
}

// Restored takes a restore event. The blocks of the pool then do not follow from its requests, which cannot be
// replayed any more.
func (g *Tracker) Restored(ar *Arena) {
	if d := g.byDevice[ar.Info.Device]; d != nil && ar.pooled {
		d.store(ar.Info.Options["pool"], "").why = "a checkpoint of the pool was restored"
	}
}

// store returns the store of a pool by its name, or that of a graph memory by its number, and makes it if there is none.
// The other one is "".
func (d *deviceState) store(pool, memory string) *storeState {
	for _, s := range slices.Backward(d.stores) {
		if s.Memory == memory && s.Pool == pool {
			return s
		}
	}
	s := &storeState{Store: Store{Memory: memory, Pool: pool}}
	d.stores = append(d.stores, s)
	return s
}

// addArena makes an arena a part of the store.
func (s *storeState) addArena(ar *Arena) {
	if ar.store == s {
		return
	}
	ar.store = s
	s.arenas = append(s.arenas, ar)
	s.grow(ar.R)
}

// grow adds bytes, negative for an unmap, to the mapped bytes.
func (s *storeState) grow(bytes int64) {
	s.r += bytes
	s.Physical = max(s.Physical, s.r)
}

// shapeIn returns the shape of a store that a capture belongs to: the one that it has there already, else the
// shape of its name, else a new one.
func (d *deviceState) shapeIn(store *storeState, c *capture) *shapeState {
	for _, s := range c.shapes {
		if s.store == store {
			return s
		}
	}
	at := -1
	if c.name != "" {
		at = slices.IndexFunc(store.shapes, func(s *shapeState) bool { return s.Name == c.name })
	}
	var s *shapeState
	if at >= 0 {
		s = store.shapes[at]
	} else {
		s = d.newShape(store, c.name, c.seq, c.begun)
	}
	c.shapes = append(c.shapes, s)
	return s
}

func (d *deviceState) newShape(store *storeState, name string, seq, time int64) *shapeState {
	s := &shapeState{Shape: Shape{Name: name, Seq: seq, Start: time}, store: store, within: -1, pages: map[int32]ledger.RangeSet{}}
	store.shapes = append(store.shapes, s)
	if store.Memory == "" {
		s.index = d.pooled
		d.pooled++
	}
	return s
}

// addBlock counts a block of an arena.
func (s *shapeState) addBlock(ar *Arena, e *trace.Event) {
	s.t += e.Requested
	s.c += e.Provided
	s.Requested = max(s.Requested, s.t)
	s.Provided = ar.Known(max(s.Provided, s.c))
}

// addPages notes that the shape was handed r, and so the pages in which r lies.
func (s *shapeState) addPages(ar *Arena, r ledger.Range) {
	if s.within == ar.Index && r.From >= s.recent.From && r.To <= s.recent.To {
		return
	}
	pages := ar.pagesOf(r)
	set := s.pages[ar.Index]
	set.Cover(pages)
	s.pages[ar.Index] = set
	s.within, s.recent = ar.Index, pages
}

// pagesOf returns the pages that have a byte of r: mapped pages of the device, or whole segments of an allocator
// that maps by segments.
func (ar *Arena) pagesOf(r ledger.Range) ledger.Range {
	unit := ar.Granularity()
	pages := ledger.Range{From: r.From / unit * unit, To: (r.To + unit - 1) / unit * unit}
	last, mapped := ar.Mapped().After(r.To - 1)
	if !mapped {
		return pages
	}
	first, _ := ar.Mapped().After(r.From)
	if !ar.Coalesces {
		return ledger.Range{From: first.From, To: last.To}
	}
	return ledger.Range{From: max(pages.From, first.From), To: min(pages.To, last.To)}
}

// keep keeps the request of a block, to be replayed.
func (d *deviceState) keep(b *blockState, ar *Arena) {
	s := b.shape
	if b.requested == 0 {
		return
	}
	if d.ops >= maxOps || b.requested > maxBytes-d.opBytes {
		s.store.why = "there are more requests than are kept"
		return
	}
	d.ops++
	d.opBytes += b.requested
	if s.arena == nil {
		s.arena = ar
	}
	b.number, b.logged = s.blocks, s.store.logged
	s.blocks++
	s.store.logged++
	s.ops = append(s.ops, Op{Bytes: b.requested, Block: b.number, Stream: b.stream})
	s.store.log = append(s.store.log, Op{Bytes: b.requested, Block: b.logged, Stream: b.storeStream})
}

// number returns the number of a stream in a list, and adds it if it is new. Each shape has a list of its own:
// shapes are captured on different streams, and the first stream of one corresponds to the first of another.
func number(streams *[]int64, stream int64) int32 {
	at := slices.Index(*streams, stream)
	if at < 0 {
		at = len(*streams)
		*streams = append(*streams, stream)
	}
	return int32(at)
}
