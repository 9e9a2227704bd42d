package graphs

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/memprof/memprof/analysis/attribution"
	"github.com/memprof/memprof/analysis/ledger"
	"github.com/memprof/memprof/trace"
)

// A graph memory has a store, an arena that maps pages and serves no request, and ranges of addresses. A range
// has an arena for each stream, which maps nothing: its alias events say which part of the store it grew by, and
// at which addresses. Blocks in ranges share physical memory, so they are kept here, and not in the ledger of
// mapped memory. A framework's allocator may take segments from a range and divide them itself. Its arena then
// lies over the range, and its memory is counted once, as the store's.

// memoryRange is a range of a graph memory, from its first arena to the end of the last.
type memoryRange struct {
	device   int32
	base, to int64  // its addresses
	pool     string // of its arenas
	shape    *shapeState
	arenas   int                  // how many have not ended
	aliases  []alias              // by address
	blocks   map[int64]blockState // by address

	// overT and overC are the requested and provided bytes of the arenas that lie over it; mostT and mostC are
	// their maxima.
	over                       bool // an arena lay over it
	overT, overC, mostT, mostC int64
}

// alias is a part of a range, and the offset in the store, in bytes, of the memory that it shows.
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
	store := d.store("", number)
	if ar.Info.Options["store"] != "" {
		store.addArena(ar)
		return
	}
	at, there := slices.BinarySearchFunc(d.ranges, ar.Info.Base, byBase)
	if there {
		ar.graphRange = d.ranges[at]
		ar.graphRange.arenas++
		return
	}
	shape := d.newShape(store, ar.Info.Options["shape"], e.Seq, e.Time)
	shape.Address = ar.Info.Reservation
	ar.graphRange = &memoryRange{
		device: ar.Info.Device, base: ar.Info.Base, to: ar.Info.Base + ar.Info.Reservation, pool: ar.Info.Options["pool"],
		shape: shape, arenas: 1, blocks: map[int64]blockState{},
	}
	d.ranges = slices.Insert(d.ranges, at, ar.graphRange)
}

func byBase(r *memoryRange, base int64) int { return cmp.Compare(r.base, base) }

// rangeAt returns the range that an address lies in, or nil.
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
	mr := ar.graphRange
	if mr == nil {
		return fmt.Errorf("arena %d is no range of a graph memory", e.Arena)
	}
	at, there := slices.BinarySearchFunc(mr.aliases, r.From, func(x alias, addr int64) int { return cmp.Compare(x.From, addr) })
	if e.Kind == trace.KindUnalias {
		return mr.unalias(r)
	}
	if there || at > 0 && mr.aliases[at-1].To > r.From || at < len(mr.aliases) && mr.aliases[at].From < r.To {
		return fmt.Errorf("%#x to %#x is aliased already", r.From, r.To)
	}
	store := mr.shape.store
	if len(store.arenas) == 0 {
		return fmt.Errorf("graph memory %s has no store", store.Memory)
	}
	backing := store.arenas[0]
	pages := ledger.Range{From: backing.Info.Base + e.Requested, To: backing.Info.Base + e.Requested + r.Bytes()}
	if in, ok := backing.Mapped().Overlapping(pages); !ok || in.From > pages.From || in.To < pages.To {
		return fmt.Errorf("the store has no memory at %#x to %#x", pages.From, pages.To)
	}
	mr.shape.addPages(backing, pages)
	mr.aliases = slices.Insert(mr.aliases, at, alias{r, e.Requested})
	if at > 0 && mr.aliases[at-1].joins(mr.aliases[at]) {
		mr.aliases[at-1].To = r.To
		mr.aliases = slices.Delete(mr.aliases, at, at+1)
	}
	store.aliased += r.Bytes()
	store.Aliased = max(store.Aliased, store.aliased)
	return nil
}

// joins says whether next begins where x ends, in the range and in the store.
func (x alias) joins(next alias) bool {
	return x.To == next.From && x.offset+x.Bytes() == next.offset
}

// unalias removes r from the aliases. All of r must be aliased.
func (mr *memoryRange) unalias(r ledger.Range) error {
	kept := make([]alias, 0, len(mr.aliases))
	gone := int64(0)
	for _, x := range mr.aliases {
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
	mr.aliases = kept
	mr.shape.store.aliased -= gone
	return nil
}

// RangeEvent takes an event of an arena in a range, if it is about blocks or pages: they are those of the graphs alone.
func (g *Tracker) RangeEvent(ar *Arena, e *trace.Event) (taken bool, err error) {
	switch e.Kind {
	case trace.KindAlloc, trace.KindRestore:
		err = g.rangeAlloc(ar, e)
	case trace.KindFree:
		err = g.rangeFreed(ar, e)
	case trace.KindFreeDone, trace.KindStreamUse: // a block ends with its free, also where another stream may still use it
	case trace.KindShrink:
		err = fmt.Errorf("arena %d is a range of a graph memory, whose blocks have no slack", e.Arena)
	case trace.KindMap:
		err = fmt.Errorf("arena %d is a range of a graph memory, which maps nothing", e.Arena)
	case trace.KindPoolRelease:
		err = g.rangeReleased(ar)
	default:
		return false, nil
	}
	return true, err
}

// rangeAlloc takes an alloc of an arena in a range.
func (g *Tracker) rangeAlloc(ar *Arena, e *trace.Event) error {
	mr := ar.graphRange
	if e.Requested < 0 || e.Provided <= 0 || e.Requested > e.Provided || e.Addr < mr.base || e.Addr > mr.to-e.Provided {
		return fmt.Errorf("%d bytes asked for, %d provided", e.Requested, e.Provided)
	}
	if old, ok := mr.blocks[e.Addr]; ok {
		return fmt.Errorf("a block of %d bytes there is live", old.provided)
	}
	mr.blocks[e.Addr] = blockState{shape: mr.shape, requested: e.Requested, provided: e.Provided, number: -1}
	mr.shape.addBlock(ar, e)
	g.joinCapture(mr)
	return g.handedOut(mr, ledger.Range{From: e.Addr, To: e.Addr + e.Provided}, e)
}

// rangeFreed takes a free of an arena in a range.
func (g *Tracker) rangeFreed(ar *Arena, e *trace.Event) error {
	mr := ar.graphRange
	b, ok := mr.blocks[e.Addr]
	if !ok {
		return fmt.Errorf("no block that starts there is live")
	}
	delete(mr.blocks, e.Addr)
	b.shape.t -= b.requested
	b.shape.c -= b.provided
	return nil
}

// joinCapture assigns the open capture of the range's pool, or else the only open one, to the range's shape.
func (g *Tracker) joinCapture(mr *memoryRange) {
	var found *capture
	n := 0
	for _, c := range g.open {
		if c.device != mr.device && c.device != trace.NoDevice {
			continue
		}
		if found == nil || c.pool == mr.pool {
			found = c
		}
		n++
	}
	if n == 0 || n > 1 && found.pool != mr.pool {
		return
	}
	found.device = mr.device
	found.setShape(mr.shape)
}

// setShape assigns the capture to a shape, which gets the name of the capture if that has one.
func (c *capture) setShape(s *shapeState) {
	if slices.Contains(c.shapes, s) {
		return
	}
	c.shapes = append(c.shapes, s)
	if c.name != "" {
		s.Name = c.name
	}
}

// handedOut must be called when bytes of a range are handed out. The bytes of the store that they show have then
// been handed out, too.
func (g *Tracker) handedOut(mr *memoryRange, r ledger.Range, e *trace.Event) error {
	at := r.From
	for _, x := range mr.aliases {
		if x.To <= at || x.From > at {
			continue
		}
		backing := mr.shape.store.arenas[0]
		from, to := x.offset+at-x.From, x.offset+min(x.To, r.To)-x.From
		if err := g.useStore(backing, ledger.Range{From: backing.Info.Base + from, To: backing.Info.Base + to}, e); err != nil {
			return err
		}
		if at = min(x.To, r.To); at == r.To {
			return nil
		}
	}
	return fmt.Errorf("%#x is not aliased", at)
}

// useStore notes that r, in a store, has been handed out.
func (g *Tracker) useStore(ar *Arena, r ledger.Range, e *trace.Event) error {
	if err := g.ledger.Spend(ar.Arena, r); err != nil {
		return err
	}
	return g.finishEvent(ar.Index, e)
}

// Mapping must be called before an arena maps r. If its first memory is in a range, the arena lies over it.
func (g *Tracker) Mapping(ar *Arena, r ledger.Range, e *trace.Event) error {
	d := g.byDevice[ar.Info.Device]
	if d == nil || ar.R > 0 && !ar.Over {
		return nil
	}
	mr := d.rangeAt(r.From)
	if mr == nil {
		return nil
	}
	ar.LieOver()
	mr.over = true
	return g.handedOut(mr, r, e)
}

// allocOver counts a block of an arena that lies over a range.
func (d *deviceState) allocOver(mr *memoryRange, ar *Arena, e *trace.Event) {
	mr.overT += e.Requested
	mr.overC += e.Provided
	mr.mostT, mr.mostC = max(mr.mostT, mr.overT), ar.Known(max(mr.mostC, mr.overC))
	d.blocks[e.Addr] = blockState{shape: mr.shape, requested: e.Requested, provided: e.Provided, number: -1}
}

// freeOver frees a block of an arena that lies over a range.
func (d *deviceState) freeOver(addr int64) {
	b, ok := d.blocks[addr]
	mr := d.rangeAt(addr)
	if !ok || mr == nil {
		return
	}
	delete(d.blocks, addr)
	mr.overT -= b.requested
	mr.overC -= b.provided
}

// rangeReleased ends an arena of a range, and the range with the last one.
func (g *Tracker) rangeReleased(ar *Arena) error {
	if err := g.ledger.Release(ar.Arena); err != nil {
		return err
	}
	mr := ar.graphRange
	if mr.arenas--; mr.arenas > 0 {
		return nil
	}
	mr.sumRequested()
	mr.shape.Released = true
	for _, x := range mr.aliases {
		mr.shape.store.aliased -= x.Bytes()
	}
	d := g.of(mr.device)
	d.ranges = slices.DeleteFunc(d.ranges, func(r *memoryRange) bool { return r == mr })
	return nil
}

// sumRequested sets the requested and provided bytes of the shape to those of the arenas over its range, if any.
func (mr *memoryRange) sumRequested() {
	if !mr.over || mr.mostT == 0 {
		return
	}
	mr.shape.Requested = mr.mostT
	if mr.mostC >= 0 {
		mr.shape.Provided = mr.mostC
	}
	mr.over = false
}
