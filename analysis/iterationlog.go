package analysis

import "strconv"

// mostIterations is how many iterations are kept one by one. Of a job with more, the first is kept
// as it is, and so many neighbours of the later ones are kept as one that there are no more.
const mostIterations = 1 << 16

// iterationLog keeps the iterations of a device in bounded memory, and sums of all of them.
type iterationLog struct {
	list  []Iteration // the first, and then runs of `each`; the last run may be shorter
	each  int
	count int
	later laterSums
}

// laterSums are sums over the iterations after the first.
type laterSums struct {
	count, t, c float64
	// Those of iterations in which something was reserved, of shares of their own peak R.
	ownCount, ownT, ownC float64
}

func (s *laterSums) add(it *Iteration) {
	s.count++
	s.t += float64(it.PeakT)
	s.c += float64(it.PeakC)
	if it.PeakR > 0 {
		t, c := ownShares(it)
		s.ownCount, s.ownT, s.ownC = s.ownCount+1, s.ownT+t, s.ownC+c
	}
}

// meanShares are the means of T and C, as shares of whole.
func (s *laterSums) meanShares(whole int64) (t, c float64) {
	var wholes float64
	for range int64(s.count) {
		wholes += float64(whole) // rounded as the sums are, so that no quotient exceeds 1
	}
	return s.t / wholes, s.c / wholes
}

// meanOwn is the means of T and C as shares of each iteration's own peak R. Iterations in which
// nothing was reserved have no share; without others the means are NaN.
func (s *laterSums) meanOwn() (t, c float64) {
	return s.ownT / s.ownCount, s.ownC / s.ownCount // 0/0 is NaN
}

// add adds the next iteration.
func (l *iterationLog) add(it Iteration) {
	l.count++
	l.each = max(l.each, 1)
	if l.count > 1 {
		l.later.add(&it)
	}
	if n := len(l.list); n > 1 && l.list[n-1].More < int64(l.each-1) {
		l.list[n-1].join(&it)
		return
	}
	l.list = append(l.list, it)
	if len(l.list) > mostIterations {
		l.halve()
	}
}

// halve makes neighbours one.
func (l *iterationLog) halve() {
	n := 1
	for i := 1; i < len(l.list); i += 2 {
		l.list[n] = l.list[i]
		if i+1 < len(l.list) {
			l.list[n].join(&l.list[i+1])
		}
		n++
	}
	l.list, l.each = l.list[:n], 2*l.each
}

// join adds the iteration, or run, that follows.
func (it *Iteration) join(next *Iteration) {
	it.More += 1 + next.More
	it.EndSeq, it.End = next.EndSeq, next.End
	it.PeakT, it.PeakR = max(it.PeakT, next.PeakT), max(it.PeakR, next.PeakR)
	if it.PeakC >= 0 && next.PeakC >= 0 {
		it.PeakC = max(it.PeakC, next.PeakC)
	} else {
		it.PeakC = -1
	}
	it.EndT, it.EndC, it.EndPaused = next.EndT, next.EndC, next.EndPaused
	it.Allocs += next.Allocs
	it.AllocBytes += next.AllocBytes
}

// Name is the number of an iteration, or the first and the last where it stands for several.
func (it *Iteration) Name() string {
	name := strconv.FormatInt(it.Number, 10)
	if it.More > 0 {
		name += "–" + strconv.FormatInt(it.Number+it.More, 10)
	}
	return name
}

// last is the number of the last iteration, if there is one.
func (l *iterationLog) last() (number int64, ok bool) {
	if l.count == 0 {
		return 0, false
	}
	it := &l.list[len(l.list)-1]
	return it.Number + it.More, true
}

// clone is a log of its own.
func (l *iterationLog) clone() iterationLog {
	own := *l
	own.list = append([]Iteration(nil), l.list...)
	return own
}

// indexAt is the index, among all, of the iteration that has a seq, or of the first of its run; the
// number of all behind the last.
func (l *iterationLog) indexAt(seq int64) int {
	low, high := 0, len(l.list)
	for low < high {
		if mid := (low + high) / 2; l.list[mid].EndSeq < seq {
			low = mid + 1
		} else {
			high = mid
		}
	}
	switch low {
	case 0:
		return 0
	case len(l.list):
		return l.count
	}
	return 1 + (low-1)*l.each
}

// IterationCount is how many iterations there were: more than are in Iterations where those stand
// for several.
func (d *DeviceResult) IterationCount() int64 {
	count := int64(len(d.Iterations))
	for i := range d.Iterations {
		count += d.Iterations[i].More
	}
	return count
}

// IterationNumber is the number of the iteration with an index among all, as Instants have it; not ok
// behind the last.
func (d *DeviceResult) IterationNumber(index int) (number int64, ok bool) {
	if index <= 0 || len(d.Iterations) < 2 {
		if index != 0 || len(d.Iterations) == 0 {
			return 0, false
		}
		return d.Iterations[0].Number, true
	}
	each := int(d.Iterations[1].More) + 1
	at, within := 1+(index-1)/each, int64((index-1)%each)
	if at >= len(d.Iterations) || within > d.Iterations[at].More {
		return 0, false
	}
	return d.Iterations[at].Number + within, true
}
