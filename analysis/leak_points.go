package analysis

import (
	"slices"

	"github.com/memprof/memprof/trace"
)

// Beside the ends of iterations, a leak is looked for at the ends of requests and over time. What is
// followed is the bytes held: T, and what the allocations of paused tags requested, so that a pause
// is no release and a resume no leak.

// heldBytes are requested by live allocations, paused ones too.
func (d *device) heldBytes() int64 { return d.t + d.pausedT }

// bound is the event at whose end a device keeps a copy of its live blocks, from which the report
// lists those that leak. A device uses the best kind that its trace has.
type bound uint8

const (
	boundWindow bound = 1 + iota
	boundRequest
	boundMark
)

// bounded keeps what is live after the event of seq as what was live last at a bound.
func (d *device) bounded(by bound, seq int64) {
	if by < d.boundBy {
		return
	}
	d.boundBy, d.markSeq, d.markDied = by, seq, d.markDied[:0]
}

// lowWindows is how many windows of time there are at most; at least half as many, once the trace
// is longer than that many of the narrowest.
const lowWindows = 64

// narrowestWindow is 1<<12 ns.
const narrowestWindow = 12

// lows are the least bytes held in each window of time, all of one width, a power of two. When there
// are too many, the width doubles and neighbours are joined.
type lows struct {
	start, next int64 // time of the first event; of the end of the last window
	shift       uint
	held        int64 // after the last event
	windows     []lowWindow
}

type lowWindow struct {
	seq         int64 // of the last event before it
	low, allocs int64 // allocs are those of the device before it
}

// observe takes the bytes held after an event. Time may step back, as threads read the clock on
// their own: such an event counts in the last window.
func (l *lows) observe(d *device, seq, time int64) {
	held := d.heldBytes()
	if time >= l.next || l.windows == nil {
		l.roll(d, seq, time, held)
	}
	l.held = held
	last := &l.windows[len(l.windows)-1]
	last.low = min(last.low, held)
}

// roll goes on to the window of a time. In the windows between, nothing changed.
func (l *lows) roll(d *device, seq, time, held int64) {
	if l.windows == nil {
		l.start, l.shift, l.held = time, narrowestWindow, held
	}
	for (time-l.start)>>l.shift >= lowWindows {
		l.widen()
	}
	for at := int((time - l.start) >> l.shift); len(l.windows) <= at; {
		l.windows = append(l.windows, lowWindow{seq - 1, l.held, d.Allocs})
		d.bounded(boundWindow, seq)
	}
	l.next = l.start + int64(len(l.windows))<<l.shift
}

func (l *lows) widen() {
	l.shift++
	n := 0
	for i := range l.windows {
		if i%2 == 0 {
			l.windows[n] = l.windows[i]
			n++
			continue
		}
		l.windows[n-1].low = min(l.windows[n-1].low, l.windows[i].low)
	}
	l.windows = l.windows[:n]
}

// busyWindows is in how many windows something must have been allocated for a trend over time.
const busyWindows = 12

// trend is that of the lows, without the first quarter of the windows, in which a job sets up, and
// the last, in which it cleans up. since is the last event before the windows that count.
func (l *lows) trend(d *device) (t Trend, since int64) {
	from, to := (len(l.windows)+3)/4, len(l.windows)-1
	if from >= to {
		return Trend{}, 0
	}
	width := float64(int64(1)<<l.shift) / 1e9
	busy := 0
	var points []trendPoint
	for i := from; i < to; i++ {
		points = append(points, trendPoint{width * float64(i), l.windows[i].low})
		if l.windows[i+1].allocs > l.windows[i].allocs {
			busy++
		}
	}
	if t = trendOf(points); busy < busyWindows {
		return Trend{Points: t.Points}, 0
	}
	return t, l.windows[from].seq
}

const (
	// maxRequestKinds bounds the kinds of requests.
	maxRequestKinds = 64
	// maxThreads bounds the threads whose phases are followed.
	maxThreads = 4096
)

// KVRequests is what a request is called that is a sequence in a KV cache; see [Leak].
const KVRequests = "KV cache sequence"

// requests are the ends of requests of a process: of a phase that is the outermost one of its
// thread, and of a sequence in a KV cache.
type requests struct {
	threads map[int32]*threadPhases
}

type threadPhases struct {
	open      int
	outermost int32 // the context that names it
}

// phase follows a phase_begin or phase_end, and says whether the outermost one of its thread ended.
func (r *requests) phase(e *trace.Event) bool {
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

// requestEnded takes the end of a request.
func (d *device) requestEnded(name string, e *trace.Event) {
	d.bounded(boundRequest, e.Seq)
	at := slices.IndexFunc(d.requestKinds, func(k *requestKind) bool { return k.name == name })
	if at < 0 {
		if len(d.requestKinds) == maxRequestKinds {
			return
		}
		at = len(d.requestKinds)
		d.requestKinds = append(d.requestKinds, &requestKind{name: name, stride: 1, first: e.Seq})
	}
	d.requestKinds[at].add(d.heldBytes(), e.Time)
}

// sequenceEnded takes the end of a sequence in a KV cache of a device.
func (a *analyzer) sequenceEnded(device int32, e *trace.Event) {
	for _, d := range a.devices {
		if d.Device == max(device, 0) { // marks of a cache that nothing describes are device 0's
			d.requestEnded(KVRequests, e)
		}
	}
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
// then the one with the greatest slope. A kind that did not come in the second half of the trace
// is over, and leaks no more.
func (d *device) requestTrend(start, end int64) (best Trend, of *requestKind) {
	for _, k := range d.requestKinds {
		if k.last-start < (end-start)/2 {
			continue
		}
		t := k.trend()
		if !t.Valid {
			continue
		}
		if of == nil || t.Rising && !best.Rising || t.Rising == best.Rising && t.Slope > best.Slope {
			best, of = t, k
		}
	}
	return best, of
}
