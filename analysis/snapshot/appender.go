package snapshot

import (
	"sync/atomic"

	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/dataset"
)

// batchEntries is how many entries, and how many events, one goroutine hands to the next at a time.
const batchEntries = 1 << 10

// appender hands the events of a device to its writer on another goroutine: following the device's memory takes as
// long as writing the events.
type appender struct {
	w      *dataset.Writer
	next   int64 // seq of the next event
	batch  []trace.Event
	full   chan []trace.Event
	empty  chan []trace.Event
	ended  chan struct{}
	failed atomic.Bool
	err    error // of the writer; read it once ended is closed
}

func newAppender(w *dataset.Writer) *appender {
	a := &appender{w: w, next: w.NextSeq(), full: make(chan []trace.Event, 3), empty: make(chan []trace.Event, 3), ended: make(chan struct{})}
	for range cap(a.empty) {
		a.empty <- make([]trace.Event, 0, batchEntries)
	}
	a.batch = <-a.empty
	go a.run(a.full)
	return a
}

func (a *appender) run(full <-chan []trace.Event) {
	defer close(a.ended)
	for batch := range full {
		for i := range batch {
			if a.err == nil {
				a.err = a.w.Append(&batch[i])
			}
		}
		if a.err != nil {
			a.failed.Store(true)
		}
		a.empty <- batch[:0]
	}
}

// append takes the next event and numbers it. The error is that of an event before it.
func (a *appender) append(e *trace.Event) error {
	e.Seq = a.next
	a.next++
	if a.batch = append(a.batch, *e); len(a.batch) < cap(a.batch) {
		return nil
	}
	a.full <- a.batch
	a.batch = <-a.empty
	if a.failed.Load() {
		return a.end()
	}
	return nil
}

// end waits until the writer has all events. Calls after the first only return the error.
func (a *appender) end() error {
	if a.full != nil {
		a.full <- a.batch
		close(a.full)
		a.full, a.batch = nil, nil
		<-a.ended
	}
	return a.err
}
