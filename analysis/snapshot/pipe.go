package snapshot

import (
	"sync/atomic"

	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/dataset"
)

// batchSize is how many values one goroutine hands to the next at a time.
const batchSize = 1 << 10

// pipe hands values to a function on another goroutine, in order. Decoding a file, following the device's memory and writing the events
// take about the same time, so that they run side by side.
type pipe[T any] struct {
	batch       []T
	full, empty chan []T
	ended       chan struct{}
	failed      atomic.Bool
	err         error // of the function; read it once ended is closed
}

func newPipe[T any](take func(*T) error) *pipe[T] {
	p := &pipe[T]{full: make(chan []T, 3), empty: make(chan []T, 3), ended: make(chan struct{})}
	for range cap(p.empty) {
		p.empty <- make([]T, 0, batchSize)
	}
	p.batch = <-p.empty
	go p.run(p.full, take)
	return p
}

func (p *pipe[T]) run(full <-chan []T, take func(*T) error) {
	defer close(p.ended)
	for batch := range full {
		for i := range batch {
			if p.err == nil {
				p.err = take(&batch[i])
			}
		}
		p.failed.Store(p.err != nil)
		p.empty <- batch[:0]
	}
}

// put hands the next value over. The error is that of a value before it.
func (p *pipe[T]) put(v *T) error {
	if p.batch = append(p.batch, *v); len(p.batch) < cap(p.batch) {
		return nil
	}
	p.full <- p.batch
	if p.batch = <-p.empty; p.failed.Load() {
		return p.end()
	}
	return nil
}

// end waits until the function has all values. Calls after the first only return the error.
func (p *pipe[T]) end() error {
	if p.full != nil {
		p.full <- p.batch
		close(p.full)
		p.full, p.batch = nil, nil
		<-p.ended
	}
	return p.err
}

// appender numbers the events of a device and hands them to its writer.
type appender struct {
	*pipe[trace.Event]
	next int64 // seq of the next event
}

func newAppender(w *dataset.Writer) *appender {
	return &appender{newPipe(w.Append), w.NextSeq()}
}

// append takes the next event. The error is that of an event before it.
func (a *appender) append(e *trace.Event) error {
	e.Seq = a.next
	a.next++
	return a.put(e)
}
