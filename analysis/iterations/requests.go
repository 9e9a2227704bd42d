package iterations

import (
	"slices"

	"github.com/memprof/memprof/trace"
)

const (
	// maxRequestKinds bounds the kinds of requests.
	maxRequestKinds = 64
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

// requestKind are the requests of one kind, of a device. There are at most 2*trendSamples points;
// when there are more, neighbours are joined, of which the lower one stays.
type requestKind struct {
	name   string
	count  int64 // requests so far
	stride int64 // requests a point
	points []int64
	first  int64 // seq of the end of the first one
	last   int64 // time of the end of the last one
}

// kind is the requests of a name; nil where there are too many kinds.
func (t *LeakTracker) kind(name string, seq int64) *requestKind {
	at := slices.IndexFunc(t.kinds, func(k *requestKind) bool { return k.name == name })
	if at < 0 {
		if len(t.kinds) == maxRequestKinds {
			return nil
		}
		at = len(t.kinds)
		t.kinds = append(t.kinds, &requestKind{name: name, stride: 1, first: seq})
	}
	return t.kinds[at]
}

func (k *requestKind) add(held, time int64) {
	k.last = max(k.last, time)
	k.count++
	at := k.count - 2
	if at < 0 { // the first is left out, as the first iteration is
		return
	}
	if at%k.stride != 0 {
		last := &k.points[len(k.points)-1]
		*last = min(*last, held)
		return
	}
	if len(k.points) == 2*trendSamples {
		k.widen()
	}
	k.points = append(k.points, held)
}

func (k *requestKind) widen() {
	for i := range len(k.points) / 2 {
		k.points[i] = min(k.points[2*i], k.points[2*i+1])
	}
	k.points = k.points[:len(k.points)/2]
	k.stride *= 2
}

func (k *requestKind) trend() Trend {
	points := make([]trendPoint, len(k.points))
	for i := range points {
		points[i] = trendPoint{float64(int64(i) * k.stride), k.points[i]}
	}
	return trendOf(points)
}

// requestTrend is that of the kind of requests that shows most of a leak: a rising one before others,
// then the one with the greatest slope. A kind without a request in the second half of the time from
// start to end leaks no more.
func (t *LeakTracker) requestTrend(start, end int64) (best Trend, of *requestKind) {
	for _, k := range t.kinds {
		if k.last-start < (end-start)/2 {
			continue
		}
		found := k.trend()
		if !found.Valid {
			continue
		}
		if of == nil || found.Rising && !best.Rising || found.Rising == best.Rising && found.Slope > best.Slope {
			best, of = found, k
		}
	}
	return best, of
}
