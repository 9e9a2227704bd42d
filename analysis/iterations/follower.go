package iterations

import "github.com/memprof/memprof/analysis/ledger"

// follower cuts a sequence of a known period into iterations.
type follower struct {
	period     int
	expected   []int64 // requested sizes of a period, from a cut on
	next       int     // request number of the next cut
	count      int     // requests so far
	broken     bool    // the sequence has stopped repeating
	current    Iteration
	iterations Log
}

// emptiest is the request of the period from `from` on before which the fewest blocks were
// live, and of these the one with the fewest bytes.
func emptiest(history []Request, period, from int) int {
	least := from
	for i := from; i < from+period; i++ {
		q, l := &history[i], &history[least]
		if q.Live < l.Live || q.Live == l.Live && q.before() < l.before() {
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
func newFollower(history []Request, period, cut int) *follower {
	f := &follower{period: period, next: cut, current: Iteration{StartSeq: history[0].Seq, Start: history[0].Time}}
	for i := range period {
		f.expected = append(f.expected, history[cut+i].Requested)
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
func resembles(before []Request, expected []int64) bool {
	counts := map[int64]int{}
	for i := range before {
		counts[before[i].Requested]++
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
func (q *Request) before() int64 { return q.T - q.Requested }

func (f *follower) add(q Request) {
	if f.broken {
		return
	}
	if f.count == f.next {
		f.end(q.Seq-1, q.Time, q.before(), q.C-q.Provided, q.Paused)
	}
	if at := f.count - f.next; at >= -f.period && f.iterations.Count > 0 && f.expected[at+f.period] != q.Requested {
		f.broken = true
		return
	}
	f.count++
	it := &f.current
	it.Allocs++
	it.AllocBytes += q.Requested
	it.PeakT = max(it.PeakT, q.T)
	it.PeakC = max(it.PeakC, q.C)
	it.PeakR = max(it.PeakR, q.R)
}

// complete says whether the requests ended with a whole iteration.
func (f *follower) complete() bool {
	return !f.broken && f.count == f.next && f.iterations.Count > 0
}

// end ends the current iteration, with t and c live at its end, and so much paused.
func (f *follower) end(seq, time, t, c, paused int64) {
	f.current.Number = int64(f.iterations.Count)
	f.current.EndSeq, f.current.End = seq, time
	f.current.EndT, f.current.EndC, f.current.EndPaused = t, ledger.KnownC(c, t), paused
	f.current.PeakC = ledger.KnownC(f.current.PeakC, f.current.PeakT)
	f.iterations.Add(f.current)
	f.current = Iteration{StartSeq: seq + 1, Start: time, PeakT: t, PeakC: c}
	f.next += f.period
}
