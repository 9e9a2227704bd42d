package iterations

import (
	"slices"

	"github.com/memprof/memprof/trace"
)

const (
	// maxRequestKinds bounds the kinds of requests.
	maxRequestKinds = 16
	// maxThreads bounds the threads whose phases are followed.
	maxThreads = 4096
)

// KVRequests is what a request is called that is a sequence in a KV cache; see [Leak].
const KVRequests = "KV cache sequence"

// PhaseRequests follows the phases of each thread of a process: the end of an outermost one ends a request.
type PhaseRequests struct {
	threads map[int32]*threadPhases
}

type threadPhases struct {
	open      int
	outermost int32 // the context that names it
}

// Phase takes a phase_begin or phase_end, and says whether the outermost one of its thread ended.
func (r *PhaseRequests) Phase(e *trace.Event) bool {
	t := r.threads[e.Thread]
	switch {
	case t == nil && len(r.threads) == maxThreads:
		return false
	case t == nil:
		if r.threads == nil {
			r.threads = map[int32]*threadPhases{}
		}
		t = &threadPhases{}
		r.threads[e.Thread] = t
	}
	switch {
	case e.Kind == trace.KindPhaseBegin:
		if t.open++; t.open == 1 {
			t.outermost = e.Context
		}
	case t.open > 0:
		t.open--
		return t.open == 0 && t.outermost == e.Context
	}
	return false
}

// requestKind are the requests of one kind, of a device.
type requestKind struct {
	course
	name string
	last int64 // time of the end of the last one
}

// kind is the requests of a name; nil where there are too many kinds.
func (t *LeakTracker) kind(name string) *requestKind {
	at := slices.IndexFunc(t.kinds, func(k *requestKind) bool { return k.name == name })
	if at < 0 {
		if len(t.kinds) == maxRequestKinds {
			return nil
		}
		at = len(t.kinds)
		t.kinds = append(t.kinds, &requestKind{name: name})
	}
	return t.kinds[at]
}

func (k *requestKind) add(seq, time int64, others []int64, held *holdings) {
	k.last = max(k.last, time)
	k.course.add(seq, time, others, held)
}

// requestKind is the kind with the most requests, of those that came in the second half of the time from start to end; nil where none
// has enough.
func (t *LeakTracker) requestKind(start, end int64) (of *requestKind) {
	for _, k := range t.kinds {
		if k.count >= LeastIterations && k.last-start >= (end-start)/2 && (of == nil || k.count > of.count) {
			of = k
		}
	}
	return of
}
