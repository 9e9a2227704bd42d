package analysis

import (
	"fmt"
	"github.com/memprof/memprof/analysis/ledger"
	"slices"

	"github.com/memprof/memprof/analysis/graphpool"
	"github.com/memprof/memprof/trace"
)

const (
	// maxGraphOps bounds the requests of captures that are kept to be replayed, of a device.
	maxGraphOps = 1 << 20
	// maxGraphBytes is the most that they ask for in all: no device has so many addresses.
	maxGraphBytes = 1 << 56
)

// graphs follows the captures of a process. Only what is allocated during one is looked at,
// and what of that is freed.
type graphs struct {
	open     []*capture
	byDevice map[int32]*deviceGraphs
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
	shapes []*graphShape // that have memory of it
}

// deviceGraphs is the state of a device.
type deviceGraphs struct {
	captures int64
	stores   []*graphStore
	pooled   int                  // shapes of pools so far
	ops      int                  // kept
	asked    int64                // bytes in them
	blocks   map[int64]graphBlock // live or pending ones of shapes in pools, by address
	ranges   []*graphRange
}

// graphStore is a GraphStore in the making.
type graphStore struct {
	GraphStore
	arenas  []*arena // that make up its memory
	shapes  []*graphShape
	r       int64  // mapped now
	aliased int64  // bytes mapped in ranges now
	why     string // its requests cannot be replayed, "" if they can

	log     []graphpool.Op // requests of all shapes in the order they were made
	logged  int32          // blocks in it
	streams []int64
}

// graphShape is a GraphShape in the making.
type graphShape struct {
	GraphShape
	store *graphStore
	index int // among the shapes of pools of the device

	t, c    int64
	pages   map[int32]ledger.RangeSet // that it was handed, by index of the arena
	recent  ledger.Range              // the pages it was handed last
	within  int32                     // of that arena
	ops     []graphpool.Op
	late    []lateFree
	blocks  int32
	streams []int64
	arena   *arena // one of those it was handed memory of: whose policy is replayed
}

// lateFree is a free, outside of captures of the block's shape.
type lateFree struct {
	block int32
	last  int  // the newest shape then, by index
	own   bool // the shape let go of it, and it waited for a stream
}

// graphBlock is a block that a capture made.
type graphBlock struct {
	shape               *graphShape
	requested, provided int64
	number, logged      int32 // among the blocks of the shape and of the store; -1: not kept for replay
	stream, on          int32 // as the shape and the store number it
	let                 bool  // go of by its shape, and waiting for a stream
}

func (g *graphs) of(device int32) *deviceGraphs {
	d := g.byDevice[device]
	if d == nil {
		if g.byDevice == nil {
			g.byDevice = map[int32]*deviceGraphs{}
		}
		d = &deviceGraphs{blocks: map[int64]graphBlock{}}
		g.byDevice[device] = d
	}
	return d
}

// capture takes the begin or the end of one.
func (a *analyzer) capture(e *trace.Event) error {
	a.attribution.Capture(e.OpenCaptures())
	if e.Kind == trace.KindCaptureBegin {
		if len(a.graphs.open) == mostCaptures {
			return fmt.Errorf("more than %d captures at once", mostCaptures)
		}
		a.captureBegins(e)
	} else {
		a.captureEnds(e)
	}
	return nil
}

// captureBegins takes a capture_begin.
func (a *analyzer) captureBegins(e *trace.Event) {
	fields := trace.ParseContext(e.Kind, a.opt.Text(e.Context))
	c := &capture{device: e.Device, stream: e.Stream, pool: fields.Get("pool"), name: fields.Get("name"), seq: e.Seq, begun: e.Time, inputs: fields.Count("inputs", 0)}
	if c.name == "" {
		c.name = a.attribution.Own()
	}
	a.graphs.open = append(a.graphs.open, c)
	if d := a.graphs.byDevice[e.Device]; d != nil && c.pool != "" {
		for _, w := range d.ranges {
			if w.pool == c.pool {
				c.in(w.shape)
			}
		}
	}
}

// captureEnds takes a capture_end: the newest capture of its stream ends.
func (a *analyzer) captureEnds(e *trace.Event) {
	g := &a.graphs
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
func (g *graphs) captureOf(ar *arena, stream int64) *capture {
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

// graphAllocated is told of a block that was handed out in the arena of a pool while something was
// captured.
func (a *analyzer) graphAllocated(ar *arena, e *trace.Event) {
	d := a.graphs.of(ar.Info.Device)
	if w := d.rangeAt(e.Addr); ar.Over && w != nil {
		d.overlaid(w, ar, e)
		a.graphs.joins(w)
		return
	}
	c := a.graphs.captureOf(ar, e.Stream)
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
	s.takes(e.Requested, e.Provided, ar.Sampled)
	b := graphBlock{
		shape: s, requested: e.Requested, provided: e.Provided, number: -1,
		stream: number(&s.streams, e.Stream), on: number(&store.streams, e.Stream),
	}
	d.keep(&b, ar)
	d.blocks[e.Addr] = b
}

// graphFreed is told of a free in the arena of a pool that was captured in, or of the free_done
// of one that waited.
func (a *analyzer) graphFreed(ar *arena, e *trace.Event) {
	d := a.graphs.byDevice[ar.Info.Device]
	if d == nil || !ar.pooled {
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
	if a.graphs.capturing(s) {
		s.ops = append(s.ops, graphpool.Op{Block: b.number, Stream: b.stream})
		return
	}
	s.late = append(s.late, lateFree{b.number, d.pooled - 1, b.let})
}

// graphWaits is told of a free that waits for a stream.
func (a *analyzer) graphWaits(ar *arena, e *trace.Event) {
	if d := a.graphs.byDevice[ar.Info.Device]; d != nil && ar.pooled {
		if b, ok := d.blocks[e.Addr]; ok && a.graphs.capturing(b.shape) {
			b.let = true
			d.blocks[e.Addr] = b
		}
	}
}

// capturing says whether a shape is being captured.
func (g *graphs) capturing(s *graphShape) bool {
	return slices.ContainsFunc(g.open, func(c *capture) bool { return slices.Contains(c.shapes, s) })
}

// graphRestored is told that a checkpoint of a pool was restored: its blocks are not those of
// requests any more.
func (a *analyzer) graphRestored(ar *arena) {
	if d := a.graphs.byDevice[ar.Info.Device]; d != nil && ar.pooled {
		d.pool(ar.Info.Options["pool"]).why = "a checkpoint of the pool was restored"
	}
}

// pool is the store of a pool.
func (d *deviceGraphs) pool(name string) *graphStore {
	for i := len(d.stores) - 1; i >= 0; i-- {
		if s := d.stores[i]; s.Memory == "" && s.Pool == name {
			return s
		}
	}
	s := &graphStore{GraphStore: GraphStore{Pool: name}}
	d.stores = append(d.stores, s)
	return s
}

// has makes an arena part of the store.
func (s *graphStore) has(ar *arena) {
	if ar.store == s {
		return
	}
	ar.store = s
	s.arenas = append(s.arenas, ar)
	s.grow(ar.R)
}

// grow follows what is mapped.
func (s *graphStore) grow(bytes int64) {
	s.r += bytes
	s.Physical = max(s.Physical, s.r)
}

// shapeIn is the shape of a store that a capture is part of: the one that it has there already,
// else that of its name, else a new one.
func (d *deviceGraphs) shapeIn(store *graphStore, c *capture) *graphShape {
	for _, s := range c.shapes {
		if s.store == store {
			return s
		}
	}
	at := -1
	if c.name != "" {
		at = slices.IndexFunc(store.shapes, func(s *graphShape) bool { return s.Name == c.name })
	}
	var s *graphShape
	if at >= 0 {
		s = store.shapes[at]
	} else {
		s = d.newShape(store, c.name, c.seq, c.begun)
	}
	c.shapes = append(c.shapes, s)
	return s
}

func (d *deviceGraphs) newShape(store *graphStore, name string, seq, time int64) *graphShape {
	s := &graphShape{GraphShape: GraphShape{Name: name, Seq: seq, Start: time}, store: store, within: -1, pages: map[int32]ledger.RangeSet{}}
	store.shapes = append(store.shapes, s)
	if store.Memory == "" {
		s.index = d.pooled
		d.pooled++
	}
	return s
}

// takes is told of a new block.
func (s *graphShape) takes(requested, provided int64, untold bool) {
	s.t += requested
	s.c += provided
	s.Requested = max(s.Requested, s.t)
	s.Provided = max(s.Provided, s.c)
	if untold {
		s.Provided = -1
	}
}

// touch has the shape have been handed the pages of r.
func (s *graphShape) touch(ar *arena, r ledger.Range) {
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
// segments of an allocator that tells no more.
func (ar *arena) pagesOf(r ledger.Range) ledger.Range {
	unit := ar.Granularity()
	pages := ledger.Range{From: r.From / unit * unit, To: (r.To + unit - 1) / unit * unit}
	last, mapped := ar.Mapped().After(r.To - 1)
	if !mapped {
		return pages
	}
	first, _ := ar.Mapped().After(r.From)
	if ar.Sampled && !ar.Coalesces {
		return ledger.Range{From: first.From, To: last.To}
	}
	return ledger.Range{From: max(pages.From, first.From), To: min(pages.To, last.To)}
}

// keep keeps the request of a block to be replayed.
func (d *deviceGraphs) keep(b *graphBlock, ar *arena) {
	s := b.shape
	if b.requested == 0 {
		return
	}
	if d.ops >= maxGraphOps || b.requested > maxGraphBytes-d.asked {
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
