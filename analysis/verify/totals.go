package verify

import (
	"fmt"

	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/trace"
)

// totals compares what the hook counted itself with the events that are there.
type totals struct {
	seq   int64 // of the last of them, -1 for none
	ended bool  // it is the last of the process

	devices map[int32]*sums
}

// sums are of the requests and frees of a device, by the events so far, in arenas of memprof's allocator.
type sums struct {
	requests, requested, frees, freed int64
	seq                               int64 // up to which they were compared
	clock                             clock // of these arenas
}

// of returns the sums of a device.
func (t *totals) of(device int32) *sums {
	s := t.devices[device]
	if s == nil {
		s = &sums{seq: -1}
		t.devices[device] = s
	}
	return s
}

func (s *sums) request(e *trace.Event) {
	s.requests++
	s.requested += e.Requested
}

func (s *sums) free(e *trace.Event) {
	s.frees++
	s.freed += e.Requested
}

// clock is the greatest time of the events so far, in nanoseconds, and the seq of the event that had it.
type clock struct{ time, seq int64 }

// How far a time may be before that of an earlier event, in nanoseconds: events of an arena are written under the device's lock,
// so that it falls by no more than the clocks of two threads differ; the thread of a mark holds no lock between its reading of
// the clock and the writing of the mark.
const (
	timeStep = 1_000_000
	markStep = 1_000_000_000
)

// inOrder says whether the time of an event can be.
func (c *clock) inOrder(e *trace.Event, step int64) *Mismatch {
	if e.Time >= c.time {
		c.time, c.seq = e.Time, e.Seq
	}
	if e.Time >= c.time-step {
		return nil
	}
	return atEvent(e, fmt.Sprintf("a time of %d ns or later, that of event %d", c.time, c.seq), fmt.Sprintf("%d ns; one of both was changed", e.Time))
}

// number compares the number that the hook gave an event. Without the sums, as behind a ring, it is all that can be compared.
func (t *totals) number(e *trace.Event) *Mismatch {
	before := t.seq
	count, last, _ := e.Totals()
	t.seq, t.ended = e.Seq, t.ended || last == 1
	if count == e.Seq {
		return nil
	}
	found := plain.Counted(count-e.Seq, "event") + " less"
	if count < e.Seq {
		found = plain.Counted(e.Seq-count, "event") + " more"
	}
	if before >= 0 {
		found += fmt.Sprintf(", between event %d and it", before)
	}
	return atEvent(e, plain.Counted(count, "event")+" before it, as the hook counted", found)
}

// compare takes a totals event of a device.
func (t *totals) compare(e *trace.Event, of string) *Mismatch {
	s := t.of(e.Device)
	count, bytes, _ := e.Totals()
	haveCount, haveBytes := s.requests, s.requested
	if of == "frees" {
		haveCount, haveBytes = s.frees, s.freed
	}
	if count != haveCount || bytes != haveBytes {
		return atEvent(e, fmt.Sprintf("%d %s of %d bytes before it, as the hook counted", count, of, bytes),
			fmt.Sprintf("%d of %d bytes; up to event %d they were the same", haveCount, haveBytes, s.seq))
	}
	if of == "frees" { // the second of the two
		s.seq = e.Seq
	}
	return nil
}

// step takes a totals event. Sums are compared where all events since the start were there.
func (t *totals) step(e *trace.Event, text string, whole bool) *Mismatch {
	switch of := trace.ParseContext(e.Kind, text).Get("of"); {
	case of == "events":
		return t.number(e)
	case whole && (of == "requests" || of == "frees"):
		return t.compare(e, of)
	}
	return nil
}

// marks checks what a job marks.
type marks struct {
	iterations int64
	phases     map[int32]int // how often one has begun and not ended, by its text
	clock      clock         // of all events
}

// iteration takes an iteration event: they are numbered.
func (m *marks) iteration(e *trace.Event) *Mismatch {
	if n := e.IterationNumber(); n != m.iterations {
		return atEvent(e, fmt.Sprintf("the end of iteration %d", m.iterations), fmt.Sprintf("that of iteration %d", n))
	}
	m.iterations++
	return nil
}

// phase takes the begin or the end of a phase.
func (m *marks) phase(e *trace.Event, text string) *Mismatch {
	if e.Kind == trace.KindPhaseBegin {
		m.phases[e.Context]++
		return nil
	}
	if m.phases[e.Context] == 0 {
		return atEvent(e, "the end of a phase that has begun", fmt.Sprintf("that of %q", text))
	}
	m.phases[e.Context]--
	return nil
}
