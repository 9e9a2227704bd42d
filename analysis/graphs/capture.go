package graphs

import (
	"fmt"
	"slices"

	"github.com/memprof/memprof/analysis/attribution"
	"github.com/memprof/memprof/analysis/graphpool"
	"github.com/memprof/memprof/analysis/ledger"
	"github.com/memprof/memprof/trace"
)

const (
	// maxOps bounds the requests of captures that are kept to be replayed, of a device.
	maxOps = 1 << 20
	// maxBytes is the most that they ask for in all: no device has so many addresses.
	maxBytes = 1 << 56
)

// Tracker follows the captures of a process. Only what is allocated during one is looked at,
// and what of that is freed.
type Tracker struct {
	ledger      *ledger.Ledger
	who         *attribution.Tracker
	text        func(context int32) string
	finishEvent func(index int32, e *trace.Event) error
	open        []*capture
	byDevice    map[int32]*deviceState
}

// capture is one that has begun.
type capture struct {
	device int32 // NoDevice until it is known
	stream int64
	pool   string // "" until it is known
	name   string
	seq    int64
	begun  int64 // time
	inputs int64
	shapes []*shapeState // that have memory of it
}

// deviceState is the state of a device.
type deviceState struct {
	captures int64
	stores   []*storeState
	pooled   int                  // shapes of pools so far
	ops      int                  // kept
	asked    int64                // bytes in them
	blocks   map[int64]blockState // live or pending ones of shapes in pools, by address
	ranges   []*memoryRange
}

// storeState is a Store in the making.
type storeState struct {
	Store
	arenas  []*Arena // that make up its memory
	shapes  []*shapeState
	r       int64  // mapped now
	aliased int64  // bytes mapped in ranges now
	why     string // its requests cannot be replayed, "" if they can

	log     []graphpool.Op // requests of all shapes in the order they were made
	logged  int32          // blocks in it
	streams []int64
}

// shapeState is a Shape in the making.
type shapeState struct {
	Shape
	store *storeState
	index int // among the shapes of pools of the device

	t, c    int64
	pages   map[int32]ledger.RangeSet // that it was handed, by index of the arena
	recent  ledger.Range              // the pages it was handed last
	within  int32                     // of that arena
	ops     []graphpool.Op
	late    []lateFree
	blocks  int32
	streams []int64
	arena   *Arena // one of those it was handed memory of: whose policy is replayed
}

// lateFree is a free, outside of captures of the block's shape.
type lateFree struct {
	block int32
	last  int  // the newest shape then, by index
	own   bool // the shape let go of it, and it waited for a stream
}

// blockState is a block that a capture made.
type blockState struct {
	shape               *shapeState
	requested, provided int64
	number, logged      int32 // among the blocks of the shape and of the store; -1: not kept for replay
	stream, on          int32 // as the shape and the store number it
	let                 bool  // go of by its shape, and waiting for a stream
}

func (g *Tracker) of(device int32) *deviceState {
	d := g.byDevice[device]
	if d == nil {
		d = &deviceState{blocks: map[int64]blockState{}}
		g.byDevice[device] = d
	}
	return d
}

// New is a Tracker of a process without events. text gives the text of a context. finishEvent is called with
// an arena whose terms the tracker has changed, during an event.
func New(of *ledger.Ledger, who *attribution.Tracker, text func(int32) string, finishEvent func(index int32, e *trace.Event) error) *Tracker {
	return &Tracker{ledger: of, who: who, text: text, finishEvent: finishEvent, byDevice: map[int32]*deviceState{}}
}

// Arena is what the tracker keeps of an arena.
type Arena struct {
	*ledger.Arena
	pooled bool         // its options name a pool
	store  *storeState  // that it is memory of
	window *memoryRange // it is a range of a graph memory, and nothing of it is mapped
}

// InRange says whether the arena is a range of a graph memory: its blocks are not in the ledger.
func (ar *Arena) InRange() bool { return ar.window != nil }

// Backs says whether the arena is the store of a graph memory. What is free of it is free in the
// ranges too, so none of its growths has a verdict.
func (ar *Arena) Backs() bool { return ar.store != nil && ar.store.Memory != "" }

// Grew takes a change of the mapped bytes of an arena.
func (ar *Arena) Grew(bytes int64) {
	if ar.store != nil {
		ar.store.grow(bytes)
	}
}

// maxOpen bounds the captures that are open at once, so that the pass stays linear in events.
const maxOpen = 1024

// Capture takes the begin or the end of a capture.
func (g *Tracker) Capture(e *trace.Event) error {
	g.who.Capture(e.OpenCaptures())
	if e.Kind == trace.KindCaptureBegin {
		if len(g.open) == maxOpen {
			return fmt.Errorf("more than %d captures at once", maxOpen)
		}
		g.begins(e)
	} else {
		g.ends(e)
	}
	return nil
}

// begins takes a capture_begin.
func (g *Tracker) begins(e *trace.Event) {
	fields := trace.ParseContext(e.Kind, g.text(e.Context))
	c := &capture{device: e.Device, stream: e.Stream, pool: fields.Get("pool"), name: fields.Get("name"), seq: e.Seq, begun: e.Time, inputs: fields.Count("inputs", 0)}
	if c.name == "" {
		c.name = g.who.Own()
	}
	g.open = append(g.open, c)
	if d := g.byDevice[e.Device]; d != nil && c.pool != "" {
		for _, w := range d.ranges {
			if w.pool == c.pool {
				c.in(w.shape)
			}
		}
	}
}

// ends takes a capture_end: the newest capture of its stream ends.
func (g *Tracker) ends(e *trace.Event) {
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
			d.shapeIn(d.pool(c.pool), c)
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

// captureOf is the capture that an allocation in a pool's arena is part of, or nil: that of its
// pool, or, of those whose pool is not known, the one on its stream or the only one.
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

// Allocated takes an alloc event, after it. Only blocks in the arena of a pool count, that are allocated
// during a capture or lie over a range of a graph memory.
func (g *Tracker) Allocated(ar *Arena, e *trace.Event) {
	if !ar.pooled || !g.who.Capturing() && !ar.Over {
		return
	}
	d := g.of(ar.Info.Device)
	if w := d.rangeAt(e.Addr); ar.Over && w != nil {
		d.overlaid(w, ar, e)
		g.joins(w)
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
	store := d.pool(ar.Info.Options["pool"])
	store.has(ar)
	s := d.shapeIn(store, c)
	s.touch(ar, ledger.Range{From: e.Addr, To: e.Addr + e.Provided})
	s.takes(e.Requested, e.Provided, ar.Native)
	b := blockState{
		shape: s, requested: e.Requested, provided: e.Provided, number: -1,
		stream: number(&s.streams, e.Stream), on: number(&store.streams, e.Stream),
	}
	d.keep(&b, ar)
	d.blocks[e.Addr] = b
}

// Freed takes a free event that left nothing pending, or a free_done event.
func (g *Tracker) Freed(ar *Arena, e *trace.Event) {
	if !ar.pooled {
		return
	}
	d := g.byDevice[ar.Info.Device]
	if d == nil {
		return
	}
	if ar.Over {
		d.bare(e.Addr)
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
	s.store.log = append(s.store.log, graphpool.Op{Block: b.logged, Stream: b.on})
	if g.capturing(s) {
		s.ops = append(s.ops, graphpool.Op{Block: b.number, Stream: b.stream})
		return
	}
	s.late = append(s.late, lateFree{b.number, d.pooled - 1, b.let})
}

// Waits takes a free event that left its block pending.
func (g *Tracker) Waits(ar *Arena, e *trace.Event) {
	if !ar.pooled {
		return
	}
	if d := g.byDevice[ar.Info.Device]; d != nil {
		if b, ok := d.blocks[e.Addr]; ok && g.capturing(b.shape) {
			b.let = true
			d.blocks[e.Addr] = b
		}
	}
}

// capturing says whether a shape is being captured.
func (g *Tracker) capturing(s *shapeState) bool {
	return slices.ContainsFunc(g.open, func(c *capture) bool { return slices.Contains(c.shapes, s) })
}

// Restored takes a restore event: the blocks of a pool are not those of requests any more.
func (g *Tracker) Restored(ar *Arena) {
	if d := g.byDevice[ar.Info.Device]; d != nil && ar.pooled {
		d.pool(ar.Info.Options["pool"]).why = "a checkpoint of the pool was restored"
	}
}

// pool is the store of a pool.
func (d *deviceState) pool(name string) *storeState {
	for i := len(d.stores) - 1; i >= 0; i-- {
		if s := d.stores[i]; s.Memory == "" && s.Pool == name {
			return s
		}
	}
	s := &storeState{Store: Store{Pool: name}}
	d.stores = append(d.stores, s)
	return s
}

// has makes an arena part of the store.
func (s *storeState) has(ar *Arena) {
	if ar.store == s {
		return
	}
	ar.store = s
	s.arenas = append(s.arenas, ar)
	s.grow(ar.R)
}

// grow follows what is mapped.
func (s *storeState) grow(bytes int64) {
	s.r += bytes
	s.Physical = max(s.Physical, s.r)
}

// shapeIn is the shape of a store that a capture is part of: the one that it has there already,
// else that of its name, else a new one.
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

// takes adds a new block; native: its chunk is not known.
func (s *shapeState) takes(requested, provided int64, native bool) {
	s.t += requested
	s.c += provided
	s.Requested = max(s.Requested, s.t)
	s.Provided = max(s.Provided, s.c)
	if native {
		s.Provided = -1
	}
}

// touch has the shape have been handed the pages of r.
func (s *shapeState) touch(ar *Arena, r ledger.Range) {
	if s.within == ar.Index && r.From >= s.recent.From && r.To <= s.recent.To {
		return
	}
	pages := ar.pagesOf(r)
	set := s.pages[ar.Index]
	set.Cover(pages)
	s.pages[ar.Index] = set
	s.within, s.recent = ar.Index, pages
}

// pagesOf are the pages that have a byte of r, which is mapped: the device's granules, or the
// segments of an allocator that reports no more.
func (ar *Arena) pagesOf(r ledger.Range) ledger.Range {
	unit := ar.Granularity()
	pages := ledger.Range{From: r.From / unit * unit, To: (r.To + unit - 1) / unit * unit}
	last, mapped := ar.Mapped().After(r.To - 1)
	if !mapped {
		return pages
	}
	first, _ := ar.Mapped().After(r.From)
	if ar.Native && !ar.Coalesces {
		return ledger.Range{From: first.From, To: last.To}
	}
	return ledger.Range{From: max(pages.From, first.From), To: min(pages.To, last.To)}
}

// keep keeps the request of a block to be replayed.
func (d *deviceState) keep(b *blockState, ar *Arena) {
	s := b.shape
	if b.requested == 0 {
		return
	}
	if d.ops >= maxOps || b.requested > maxBytes-d.asked {
		s.store.why = "there are more requests than are kept"
		return
	}
	d.ops++
	d.asked += b.requested
	if s.arena == nil {
		s.arena = ar
	}
	b.number, b.logged = s.blocks, s.store.logged
	s.blocks++
	s.store.logged++
	s.ops = append(s.ops, graphpool.Op{Bytes: b.requested, Block: b.number, Stream: b.stream})
	s.store.log = append(s.store.log, graphpool.Op{Bytes: b.requested, Block: b.logged, Stream: b.on})
}

// number numbers streams as they come. Those of one shape are others than those of the next,
// and stand in the same relation.
func number(streams *[]int64, stream int64) int32 {
	at := slices.Index(*streams, stream)
	if at < 0 {
		at = len(*streams)
		*streams = append(*streams, stream)
	}
	return int32(at)
}
