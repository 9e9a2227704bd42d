package graphs

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/memprof/memprof/analysis/attribution"
	"github.com/memprof/memprof/analysis/ledger"
	"github.com/memprof/memprof/trace"
)

// A graph memory has a store, which is an arena that only maps, and ranges of addresses. A range
// has an arena for each stream, which maps nothing: its alias events say which part of the
// store it grew by, and where that is seen. Blocks in ranges share physical memory, so they are
// kept here and not in the ledger of mapped memory. A framework's allocator may take segments
// from a range and divide them by itself: its arena lies over the range, and none of its memory
// is the device's a second time.

// memoryRange is one range while an arena is in it.
type memoryRange struct {
	device   int32
	base, to int64  // its addresses
	pool     string // of its arenas
	shape    *shapeState
	arenas   int
	aliases  []alias              // by address
	blocks   map[int64]blockState // by address

	// T and C of the arenas that lie over it, and the greatest they were.
	over                       bool // one did
	overT, overC, mostT, mostC int64
	native                     bool // of a native allocator: chunks in it are not known
}

// alias is a stretch of a range and where in the store it is.
type alias struct {
	ledger.Range
	offset int64
}

// Arena adds a new arena, described by an event. Its options may name a graph memory.
func (g *Tracker) Arena(of *ledger.Arena, e *trace.Event) *Arena {
	ar := &Arena{Arena: of, pooled: attribution.Pooled(of.Info.Options)}
	g.describe(ar, e)
	return ar
}

func (g *Tracker) describe(ar *Arena, e *trace.Event) {
	number := ar.Info.Options["graph_memory"]
	if number == "" {
		return
	}
	d := g.of(ar.Info.Device)
	store := d.memory(number)
	if ar.Info.Options["store"] != "" {
		store.has(ar)
		return
	}
	at, there := slices.BinarySearchFunc(d.ranges, ar.Info.Base, byBase)
	if there {
		ar.window = d.ranges[at]
		ar.window.arenas++
		return
	}
	shape := d.newShape(store, ar.Info.Options["shape"], e.Seq, e.Time)
	shape.Address = ar.Info.Reservation
	ar.window = &memoryRange{
		device: ar.Info.Device, base: ar.Info.Base, to: ar.Info.Base + ar.Info.Reservation, pool: ar.Info.Options["pool"],
		shape: shape, arenas: 1, blocks: map[int64]blockState{},
	}
	d.ranges = slices.Insert(d.ranges, at, ar.window)
}

func byBase(r *memoryRange, base int64) int { return cmp.Compare(r.base, base) }

// memory is the store of a graph memory.
func (d *deviceState) memory(number string) *storeState {
	at := slices.IndexFunc(d.stores, func(s *storeState) bool { return s.Memory == number })
	if at >= 0 {
		return d.stores[at]
	}
	s := &storeState{Store: Store{Memory: number}}
	d.stores = append(d.stores, s)
	return s
}

// rangeAt is the range that an address lies in, or nil.
func (d *deviceState) rangeAt(addr int64) *memoryRange {
	at, exact := slices.BinarySearchFunc(d.ranges, addr, byBase)
	if !exact {
		at--
	}
	if at < 0 || addr >= d.ranges[at].to {
		return nil
	}
	return d.ranges[at]
}

// Alias takes an alias or an unalias event of an arena.
func (g *Tracker) Alias(ar *Arena, e *trace.Event) error {
	r, err := ledger.RangeOf(e)
	if err != nil {
		return err
	}
	w := ar.window
	if w == nil {
		return fmt.Errorf("arena %d is no range of a graph memory", e.Arena)
	}
	at, there := slices.BinarySearchFunc(w.aliases, r.From, func(x alias, addr int64) int { return cmp.Compare(x.From, addr) })
	if e.Kind == trace.KindUnalias {
		return w.unalias(r)
	}
	if there || at > 0 && w.aliases[at-1].To > r.From || at < len(w.aliases) && w.aliases[at].From < r.To {
		return fmt.Errorf("%#x to %#x is aliased already", r.From, r.To)
	}
	store := w.shape.store
	if len(store.arenas) == 0 {
		return fmt.Errorf("graph memory %s has no store", store.Memory)
	}
	backing := store.arenas[0]
	pages := ledger.Range{From: backing.Info.Base + e.Requested, To: backing.Info.Base + e.Requested + r.Bytes()}
	if in, ok := backing.Mapped().Overlapping(pages); !ok || in.From > pages.From || in.To < pages.To {
		return fmt.Errorf("the store has no memory at %#x to %#x", pages.From, pages.To)
	}
	w.shape.touch(backing, pages)
	w.aliases = slices.Insert(w.aliases, at, alias{r, e.Requested})
	if at > 0 && w.aliases[at-1].joins(w.aliases[at]) {
		w.aliases[at-1].To = r.To
		w.aliases = slices.Delete(w.aliases, at, at+1)
	}
	store.aliased += r.Bytes()
	store.Aliased = max(store.Aliased, store.aliased)
	return nil
}

// joins says whether next goes on where x ends, in the range and in the store.
func (x alias) joins(next alias) bool {
	return x.To == next.From && x.offset+x.Bytes() == next.offset
}

// unalias takes away what is seen in r.
func (w *memoryRange) unalias(r ledger.Range) error {
	kept := make([]alias, 0, len(w.aliases))
	gone := int64(0)
	for _, x := range w.aliases {
		from, to := max(x.From, r.From), min(x.To, r.To)
		if from >= to {
			kept = append(kept, x)
			continue
		}
		gone += to - from
		if x.From < from {
			kept = append(kept, alias{ledger.Range{From: x.From, To: from}, x.offset})
		}
		if x.To > to {
			kept = append(kept, alias{ledger.Range{From: to, To: x.To}, x.offset + to - x.From})
		}
	}
	if gone != r.Bytes() {
		return fmt.Errorf("%d bytes of %#x to %#x are aliased", gone, r.From, r.To)
	}
	w.aliases = kept
	w.shape.store.aliased -= gone
	return nil
}

// RangeAlloc takes a block that was handed out in a range.
func (g *Tracker) RangeAlloc(ar *Arena, e *trace.Event) error {
	w := ar.window
	if e.Requested < 0 || e.Provided <= 0 || e.Requested > e.Provided || e.Addr < w.base || e.Addr > w.to-e.Provided {
		return fmt.Errorf("%d bytes asked for, %d provided", e.Requested, e.Provided)
	}
	if old, ok := w.blocks[e.Addr]; ok {
		return fmt.Errorf("a block of %d bytes there is live", old.provided)
	}
	w.blocks[e.Addr] = blockState{shape: w.shape, requested: e.Requested, provided: e.Provided, number: -1}
	w.shape.takes(e.Requested, e.Provided, false)
	g.joins(w)
	return g.handedOut(w, ledger.Range{From: e.Addr, To: e.Addr + e.Provided}, e)
}

// RangeFreed takes a free in a range. Whether it waits for a stream makes no difference here.
func (g *Tracker) RangeFreed(ar *Arena, e *trace.Event) error {
	w := ar.window
	b, ok := w.blocks[e.Addr]
	if e.Kind == trace.KindFreeDone {
		return nil
	}
	if !ok {
		return fmt.Errorf("no block that starts there is live")
	}
	delete(w.blocks, e.Addr)
	b.shape.t -= b.requested
	b.shape.c -= b.provided
	return nil
}

// joins has the capture at hand be one of the range: that of its pool, or the only one.
func (g *Tracker) joins(w *memoryRange) {
	var found *capture
	n := 0
	for _, c := range g.open {
		if c.device != w.device && c.device != trace.NoDevice {
			continue
		}
		if found == nil || c.pool == w.pool {
			found = c
		}
		n++
	}
	if n == 0 || n > 1 && found.pool != w.pool {
		return
	}
	found.device = w.device
	found.in(w.shape)
}

// in has a capture be one of a shape, which is called as the capture is.
func (c *capture) in(s *shapeState) {
	if slices.Contains(c.shapes, s) {
		return
	}
	c.shapes = append(c.shapes, s)
	if c.name != "" {
		s.Name = c.name
	}
}

// handedOut must be called when bytes of a range are handed out: none of those bytes of the store are
// untouched any more.
func (g *Tracker) handedOut(w *memoryRange, r ledger.Range, e *trace.Event) error {
	at := r.From
	for _, x := range w.aliases {
		if x.To <= at || x.From > at {
			continue
		}
		backing := w.shape.store.arenas[0]
		from, to := x.offset+at-x.From, x.offset+min(x.To, r.To)-x.From
		if err := g.spend(backing, ledger.Range{From: backing.Info.Base + from, To: backing.Info.Base + to}, e); err != nil {
			return err
		}
		if at = min(x.To, r.To); at == r.To {
			return nil
		}
	}
	return fmt.Errorf("%#x is not aliased", at)
}

// spend makes what is untouched of r, in a store, touched.
func (g *Tracker) spend(ar *Arena, r ledger.Range, e *trace.Event) error {
	if err := g.ledger.Spend(ar.Arena, r); err != nil {
		return err
	}
	return g.finishEvent(ar.Index, e)
}

// Mapping takes r, which is to be mapped: an arena whose first memory is in a range lies over it.
func (g *Tracker) Mapping(ar *Arena, r ledger.Range, e *trace.Event) error {
	d := g.byDevice[ar.Info.Device]
	if d == nil || ar.R > 0 && !ar.Over {
		return nil
	}
	w := d.rangeAt(r.From)
	if w == nil {
		return nil
	}
	ar.LieOver()
	w.over = true
	return g.handedOut(w, r, e)
}

// overlaid takes a block of an arena that lies over a range.
func (d *deviceState) overlaid(w *memoryRange, ar *Arena, e *trace.Event) {
	w.overT += e.Requested
	w.overC += e.Provided
	w.mostT, w.mostC = max(w.mostT, w.overT), max(w.mostC, w.overC)
	w.native = w.native || ar.Native
	d.blocks[e.Addr] = blockState{shape: w.shape, requested: e.Requested, provided: e.Provided, number: -1}
}

// bare frees a block of an arena that lies over a range.
func (d *deviceState) bare(addr int64) {
	b, ok := d.blocks[addr]
	w := d.rangeAt(addr)
	if !ok || w == nil {
		return
	}
	delete(d.blocks, addr)
	w.overT -= b.requested
	w.overC -= b.provided
}

// RangeReleased ends an arena of a range, and the range with the last one.
func (g *Tracker) RangeReleased(ar *Arena) error {
	if err := g.ledger.Release(ar.Arena); err != nil {
		return err
	}
	w := ar.window
	if w.arenas--; w.arenas > 0 {
		return nil
	}
	w.sumRequested()
	w.shape.Released = true
	for _, x := range w.aliases {
		w.shape.store.aliased -= x.Bytes()
	}
	d := g.of(w.device)
	d.ranges = slices.DeleteFunc(d.ranges, func(r *memoryRange) bool { return r == w })
	return nil
}

// sumRequested adds the requested bytes of the blocks in the range to its shape.
func (w *memoryRange) sumRequested() {
	if !w.over || w.mostT == 0 {
		return
	}
	w.shape.Requested = w.mostT
	if !w.native {
		w.shape.Provided = w.mostC
	}
	w.over = false
}
