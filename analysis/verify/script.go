package verify

import (
	"fmt"

	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/trace"
)

// script is the memory of a replayed arena: it answers from the events of one attempt at a
// time, and notes the first question that the recording does not answer. From then on it
// refuses everything.
type script struct {
	granularity uint64
	coalesces   bool
	aliases     bool // it grows out of a range of a graph memory

	events []trace.Event // of the attempt, in order
	at     int           // the next one to be asked for
	end    *trace.Event  // what the attempt ends with
	wrong  *Mismatch

	growths int64
	mapped  uint64 // bytes, by the events taken
	room    reservation
}

var _ bfc.Memory = (*script)(nil)

// reservation is the range of addresses that an arena's growths fill from its start. What
// comes after it is not recorded, so no place is known once it is left.
type reservation struct {
	next, end uint64
	known     bool
}

// leaveFor notes that the memory may have gone on to another reservation, if a growth by
// bytes does not fit this one: it does so before it knows whether it can grant it.
func (r *reservation) leaveFor(bytes uint64) {
	if bytes > r.end-r.next {
		r.known = false
	}
}

// Granularity is that of the arena's options.
func (s *script) Granularity() uint64 { return s.granularity }

// Coalesces is that of the arena's options.
func (s *script) Coalesces() bool { return s.coalesces }

// next is the event that answers the next question, if it is of one of two kinds.
func (s *script) next(question string, kind, or trace.Kind) *trace.Event {
	if s.wrong != nil {
		return nil
	}
	if s.at == len(s.events) {
		s.wrong = atEvent(s.end, question+" before it", "none")
		return nil
	}
	e := &s.events[s.at]
	if e.Kind != kind && e.Kind != or {
		s.wrong = atEvent(e, question, describe(e))
		return nil
	}
	s.at++
	return e
}

// Free answers with the device_used event that is next.
func (s *script) Free() uint64 {
	e := s.next("a reading of the device's memory", trace.KindDeviceUsed, trace.KindDeviceUsed)
	if e == nil {
		return 0
	}
	if e.Provided < 0 || e.Requested < e.Provided {
		s.wrong = atEvent(e, "no more bytes used than there are", describe(e))
		return 0
	}
	return uint64(e.Requested - e.Provided)
}

// Grow answers with the map or grow_failed event that is next.
func (s *script) Grow(bytes uint64) (addr, granted uint64, ok bool) {
	if s.wrong != nil {
		return 0, 0, false
	}
	question := fmt.Sprintf("a growth by %d bytes", bytes)
	grown := trace.KindMap
	if s.aliases {
		grown = trace.KindAlias
	}
	e := s.next(question, grown, trace.KindGrowFailed)
	if e == nil {
		return 0, 0, false
	}
	// In place of the bytes asked, an alias says where in its store it lies.
	if e.Kind != trace.KindAlias && uint64(e.Requested) != bytes {
		s.wrong = atEvent(e, question, describe(e))
		return 0, 0, false
	}
	if e.Kind == trace.KindGrowFailed {
		s.room.leaveFor((bytes + s.granularity - 1) &^ (s.granularity - 1))
		return 0, 0, false
	}
	addr, granted = uint64(e.Addr), uint64(e.Provided)
	if granted < bytes || granted-bytes >= s.granularity || granted&(s.granularity-1) != 0 {
		s.wrong = atEvent(e, fmt.Sprintf("%d bytes rounded up to %d", bytes, s.granularity), describe(e))
		return 0, 0, false
	}
	s.room.leaveFor(granted)
	if s.room.known && addr != s.room.next {
		s.wrong = atEvent(e, fmt.Sprintf("a growth at %#x, behind the last one", s.room.next), describe(e))
		return 0, 0, false
	}
	s.room.next = addr + granted
	s.mapped += granted
	s.growths++
	return addr, granted, true
}

// Map answers with the map or map_failed event that is next.
func (s *script) Map(addr, bytes uint64) bool {
	question := "a map of " + place(bytes, addr)
	e := s.next(question, trace.KindMap, trace.KindMapFailed)
	if e == nil {
		return false
	}
	if uint64(e.Addr) != addr || uint64(e.Requested) != bytes || e.Kind == trace.KindMap && uint64(e.Provided) != bytes {
		s.wrong = atEvent(e, question, describe(e))
		return false
	}
	if e.Kind == trace.KindMapFailed {
		return false
	}
	s.mapped += bytes
	return true
}

// Take takes the unmap event that is next, if it is of that range and for a request. Whatever
// else is next, the memory refused.
func (s *script) TryUnmap(addr, bytes uint64) bool {
	if s.wrong != nil || s.at == len(s.events) {
		return false
	}
	e := &s.events[s.at]
	if e.Kind != trace.KindUnmap || uint64(e.Addr) != addr || uint64(e.Requested) != bytes || uint64(e.Provided) != bytes {
		return false
	}
	s.at++
	s.mapped -= bytes
	return true
}

// Unmap takes the unmap event that undoes a map of the same attempt.
func (s *script) Unmap(addr, bytes uint64) {
	question := "an unmap of " + place(bytes, addr)
	e := s.next(question, trace.KindUnmap, trace.KindUnmap)
	if e == nil {
		return
	}
	if uint64(e.Addr) != addr || uint64(e.Provided) != bytes {
		s.wrong = atEvent(e, question, describe(e))
		return
	}
	s.mapped -= bytes
}

// Release takes the unmaps of what was mapped of a region, in the order of addresses. That
// they are all there shows in the bytes mapped after the attempt.
func (s *script) Release(addr, bytes uint64) {
	for s.wrong == nil && s.at < len(s.events) {
		e := &s.events[s.at]
		from, size := uint64(e.Addr), uint64(e.Provided)
		if e.Kind != trace.KindUnmap || from < addr || from-addr >= bytes || size > bytes-(from-addr) {
			break
		}
		s.at++
		s.mapped -= size
		bytes -= from - addr + size
		addr = from + size
	}
	// The memory may grow again behind or in place of what it took back.
	s.room.known = false
}
