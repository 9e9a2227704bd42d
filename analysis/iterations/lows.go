package iterations

// LowWindows is how many windows of time there are at most; at least half as many, once the trace
// is longer than that many of the narrowest.
const LowWindows = 64

// narrowestWindow is 1<<12 ns.
const narrowestWindow = 12

// lows are the least bytes held in each window of time, all of one width, a power of two. When there
// are too many, the width doubles and neighbours are joined.
type lows struct {
	start, next int64 // time of the first event; of the end of the last window
	shift       uint
	held        int64 // after the last event
	low         int64 // of the last window
	windows     []lowWindow
}

type lowWindow struct {
	seq         int64 // of the last event before it
	low, allocs int64 // the least bytes held in it; the allocs of the device before it
}

// observe takes the bytes held after an event, and the allocs of the device so far. It says whether a
// window began. Time may step back, since threads read the clock on their own: such an event counts in
// the last window.
func (l *lows) observe(seq, time, held, allocs int64) (began bool) {
	if began = time >= l.next || l.windows == nil; began {
		l.roll(seq, time, held, allocs)
	}
	l.held = held
	last := &l.windows[len(l.windows)-1]
	last.low = min(last.low, held)
	l.low = last.low
	return began
}

// roll goes on to the window of a time. In the windows between, nothing changed.
func (l *lows) roll(seq, time, held, allocs int64) {
	if l.windows == nil {
		l.start, l.shift, l.held = time, narrowestWindow, held
	}
	for (time-l.start)>>l.shift >= LowWindows {
		l.widen()
	}
	for at := int((time - l.start) >> l.shift); len(l.windows) <= at; {
		l.windows = append(l.windows, lowWindow{seq - 1, l.held, allocs})
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

// BusyWindows is in how many windows something must have been allocated for a verdict over time.
const BusyWindows = 12

// points are the lows without the first, in which a job sets up, and the last, in which it cleans up; none where too little happened.
func (l *lows) points() []point {
	var points []point
	busy := 0
	for i := 1; i < len(l.windows)-1; i++ {
		w, next := &l.windows[i], &l.windows[i+1]
		at := l.start + int64(i)<<l.shift
		points = append(points, point{x: float64(at-l.start) / 1e9, seq: next.seq, time: at, work: w.allocs, held: []holding{{everything, 0, w.low}}})
		if next.allocs > w.allocs {
			busy++
		}
	}
	if busy < BusyWindows {
		return nil
	}
	return points
}
