package verify

import (
	"slices"

	"github.com/memprof/memprof/trace"
)

// addresses are those from start up to but not including end.
type addresses struct{ start, end uint64 }

func addressesOf(e *trace.Event) addresses {
	start := uint64(e.Addr)
	return addresses{start, start + min(uint64(e.Provided), -start-1)}
}

// register takes a register event, or the deregister event of one before it.
func (a *arena) register(e *trace.Event) *Mismatch {
	if len(a.script.events) > 0 || e.Provided <= 0 {
		return atEvent(e, "it in an arena that is at rest, of 1 byte or more", describe(e))
	}
	r := addressesOf(e)
	if e.Kind == trace.KindRegister {
		a.registered = append(a.registered, r)
		a.heap.Register(uint64(e.Addr), uint64(e.Provided))
		return nil
	}
	at := slices.Index(a.registered, r)
	if at < 0 {
		return atEvent(e, "a register of the same bytes before it", describe(e))
	}
	a.registered = slices.Delete(a.registered, at, at+1)
	a.heap.Deregister(uint64(e.Addr), uint64(e.Provided))
	return nil
}

// keeps checks that an unmap leaves registered memory alone.
func (a *arena) keeps(e *trace.Event) *Mismatch {
	unmapped := addressesOf(e)
	for _, r := range a.registered {
		if r.start < unmapped.end && unmapped.start < r.end {
			return atEvent(e, "no unmap of "+place(r.end-r.start, r.start)+", which is registered", describe(e))
		}
	}
	return nil
}
