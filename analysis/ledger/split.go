package ledger

import (
	"fmt"

	"github.com/memprof/memprof/trace"
)

// granule is what requests are rounded up to: 256 bytes, as in the allocator's policy.
const granule = 256

// Split is the state of an arena or a device, each term kept by itself: none is derived
// from the others, so that the identity of their sum is a check. The division of free memory depends on the arena
// of a request, too: see instant.go.
type Split struct {
	T, C, R         int64
	Rounding, Slack int64
	Pending         int64
	Untouched       int64 // free, never handed out since it was mapped
	Touched         int64 // free, handed out before
	NotRequested    int64 // free, where chunks are not known
	Live            int64 // live allocations, a count
	Unknown         bool  // an allocator that was only observed serves it, or a part of it: its chunks are not known
}

// Known is a number that chunks decide; -1 where they are not known.
func (s *Split) Known(n int64) int64 {
	if s.Unknown {
		return -1
	}
	return n
}

// Undivided moves free memory to NotRequested where chunks are not known: what a chunk has beyond its request is not known
// apart from it. It returns what it moved.
func (s *Split) Undivided() (untouched, touched int64) {
	if s.Unknown {
		untouched, touched = s.Untouched, s.Touched
		s.NotRequested += s.Free()
		s.Untouched, s.Touched = 0, 0
	}
	return untouched, touched
}

// Free is F, in bytes, where chunks are known.
func (s *Split) Free() int64 { return s.Untouched + s.Touched }

// holds is the identity, and that internal waste is what chunks have beyond requests.
func (s *Split) holds() bool {
	internal := s.Rounding + s.Slack
	return s.R == s.T+internal+s.Pending+s.Untouched+s.Touched+s.NotRequested && s.C-s.T == internal
}

// handOut adds a new block, which took these bytes of free memory.
func (s *Split) handOut(requested, provided, rounding, untouched, touched int64) {
	s.T += requested
	s.C += provided
	s.Rounding += rounding
	s.Slack += provided - requested - rounding
	s.Untouched -= untouched
	s.Touched -= touched
	s.Live++
}

// takeBack removes a freed block, of which these bytes are pending or free from now on.
func (s *Split) takeBack(requested, provided, rounding, pending, touched int64) {
	s.T -= requested
	s.C -= provided
	s.Rounding -= rounding
	s.Slack -= provided - requested - rounding
	s.Pending += pending
	s.Touched += touched
	s.Live--
}

// Plus is the sum, term by term.
func (s Split) Plus(o Split) Split {
	return Split{
		T: s.T + o.T, C: s.C + o.C, R: s.R + o.R,
		Rounding: s.Rounding + o.Rounding, Slack: s.Slack + o.Slack,
		Pending: s.Pending + o.Pending, Untouched: s.Untouched + o.Untouched, Touched: s.Touched + o.Touched,
		NotRequested: s.NotRequested + o.NotRequested, Live: s.Live + o.Live, Unknown: s.Unknown || o.Unknown,
	}
}

// Minus is the difference, term by term.
func (s Split) Minus(o Split) Split {
	return Split{
		T: s.T - o.T, C: s.C - o.C, R: s.R - o.R,
		Rounding: s.Rounding - o.Rounding, Slack: s.Slack - o.Slack,
		Pending: s.Pending - o.Pending, Untouched: s.Untouched - o.Untouched, Touched: s.Touched - o.Touched,
		NotRequested: s.NotRequested - o.NotRequested, Live: s.Live - o.Live, Unknown: s.Unknown || o.Unknown,
	}
}

// Fill writes the terms into an Instant, all but those of free memory.
func (s *Split) Fill(i *Instant) {
	i.T, i.C, i.R = s.T, s.Known(s.C), s.R
	i.Rounding, i.Slack, i.Pending = s.Rounding, s.Slack, s.Pending
	i.NotRequested, i.Live = s.NotRequested, s.Live
}

// RoundingOf is what a request rounded up to the granule has beyond it, at most what the
// chunk has: allocators that do not round have no rounding.
func RoundingOf(requested, provided int64) int64 {
	return min((requested+granule-1)&^(granule-1), provided) - requested
}

// EventError is the error of an event that contradicts the state after the events before it.
type EventError struct {
	Seq    int64
	Kind   trace.Kind
	Addr   int64
	Arena  int32
	Reason string
}

// NewEventError returns the error of an event, and why it contradicts the state.
func NewEventError(e *trace.Event, reason error) *EventError {
	return &EventError{Seq: e.Seq, Kind: e.Kind, Addr: e.Addr, Arena: e.Arena, Reason: reason.Error()}
}

func (e *EventError) Error() string {
	return eventText(e.Seq, e.Kind, e.Addr, e.Arena) + ": " + e.Reason
}

func eventText(seq int64, kind trace.Kind, addr int64, arena int32) string {
	text := fmt.Sprintf("event seq %d, %s", seq, kind)
	if addr != 0 {
		text += fmt.Sprintf(" at %#x", addr)
	}
	if arena != trace.NoArena {
		text += fmt.Sprintf(" in arena %d", arena)
	}
	return text
}

func (s *Split) text() string {
	return fmt.Sprintf("R %d, T %d + rounding %d + slack %d + pending %d + untouched %d + touched %d + not requested %d; C %d",
		s.R, s.T, s.Rounding, s.Slack, s.Pending, s.Untouched, s.Touched, s.NotRequested, s.C)
}
