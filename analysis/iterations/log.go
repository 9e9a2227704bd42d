package iterations

import "sort"

// Most is how many iterations are kept one by one. Of a job with more, the first is kept as it is, and
// runs of later ones are joined, so that there are never more than Most.
const Most = 1 << 16

// Log keeps the iterations of a device in bounded memory, and sums of all of them.
type Log struct {
	List  []Iteration // the first, and then runs of `each`; the last run may be shorter
	each  int
	Count int // of all
	later laterSums
	lacks bool // PeakC of some
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

// Add adds the next iteration.
func (l *Log) Add(it Iteration) {
	l.Count++
	l.each = max(l.each, 1)
	l.lacks = l.lacks || it.PeakC < 0
	if l.Count > 1 {
		l.later.add(&it)
	}
	if n := len(l.List); n > 1 && l.List[n-1].More < int64(l.each-1) {
		l.List[n-1].join(&it)
		return
	}
	l.List = append(l.List, it)
	if len(l.List) > Most {
		l.halve()
	}
}

// halve makes neighbours one.
func (l *Log) halve() {
	n := 1
	for i := 1; i < len(l.List); i += 2 {
		l.List[n] = l.List[i]
		if i+1 < len(l.List) {
			l.List[n].join(&l.List[i+1])
		}
		n++
	}
	l.List, l.each = l.List[:n], 2*l.each
}

// Last is the number of the last iteration, if there is one.
func (l *Log) Last() (number int64, ok bool) {
	if l.Count == 0 {
		return 0, false
	}
	it := &l.List[len(l.List)-1]
	return it.Number + it.More, true
}

// Clone is a copy.
func (l *Log) Clone() Log {
	own := *l
	own.List = append([]Iteration(nil), l.List...)
	return own
}

// IndexAt is the index, among all, of the iteration that has a seq, or of the first of its run; the
// number of all behind the last.
func (l *Log) IndexAt(seq int64) int {
	at := sort.Search(len(l.List), func(i int) bool { return l.List[i].EndSeq >= seq })
	switch at {
	case 0:
		return 0
	case len(l.List):
		return l.Count
	}
	return 1 + (at-1)*l.each
}
