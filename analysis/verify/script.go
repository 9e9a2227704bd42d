package verify

import (
	"fmt"
	"slices"

	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/trace"
)

// script is the memory of a replayed arena. It answers calls from the events of one attempt at a time,
// and notes the first call that the events do not answer. From then on it refuses all calls.
type script struct {
	granularity uint64
	coalesces   bool
	aliases     bool // it grows in a range of a graph memory, by alias events

	events []trace.Event // of the attempt, in order
	at     int           // index of the next event
	end    *trace.Event  // the event that ends the attempt
	wrong  *Mismatch

	growths int64
	mapped  uint64 // bytes that are mapped by the events so far
	room    reservation
}

var _ bfc.Memory = (*script)(nil)

// reservation is the first address reservation of an arena, which growths fill from its start. Further
// ones are not recorded, so that known is false once a growth did not fit.
type reservation struct {
	next, end uint64
	known     bool
}

// leaveFor notes that a growth by bytes does not fit into the reservation, so that the memory made another
// one. It does that before it knows whether it can grant the growth.
func (r *reservation) leaveFor(bytes uint64) {
	r.known = r.known && bytes <= r.end-r.next
}

// Granularity returns that of the arena event.
func (s *script) Granularity() uint64 { return s.granularity }

// Coalesces returns that of the arena event.
func (s *script) Coalesces() bool { return s.coalesces }

// Adjoins answers by the reservation. Where that is not known it answers with the growth that is next, which is by these bytes only where
// they would lie behind the last one.
func (s *script) Adjoins(bytes uint64) bool {
	if s.room.known {
		return (bytes+s.granularity-1)&^(s.granularity-1) <= s.room.end-s.room.next
	}
	at := slices.IndexFunc(s.events[s.at:], func(e trace.Event) bool { return e.Kind == trace.KindMap || e.Kind == trace.KindGrowFailed })
	return s.aliases || at >= 0 && uint64(s.events[s.at+at].Requested) == bytes
}

// next returns the next event of the attempt, which has to be of one of two kinds; else nil.
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
	// An alias has its offset in the store in place of the requested bytes.
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

// TryUnmap succeeds if the next event is an unmap of that range with its bytes as requested ones;
// otherwise the memory refused.
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

// Unmap takes the next event, which has to be the unmap that undoes a map of the same attempt.
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

// Release takes the unmap events of the mapped parts of a region, addresses ascending. That none is missing is
// checked by the bytes mapped after the attempt.
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
	// The memory may grow at addresses of the region again, or elsewhere.
	s.room.known = false
}
