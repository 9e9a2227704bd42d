package dataset

import (
	"github.com/memprof/memprof/trace"
)

// This file has what a Writer does for a ring, which keeps the last events of a process only: it follows the events that
// are dropped, and states in a part without events what was in force after them.

// Skip takes an event that is dropped, from a spool slot: only its effect on the memory of the process is kept.
func (w *Writer) Skip(e *trace.Event, slot int64) {
	w.opening.add(e)
	w.nextSeq++
	w.slot = slot + 1
}

// Skipped is how many events were skipped since the last part.
func (w *Writer) Skipped() int64 {
	if n := len(w.done); n > 0 {
		return w.nextSeq - w.done[n-1].FirstSeq - w.done[n-1].written
	}
	return w.nextSeq
}

// Restart completes a part that has opening rows and no events, with which the process begins from now on. The parts before
// it are superseded: the result, whose files the caller removes once it needs no more of what the part replaces.
func (w *Writer) Restart() (superseded []Part, err error) {
	if err := w.finishClosed(); err != nil {
		return nil, err
	}
	if w.Skipped() > 0 {
		w.rolling = resumeRolling(checksumStart, w.nextSeq)
		if err := w.ensurePart(); err != nil {
			return nil, err
		}
		w.part.info.Dropped = w.nextSeq
		if err := w.completePart(nil); err != nil {
			return nil, err
		}
	}
	last := len(w.done) - 1
	superseded, w.done = w.done[:last:last], w.done[last:]
	return superseded, nil
}
