package torchalloc

import (
	"fmt"
	"slices"

	"github.com/memprof/memprof/trace"
)

// script answers a model's calls with what the recording has: maps and unmaps since the last request, in order.
type script struct {
	calls []trace.Event
	wrong string // what the model did that the recording has not; "" so far
	lost  bool   // a reservation was made whose address the recording has not
}

var _ Device = (*script)(nil)

// blame keeps the first contradiction.
func (s *script) blame(format string, values ...any) {
	if s.wrong == "" {
		s.wrong = fmt.Sprintf(format, values...)
	}
}

// mapped takes the next call if it is a map. ok is false where memory was released first: the device had refused.
func (s *script) mapped(what string, bytes uint64) (e trace.Event, ok bool) {
	if len(s.calls) == 0 {
		s.blame("%s of %d bytes", what, bytes)
		return e, false
	}
	if e = s.calls[0]; e.Kind != trace.KindMap {
		return e, false
	}
	s.calls = s.calls[1:]
	if uint64(e.Provided) != bytes {
		s.blame("%s of %d bytes instead of %d", what, bytes, e.Provided)
	}
	return e, true
}

// unmapped takes a release, in any order among those of one run.
func (s *script) unmapped(what string, addr, bytes uint64) {
	for i := range s.calls {
		if s.calls[i].Kind != trace.KindUnmap {
			break
		}
		if uint64(s.calls[i].Addr) == addr && uint64(s.calls[i].Provided) == bytes {
			s.calls = slices.Delete(s.calls, i, i+1)
			return
		}
	}
	s.blame("a release of %s of %d bytes at %#x", what, bytes, addr)
}

func (s *script) Alloc(bytes uint64) (addr uint64, ok bool) {
	e, ok := s.mapped("a segment", bytes)
	return uint64(e.Addr), ok
}

func (s *script) Free(addr, bytes uint64) { s.unmapped("a segment", addr, bytes) }

// Reserve returns the address of the next pages: a new reservation is mapped from its beginning.
func (s *script) Reserve(uint64) (addr uint64, ok bool) {
	for i := range s.calls {
		if s.calls[i].Kind == trace.KindMap {
			return uint64(s.calls[i].Addr), true
		}
	}
	s.lost = true
	return 0, false
}

func (s *script) Unreserve(uint64, uint64) {}

func (s *script) Map(addr, bytes uint64) bool {
	e, ok := s.mapped("a map", bytes)
	if ok && uint64(e.Addr) != addr {
		s.blame("a map of %d bytes at %#x instead of %#x", bytes, addr, uint64(e.Addr))
	}
	return ok
}

func (s *script) Unmap(addr, bytes uint64) { s.unmapped("pages", addr, bytes) }
