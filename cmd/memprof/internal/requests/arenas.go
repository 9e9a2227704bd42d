package requests

import (
	"fmt"
	"strconv"

	"github.com/memprof/memprof/hooks/rerun"
	"github.com/memprof/memprof/trace"
)

// recordedArena is an arena of the recording, and where requests to it go now.
type recordedArena struct {
	device int32
	stream int64
	pool   rerun.Pool
	tag    string

	memory   string // number of the graph memory that the arena is the store or a range of, or ""
	store    bool
	shape    string
	segments bool // its blocks are segments of another allocator, whose own blocks are requests

	arena *rerun.Arena // nil until the first request
}

// describe takes an arena event.
func (r *Requests) describe(event *trace.Event, options string) {
	if r.arenas[event.Arena] != nil {
		return // a further reservation of the same arena
	}
	fields := trace.ParseContext(trace.KindArena, options)
	p := &recordedArena{device: event.Device, stream: event.Stream, pool: parsePool(fields.Get("pool")), tag: fields.Get("tag"), shape: fields.Get("shape")}
	p.memory, p.store, p.segments = fields.Get("graph_memory"), fields.Is("store"), fields.Is("segments")
	r.arenas[event.Arena] = p
	if p.memory == "" || p.segments {
		return
	}
	memory := graphMemory{p.device, p.memory}
	if p.store {
		number, err := r.requester.GraphMemoryOpen(p.device, event.Provided)
		r.failed(event, err)
		r.memories[memory] = number
		return
	}
	shaped := devicePool{p.device, p.pool}
	if !r.shaped[shaped] {
		r.shaped[shaped] = true
		r.failed(event, r.requester.GraphShape(p.device, r.memories[memory], p.shape, p.pool))
	}
}

// parsePool reads "1.2a": both numbers are hexadecimal. What is no pool is none.
func parsePool(text string) rerun.Pool {
	var pool rerun.Pool
	if n, err := fmt.Sscanf(text, "%x.%x", &pool[0], &pool[1]); err != nil || n != 2 {
		return rerun.Pool{}
	}
	return pool
}

// arena is that of an event's arena.
func (r *Requests) arena(event *trace.Event) *recordedArena {
	if event.Arena == r.lastArena && r.last != nil {
		return r.last
	}
	p := r.arenas[event.Arena]
	if p == nil {
		p = &recordedArena{device: event.Device, stream: event.Stream}
		r.arenas[event.Arena] = p
	}
	r.lastArena, r.last = event.Arena, p
	return p
}

// arenaOf is where requests to a recorded arena go.
func (r *Requests) arenaOf(p *recordedArena) (*rerun.Arena, error) {
	if p.arena == nil {
		arena, err := r.requester.Arena(p.device, p.stream, p.pool, p.tag)
		if err != nil {
			return nil, err
		}
		p.arena = arena
	}
	return p.arena, nil
}

// release takes the end of an arena. Who held its pool is not recorded, but that nobody does.
func (r *Requests) release(event *trace.Event) {
	p := r.arenas[event.Arena]
	if p == nil {
		return
	}
	delete(r.arenas, event.Arena)
	r.last = nil
	switch {
	case p.store:
		memory := graphMemory{p.device, p.memory}
		r.requester.GraphMemoryClose(p.device, r.memories[memory])
		delete(r.memories, memory)
	case p.pool != rerun.Pool{}:
		r.requester.ReleasePool(p.device, p.pool)
		delete(r.shaped, devicePool{p.device, p.pool})
		delete(r.checkpoints, devicePool{p.device, p.pool})
	}
}

// devicePool is a pool of a device.
type devicePool struct {
	device int32
	pool   rerun.Pool
}

// graphMemory is a graph memory by its recorded number.
type graphMemory struct {
	device int32
	number string
}

// texts are the contexts of a recording, as the hook knows them.
type texts struct {
	requester *rerun.Requester
	of        func(context int32) string
	numbers   map[int32]rerun.Context
	nodes     map[int64]uint32 // of call stacks, by their recorded numbers
}

// context is the hook's number of a recorded context.
func (t *texts) context(number int32) rerun.Context {
	if number == 0 {
		return 0
	}
	known, ok := t.numbers[number]
	if !ok {
		known = t.requester.Context(t.restacked(t.of(number)))
		t.numbers[number] = known
	}
	return known
}

// restacked is a context with the number of its call stack that the hook gave it.
func (t *texts) restacked(text string) string {
	context := trace.ParseContext(trace.KindAlloc, text)
	if now := t.nodes[context.Count("stack", 0)]; now != 0 {
		return context.With("stack", strconv.FormatUint(uint64(now), 10))
	}
	return text
}
