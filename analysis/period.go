package analysis

const (
	// historyRequests is how many requests a period is looked for in: 36 MiB of history.
	historyRequests = 1 << 19
	// leastPeriod keeps loops of a few requests from being taken for iterations.
	leastPeriod = 8
	// leastRepeats is how often the sequence must come to be believed.
	leastRepeats = 3
)

// periodFinder finds iterations in a sequence of requests that has no marks. It collects
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
type periodFinder struct {
	history  []request
	follower *follower
	given    bool // nothing was found in a full history
}

// request is an alloc and the state after it.
type request struct {
	requested, provided int64
	seq, time           int64
	t, c, r, live       int64
	paused              int64 // requested by live allocations of paused tags
}

func (p *periodFinder) add(q request) {
	switch {
	case p.follower != nil:
		p.follower.add(q)
	case !p.given:
		p.history = append(p.history, q)
		if len(p.history) == historyRequests {
			p.look(false)
		}
	}
}

// look looks for the period, in the requests of a job that has come to its end or goes on.
func (p *periodFinder) look(ended bool) {
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

// finish returns the iterations, and the period in requests; 0 if there is none. paused is what
// allocations of paused tags requested at the end; ended says that the job came to its own end.
func (p *periodFinder) finish(final Instant, paused int64, ended bool) (iterationLog, int64) {
	if p.history != nil {
		p.look(ended)
	}
	if p.follower == nil {
		return iterationLog{}, 0
	}
	f := p.follower
	if f.complete() {
		f.end(final.Seq, final.Time, final.T, final.C, paused)
	}
	return f.iterations, int64(f.period)
}

// findPeriod returns the smallest period of the requested sizes and the requests between
// which they repeat, or 0. It must hold over half of the history at least, in one
// piece: the start, where a job sets up, and the end, where it evaluates or cleans up, may differ.
func findPeriod(history []request) (period, from, to int) {
	n := len(history)
	for eighth := 4; eighth >= 2; eighth-- {
		window := history[n*eighth/8 : n*(eighth+4)/8]
		p := smallestPeriod(window)
		if p < leastPeriod || 2*p > len(window) {
			continue
		}
		from = n * eighth / 8
		for from > 0 && history[from-1].requested == history[from-1+p].requested {
			from--
		}
		to = n * (eighth + 4) / 8
		for to < n && history[to].requested == history[to-p].requested {
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
func smallestPeriod(window []request) int {
	border := make([]int32, len(window)+1)
	k := int32(0)
	for i := 1; i < len(window); i++ {
		for k > 0 && window[i].requested != window[k].requested {
			k = border[k]
		}
		if window[i].requested == window[k].requested {
			k++
		}
		border[i+1] = k
	}
	return len(window) - int(border[len(window)])
}

// follower cuts a sequence of a known period into iterations.
type follower struct {
	period     int
	expected   []int64 // requested sizes of a period, from a cut on
	next       int     // request number of the next cut
	count      int     // requests so far
	broken     bool    // the sequence has stopped repeating
	current    Iteration
	iterations iterationLog
}

// emptiest is the request of the period from `from` on before which the fewest blocks were
// live, and of these the one with the fewest bytes.
func emptiest(history []request, period, from int) int {
	least := from
	for i := from; i < from+period; i++ {
		q, l := &history[i], &history[least]
		if q.live < l.live || q.live == l.live && q.before() < l.before() {
			least = i
		}
	}
	return least
}

// nearEnd moves a cut to where it is a whole number of periods before the end, if that is less
// than an eighth of one away.
func nearEnd(to, cut, period int) int {
	after := (to - cut) % period
	switch {
	case after < period/8:
		return cut + after
	case period-after < period/8 && cut >= period-after:
		return cut - (period - after)
	}
	return cut
}

// newFollower follows history, cut at the given request and a period after it.
func newFollower(history []request, period, cut int) *follower {
	f := &follower{period: period, next: cut, current: Iteration{StartSeq: history[0].seq, Start: history[0].time}}
	for i := range period {
		f.expected = append(f.expected, history[cut+i].requested)
	}
	// A job whose first iteration is like the others repeats from its beginning on; what
	// comes before is its setting up, not an iteration of its own.
	if !resembles(history[:cut], f.expected) {
		f.next += period
	}
	for _, q := range history {
		f.add(q)
	}
	return f
}

// resembles says whether most sizes of a period were requested before it.
func resembles(before []request, expected []int64) bool {
	counts := map[int64]int{}
	for i := range before {
		counts[before[i].requested]++
	}
	found := 0
	for _, size := range expected {
		if counts[size] > 0 {
			counts[size]--
			found++
		}
	}
	return 2*found > len(expected)
}

// before is what was live before the request.
func (q *request) before() int64 { return q.t - q.requested }

func (f *follower) add(q request) {
	if f.broken {
		return
	}
	if f.count == f.next {
		f.end(q.seq-1, q.time, q.before(), q.c-q.provided, q.paused)
	}
	if at := f.count - f.next; at >= -f.period && f.iterations.count > 0 && f.expected[at+f.period] != q.requested {
		f.broken = true
		return
	}
	f.count++
	it := &f.current
	it.Allocs++
	it.AllocBytes += q.requested
	it.PeakT = max(it.PeakT, q.t)
	it.PeakC = max(it.PeakC, q.c)
	it.PeakR = max(it.PeakR, q.r)
}

// complete says whether the requests ended with a whole iteration.
func (f *follower) complete() bool {
	return !f.broken && f.count == f.next && f.iterations.count > 0
}

// end ends the current iteration, with t and c live at its end, and so much paused.
func (f *follower) end(seq, time, t, c, paused int64) {
	f.current.Number = int64(f.iterations.count)
	f.current.EndSeq, f.current.End = seq, time
	f.current.EndT, f.current.EndC, f.current.EndPaused = t, c, paused
	f.iterations.add(f.current)
	f.current = Iteration{StartSeq: seq + 1, Start: time, PeakT: t, PeakC: c}
	f.next += f.period
}
