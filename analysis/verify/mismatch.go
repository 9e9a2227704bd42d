package verify

import (
	"fmt"

	"github.com/memprof/memprof/trace"
)

// Mismatch is the first thing in a trace that is not as it was recorded, or that the
// allocator would not have done. It names an event, a block of events, or both: then the
// event lies in the block, which was changed somewhere, at that event at the latest.
type Mismatch struct {
	Process string `json:"-"` // "rank0"

	Seq      int64      `json:"seq"` // of the first wrong event, -1 if only its block is known
	Kind     trace.Kind `json:"kind,omitempty"`
	Expected string     `json:"expected,omitempty"` // what the replay does there
	Found    string     `json:"found,omitempty"`    // what the trace has instead

	// FirstSeq and LastSeq are the block of events whose checksum is not the one
	// recorded, both inclusive; -1 if all checksums up to the event are right.
	FirstSeq int64 `json:"first_seq"`
	LastSeq  int64 `json:"last_seq"`
	// Recorded and Present are how many events the collector wrote and how many there
	// are. They differ only in a block at the end of what is there.
	Recorded int64 `json:"-"`
	Present  int64 `json:"-"`

	position int64 // of the event among those of the process
	gone     error // the event is of an arena whose policy memprof no longer has
}

// Error says in words what is wrong, the first wrong event or block first.
func (m *Mismatch) Error() string {
	text := ""
	if m.Process != "" {
		text = m.Process + ": "
	}
	if m.FirstSeq >= 0 {
		text += fmt.Sprintf("events %d to %d are not those that were recorded: their checksum differs", m.FirstSeq, m.LastSeq)
		if m.Recorded != m.Present {
			text += fmt.Sprintf(", and %d events were recorded where %d are left", m.Recorded, m.Present)
		}
		if m.Seq < 0 {
			return text
		}
		text += "; the first that cannot be is "
	}
	return text + fmt.Sprintf("event %d (%v): expected %s, found %s", m.Seq, m.Kind, m.Expected, m.Found)
}

// atEvent is a mismatch at an event; the blocks are not known yet.
func atEvent(e *trace.Event, expected, found string) *Mismatch {
	return &Mismatch{Seq: e.Seq, Kind: e.Kind, Expected: expected, Found: found, FirstSeq: -1, LastSeq: -1}
}

// place is how a range of memory reads in a mismatch.
func place(bytes, addr uint64) string { return fmt.Sprintf("%d bytes at %#x", bytes, addr) }

// describe is what an event of the memory, or the end of an attempt, says.
func describe(e *trace.Event) string {
	addr, requested, provided := uint64(e.Addr), uint64(e.Requested), uint64(e.Provided)
	switch e.Kind {
	case trace.KindDeviceUsed:
		return fmt.Sprintf("a reading of %d bytes used of %d", provided, requested)
	case trace.KindGrowFailed:
		return fmt.Sprintf("a refused growth by %d bytes", requested)
	case trace.KindMap:
		return fmt.Sprintf("a map of %s, asked for %d", place(provided, addr), requested)
	case trace.KindMapFailed:
		return "a refused map of " + place(requested, addr)
	case trace.KindUnmap:
		return "an unmap of " + place(provided, addr)
	case trace.KindAlias, trace.KindUnalias:
		return fmt.Sprintf("an %v of %s, at %d of its store", e.Kind, place(provided, addr), requested)
	case trace.KindAlloc:
		return fmt.Sprintf("%s for a request of %d", place(provided, addr), requested)
	}
	return fmt.Sprintf("a request of %d bytes that failed", requested)
}
