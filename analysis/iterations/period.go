package iterations

import "slices"

const (
	// historyRequests is how many requests a period is looked for in: 36 MiB of history.
	historyRequests = 1 << 19
	// leastPeriod keeps loops of a few requests from being taken for iterations.
	leastPeriod = 8
	// leastRepeats is how often the sequence must come to be believed.
	leastRepeats = 3
)

// Finder finds iterations in a sequence of requests that has no marks. It collects
// requests until there are historyRequests of them (or the trace ends), looks for the
// smallest period, and from then on follows the requests for as long as they repeat.
//
// Iterations are cut where the fewest blocks are live within a period: what a forward pass
// leaves behind is more blocks than gradients, though not always more bytes. That is where
// gradients are dropped, if they are dropped between iterations, and inputs may have been
// loaded before; so if the last request of a job that came to its end was not far from
// there in its iteration, it was the last of its iteration, and they are cut behind it.
//
// The first iteration has all that comes before, and may differ from the others: so does a
// training job's, which loads its model and makes its optimizer's state in it.
type Finder struct {
	history  []Request
	follower *follower
	given    bool // nothing was found in a full history
}

// Request is an alloc and the state of the device after it; sizes are bytes.
type Request struct {
	Requested, Provided int64
	Seq, Time           int64
	T, C, R             int64
	Live                int64 // live allocations
	Paused              int64 // requested by live allocations of paused tags
}

// Add takes the next alloc.
func (p *Finder) Add(q Request) {
	switch {
	case p.follower != nil:
		p.follower.add(q)
	case !p.given:
		if len(p.history) == cap(p.history) { // append would grow by a quarter, and copy five times as much
			p.history = slices.Grow(p.history, max(1<<10, len(p.history)))
		}
		p.history = append(p.history, q)
		if len(p.history) == historyRequests {
			p.look(false)
		}
	}
}

// look looks for the period, in the requests of a job that has come to its end or goes on.
func (p *Finder) look(ended bool) {
	if period, from, to := findPeriod(p.history); period > 0 {
		cut := emptiest(p.history, period, from)
		if ended && to == len(p.history) {
			cut = nearEnd(to, cut, period)
		}
		p.follower = newFollower(p.history, period, cut)
	} else {
		p.given = true
	}
	p.history = nil
}

// Finish returns the iterations and the period in requests, 0 if there is none. seq and time are those
// of the last event; t, c and paused are T, C and what allocations of paused tags requested after it.
// ended: the job came to its own end.
func (p *Finder) Finish(seq, time, t, c, paused int64, ended bool) (Log, int64) {
	if p.history != nil {
		p.look(ended)
	}
	if p.follower == nil {
		return Log{}, 0
	}
	f := p.follower
	if f.complete() {
		f.end(seq, time, t, c, paused)
	}
	return f.iterations, int64(f.period)
}

// findPeriod returns the smallest period of the requested sizes and the requests between
// which they repeat, or 0. It must hold over half of the history at least, in one
// piece: the start, where a job sets up, and the end, where it evaluates or cleans up, may differ.
func findPeriod(history []Request) (period, from, to int) {
	n := len(history)
	for eighth := 4; eighth >= 2; eighth-- {
		window := history[n*eighth/8 : n*(eighth+4)/8]
		p := smallestPeriod(window)
		if p < leastPeriod || 2*p > len(window) {
			continue
		}
		from = n * eighth / 8
		for from > 0 && history[from-1].Requested == history[from-1+p].Requested {
			from--
		}
		to = n * (eighth + 4) / 8
		for to < n && history[to].Requested == history[to-p].Requested {
			to++
		}
		if to-from >= leastRepeats*p {
			return p, from, to
		}
	}
	return 0, 0, 0
}

// smallestPeriod is the least p with window[i] = window[i+p] throughout, from the longest
// border of the window (the failure function of Knuth, Morris and Pratt).
func smallestPeriod(window []Request) int {
	border := make([]int32, len(window)+1)
	k := int32(0)
	for i := 1; i < len(window); i++ {
		for k > 0 && window[i].Requested != window[k].Requested {
			k = border[k]
		}
		if window[i].Requested == window[k].Requested {
			k++
		}
		border[i+1] = k
	}
	return len(window) - int(border[len(window)])
}
