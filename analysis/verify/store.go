package verify

import (
	"fmt"
	"math"

	"github.com/memprof/memprof/trace"
)

// store is the physical memory of a graph memory.
type store struct {
	number      string // its graph_memory=
	granularity uint64
	base        uint64
	mapped      uint64            // bytes, from its start
	lacking     *trace.Event      // the last map, for which an alias has to follow; or nil
	shapes      map[uint64]*shape // by the address of their ranges
}

// shape is a range of a graph memory: addresses at which its store is mapped.
type shape struct {
	store  *store
	base   uint64
	size   uint64 // of the range
	extent uint64 // bytes from the start that its arenas use
	arenas int
}

// graphMemory takes the arena event of a store, or of an arena in a range of one.
func (r *replayer) graphMemory(e *trace.Event, options string, a *arena) *Mismatch {
	fields := trace.ParseContext(e.Kind, options)
	number, ok := fields.Lookup("graph_memory")
	if !ok {
		return nil
	}
	if fields.Is("store") {
		granularity := fields.Count("granularity", 0)
		if granularity == 0 {
			return atEvent(e, "the granularity of a store", fmt.Sprintf("%q", options))
		}
		r.stores[e.Arena] = &store{number: number, granularity: uint64(granularity), base: uint64(e.Addr), shapes: map[uint64]*shape{}}
		return nil
	}
	if a == nil {
		return nil
	}
	for _, s := range r.stores {
		if s.number == number {
			a.join(s, e)
			return nil
		}
	}
	return atEvent(e, "the store of graph memory "+number+" before it", "none")
}

// join adds an arena to the range that its event names.
func (a *arena) join(s *store, e *trace.Event) {
	base := uint64(e.Addr)
	of := s.shapes[base]
	if of == nil {
		of = &shape{store: s, base: base, size: uint64(e.Provided)}
		s.shapes[base] = of
	}
	of.arenas++
	a.shape = of
	a.script.aliases, a.script.room.known = true, false // growths are where the range has its aliases
}

// leave removes an arena that ended from its range. A range ends with its last arena.
func (s *shape) leave() {
	if s == nil {
		return
	}
	if s.arenas--; s.arenas == 0 {
		delete(s.store.shapes, s.base)
	}
}

// step takes a map or an unmap of the store.
func (s *store) step(e *trace.Event) *Mismatch {
	bytes := uint64(e.Provided)
	at := uint64(e.Addr) - s.base
	if e.Kind != trace.KindMap && e.Kind != trace.KindUnmap || bytes == 0 || bytes%s.granularity != 0 {
		return atEvent(e, fmt.Sprintf("a map or an unmap of pages of %d bytes in a store", s.granularity), describe(e))
	}
	if e.Kind == trace.KindMap {
		if at != s.mapped {
			return atEvent(e, fmt.Sprintf("a map at %#x, the end of the store", s.base+s.mapped), describe(e))
		}
		s.mapped += bytes
		mapping := *e
		s.lacking = &mapping
		return nil
	}
	if bytes > s.mapped || at != s.mapped-bytes {
		return atEvent(e, fmt.Sprintf("an unmap that ends at %#x, the end of the store", s.base+s.mapped), describe(e))
	}
	for _, of := range s.shapes {
		if of.extent > at {
			return atEvent(e, fmt.Sprintf("%d bytes of the store to stay mapped, which the range at %#x uses", of.extent, of.base), describe(e))
		}
	}
	s.mapped, s.lacking = at, nil
	return nil
}

// end takes the last event of a store.
func (s *store) end(e *trace.Event) *Mismatch {
	if s.mapped != 0 || len(s.shapes) > 0 {
		return atEvent(e, "the end of a store without mapped bytes and without ranges",
			fmt.Sprintf("one with %d bytes mapped and %d ranges", s.mapped, len(s.shapes)))
	}
	return nil
}

// alias takes an alias or an unalias.
func (r *replayer) alias(e *trace.Event, context string) *Mismatch {
	a, wrong := r.arena(e)
	if wrong != nil {
		return wrong
	}
	number := trace.ParseContext(e.Kind, context).Count("store", -1)
	s := r.stores[int32(number)]
	if number < 0 || number > math.MaxInt32 || s == nil {
		return atEvent(e, "the arena of a store", fmt.Sprintf("%q", context))
	}
	offset, bytes := uint64(e.StoreOffset()), uint64(e.Provided)
	if bytes == 0 || offset > s.mapped || bytes > s.mapped-offset {
		return atEvent(e, fmt.Sprintf("a part of the store, which has %d bytes", s.mapped), describe(e))
	}
	if e.Kind == trace.KindAlias && s.lacking != nil {
		if offset+bytes != s.mapped {
			return atEvent(s.lacking, fmt.Sprintf("the store to have %d bytes, which the alias behind it needs", offset+bytes), describe(s.lacking))
		}
		s.lacking = nil
	}
	if a == nil || a.shape == nil || a.shape.store != s || uint64(e.Addr) != a.shape.base+offset {
		return atEvent(e, "an arena of a range that has this part of the store at that address", describe(e))
	}
	if e.Kind == trace.KindUnalias {
		return a.unmapFree(e)
	}
	if offset != a.shape.extent || bytes > a.shape.size-offset {
		return atEvent(e, fmt.Sprintf("an alias at %#x, behind the last one of its range", a.shape.base+a.shape.extent), describe(e))
	}
	a.shape.extent += bytes
	return a.memory(e)
}
