package analysis

import "github.com/memprof/memprof/trace"

// granule is what requests are rounded up to: 256 bytes, as in the allocator's policy.
const granule = 256

// split is the state of an arena or a device, each term kept by itself: none is derived
// from the others, so that the identity says something. Free memory is divided further by who
// asks: see views.go.
type split struct {
	t, c, r         int64
	rounding, slack int64
	pending         int64
	untouched       int64 // free, never handed out since it was mapped
	touched         int64 // free, handed out before
	unsplit         int64
	live            int64
}

// free is F, in bytes. What is free in an arena that was only watched is in unsplit.
func (s *split) free() int64 { return s.untouched + s.touched }

// holds is the identity, and that internal waste is what chunks have beyond requests.
func (s *split) holds() bool {
	internal := s.rounding + s.slack
	return s.r == s.t+internal+s.pending+s.untouched+s.touched+s.unsplit && s.c-s.t == internal
}

// plus is the sum, term by term.
func (s split) plus(o split) split {
	return split{
		t: s.t + o.t, c: s.c + o.c, r: s.r + o.r,
		rounding: s.rounding + o.rounding, slack: s.slack + o.slack,
		pending: s.pending + o.pending, untouched: s.untouched + o.untouched, touched: s.touched + o.touched,
		unsplit: s.unsplit + o.unsplit, live: s.live + o.live,
	}
}

// minus is the difference, term by term.
func (s split) minus(o split) split {
	return split{
		t: s.t - o.t, c: s.c - o.c, r: s.r - o.r,
		rounding: s.rounding - o.rounding, slack: s.slack - o.slack,
		pending: s.pending - o.pending, untouched: s.untouched - o.untouched, touched: s.touched - o.touched,
		unsplit: s.unsplit - o.unsplit, live: s.live - o.live,
	}
}

// fill writes the terms into an Instant, all but those of free memory.
func (s *split) fill(i *Instant) {
	i.T, i.C, i.R = s.t, s.c, s.r
	i.Rounding, i.Slack, i.Pending = s.rounding, s.slack, s.pending
	i.Unsplit, i.Live = s.unsplit, s.live
}

// roundingOf is what a request rounded up to the granule has beyond it, at most what the
// chunk has: allocators that do not round have no rounding.
func roundingOf(requested, provided int64) int64 {
	return min((requested+granule-1)&^(granule-1), provided) - requested
}

// EventError is of an event that cannot be, in the state that the events before it led to.
type EventError struct {
	Seq    int64
	Kind   trace.Kind
	Addr   int64
	Arena  int32
	Reason string
}

func newEventError(e *trace.Event, reason error) *EventError {
	return &EventError{Seq: e.Seq, Kind: e.Kind, Addr: e.Addr, Arena: e.Arena, Reason: reason.Error()}
}

func (e *EventError) Error() string {
	return eventText(e.Seq, e.Kind, e.Addr, e.Arena) + ": " + e.Reason
}
