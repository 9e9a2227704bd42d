package requests

import (
	"fmt"

	"github.com/memprof/memprof/hooks/rerun"
	"github.com/memprof/memprof/trace"
)

// mark takes what moves no memory of an arena.
func (r *Requests) mark(event *trace.Event, context string) error {
	switch event.Kind {
	case trace.KindIteration:
		r.Iterations++
		r.requester.Iteration(context)
	case trace.KindPhaseBegin:
		r.requester.PhaseBegin(context)
	case trace.KindPhaseEnd:
		r.requester.PhaseEnd(context)
	case trace.KindStack:
		number, parent := event.StackNode()
		r.texts.nodes[number] = r.requester.StackNode(r.texts.nodes[parent], context)
	case trace.KindLabel:
		if b, ok := r.live[block{event.Arena, event.Addr}]; ok {
			r.Labels++
			r.requester.Label(b, r.texts.context(event.Context))
		}
	case trace.KindStreamUse:
		if b, ok := r.live[block{event.Arena, event.Addr}]; ok {
			return r.requester.UseOn(r.arena(event).device, b, event.Stream)
		}
	case trace.KindReclaim:
		if event.Arena == trace.NoArena && context == "empty_cache" {
			r.requester.EmptyCache(event.Device)
		}
	case trace.KindExternalAlloc:
		r.take(event, context)
	case trace.KindExternalFree:
		return r.give(event, context)
	default:
		return r.pooled(event, context)
	}
	return nil
}

// hookLibrary took what the hook needs for itself, in recordings of some versions of memprof.
// It does so again.
const hookLibrary = "libmemprof.so"

// take takes memory that another library had.
func (r *Requests) take(event *trace.Event, context string) {
	fields := trace.ParseContext(event.Kind, context)
	if fields.Get("library") == hookLibrary {
		return
	}
	memory := rerun.DeviceMemory
	switch {
	case fields.Is("host"):
		memory = rerun.HostMemory
	case fields.Is("managed"):
		memory = rerun.ManagedMemory
	case fields.Is("pool"):
		memory = rerun.PoolMemory
	}
	taken, err := r.requester.Take(event.Device, memory, event.Stream, event.Requested, context)
	if err != nil {
		r.refuse(event, err)
		return
	}
	r.Others++
	r.libraries[event.Addr] = taken
}

func (r *Requests) give(event *trace.Event, context string) error {
	taken, ok := r.libraries[event.Addr]
	if !ok {
		return nil // it was refused
	}
	delete(r.libraries, event.Addr)
	if err := r.requester.Give(taken, context); err != nil {
		return fmt.Errorf("event %d: %s: %w", event.Seq, event.Kind, err)
	}
	return nil
}
