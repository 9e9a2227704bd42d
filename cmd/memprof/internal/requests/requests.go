// Package requests makes the requests of a recorded process again, in order and as fast as they are answered.
package requests

import (
	"fmt"
	"io"

	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/cmd/memprof/internal/screen"
	"github.com/memprof/memprof/hooks/rerun"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/dataset"
)

// Counts are how many requests were made, and how they ended.
type Counts struct {
	Allocs, Frees int64
	Refused       int64 // allocations that the recording got and this run did not
	Iterations    int64
	Labels        int64
	Others        int64 // allocations of other libraries
	Failures      int64 // calls other than requests that failed
}

// block is a live allocation as the recording knows it.
type block struct {
	arena int32
	addr  int64
}

// Requests makes the requests of a recording again.
type Requests struct {
	requester  *rerun.Requester
	devices    int32 // that there are
	texts      texts
	stderr     io.Writer
	iterations int64 // to make; 0 is all

	live        map[block]uintptr // by the recording's address: where it lies here
	chunks      map[block]chunk   // likewise, of pools
	restore     restoring
	checkpoints map[devicePool][]map[block]rerun.Restored
	arenas      map[int32]*recordedArena // by arena
	libraries   map[int64]*rerun.LibraryMemory
	captures    map[captured]*rerun.Capture
	memories    map[graphMemory]rerun.GraphMemory
	shaped      map[devicePool]bool // has a range of a graph memory
	paused      map[string]bool     // tags

	lastArena int32 // that an event named, and that arena
	last      *recordedArena

	Counts
}

// New prepares the requests of a process; of iterations, if not 0, it stops after that many.
func New(requester *rerun.Requester, process *dataset.Process, stderr io.Writer, iterations int64) *Requests {
	return &Requests{
		requester: requester, devices: int32(requester.Devices()), stderr: stderr, iterations: iterations,
		texts: texts{requester: requester, of: func(context int32) string { return process.Strings().Text(context) }, numbers: map[int32]rerun.Context{}, nodes: map[int64]uint32{}},
		live:  map[block]uintptr{}, chunks: map[block]chunk{}, checkpoints: map[devicePool][]map[block]rerun.Restored{}, arenas: map[int32]*recordedArena{}, libraries: map[int64]*rerun.LibraryMemory{},
		captures: map[captured]*rerun.Capture{}, memories: map[graphMemory]rerun.GraphMemory{}, shaped: map[devicePool]bool{},
		paused: map[string]bool{},
	}
}

// All makes the requests of a process, up to the last iteration that is wanted.
func (r *Requests) All(process *dataset.Process) error {
	reader, err := process.NewReader()
	if err != nil {
		return exit.Input(err)
	}
	defer reader.Close()
	defer r.finishRestore()
	for e, err := range trace.Events(reader) {
		if err != nil {
			return exit.Input(err)
		}
		if err := r.one(e); err != nil {
			return err
		}
		if r.iterations > 0 && r.Iterations == r.iterations {
			return nil
		}
	}
	return nil
}

func (r *Requests) one(event *trace.Event) error {
	if event.Device < trace.NoDevice || event.Device >= r.devices {
		return exit.Usagef("event %d: %s on device %d, but this machine has %s", event.Seq, event.Kind, event.Device, plain.Counted(int64(r.devices), "device"))
	}
	if event.Kind == trace.KindRestore {
		r.restored(event)
		return nil
	}
	r.finishRestore()
	switch event.Kind {
	case trace.KindAlloc:
		return r.alloc(event)
	case trace.KindFree:
		return r.free(event)
	case trace.KindOOM:
		return r.oom(event)
	}
	return r.mark(event, r.texts.of(event.Context))
}

func (r *Requests) malloc(event *trace.Event) (uintptr, *recordedArena, error) {
	p := r.arena(event)
	arena, err := r.arenaOf(p)
	if err != nil {
		return 0, p, err
	}
	address, err := r.requester.Malloc(arena, event.Requested, r.texts.context(event.Context))
	return address, p, err
}

// alloc goes on after a request that fails: the rest of the job is still to be learned from.
func (r *Requests) alloc(event *trace.Event) error {
	if r.arena(event).segments {
		return nil
	}
	address, p, err := r.malloc(event)
	if err != nil {
		r.refuse(event, err)
		return nil
	}
	r.Allocs++
	key := block{event.Arena, event.Addr}
	r.live[key] = address
	if p.pool != (rerun.Pool{}) {
		r.chunks[key] = chunk{
			rerun.Restored{Arena: p.arena, Address: address, Provided: r.requester.Provided(address), Requested: event.Requested},
			devicePool{p.device, p.pool},
		}
	}
	return nil
}

func (r *Requests) refuse(event *trace.Event, err error) {
	if r.Refused == 0 {
		screen.Complain(r.stderr, fmt.Sprintf("event %d: an allocation of %d bytes, which succeeded in the recording, failed: %v", event.Seq, event.Requested, err))
	}
	r.Refused++
}

// oom makes a request that failed in the recording. Whether it succeeds now decides which blocks live after
// the phases that it ends.
func (r *Requests) oom(event *trace.Event) error {
	if event.Requested <= 0 || r.arena(event).segments {
		return nil
	}
	address, p, err := r.malloc(event)
	if err != nil {
		return nil
	}
	return r.requester.Free(p.arena, address)
}

func (r *Requests) free(event *trace.Event) error {
	key := block{event.Arena, event.Addr}
	address, ok := r.live[key]
	if !ok {
		return nil // its allocation was refused
	}
	delete(r.live, key)
	delete(r.chunks, key)
	r.Frees++
	arena, err := r.arenaOf(r.arena(event))
	if err == nil {
		err = r.requester.Free(arena, address)
	}
	if err != nil {
		return fmt.Errorf("event %d: free: %w", event.Seq, err)
	}
	return nil
}
