package iterations

import "math"

// Paper is the table of the BFC paper: T1 and C1 are the peaks of the first iteration, T2 and C2 the
// means of those of the later ones. There is one with two iterations or more and something reserved.
// The paper divides by the final R. Where R shrank, that would make shares above 1, so all are divided
// by the greatest R, which is the final one where R never shrank. Every share is from 0 to 1, or NaN
// where it is unknown.
type Paper struct {
	Of             int64   // the greatest R, in bytes
	T1, C1, T2, C2 float64 // shares of Of
	FirstExcess    float64 // C1/C2 - 1, no share of a whole: from -1, without an upper bound; NaN if C2 is 0
	SteadyIdle     float64 // 1 - C2

	// The same with each iteration divided by its own peak R, for where R can shrink. Iterations
	// with nothing reserved are left out; NaN where that leaves none.
	OwnT1, OwnC1, OwnT2, OwnC2 float64
}

// ForgetC makes unknown what follows from C.
func (p *Paper) ForgetC() {
	nan := math.NaN()
	p.C1, p.C2, p.OwnC1, p.OwnC2, p.FirstExcess, p.SteadyIdle = nan, nan, nan, nan, nan, nan
}

// Paper is the table, given the greatest R in bytes; nil where there is none. T <= C <= R after every event, so every share is
// from 0 to 1.
func (l *Log) Paper(greatest int64) *Paper {
	if l.Count < 2 || greatest <= 0 {
		return nil
	}
	first := &l.List[0]
	p := &Paper{Of: greatest, T1: share(first.PeakT, greatest), C1: share(first.PeakC, greatest)}
	p.T2, p.C2 = l.later.meanShares(greatest)
	p.FirstExcess, p.SteadyIdle = math.NaN(), 1-p.C2
	if p.C2 > 0 {
		p.FirstExcess = p.C1/p.C2 - 1
	}
	p.OwnT1, p.OwnC1 = ownShares(first)
	p.OwnT2, p.OwnC2 = l.later.meanOwn()
	if l.lacks {
		p.ForgetC()
	}
	return p
}

// ownShares are T and C as shares of the iteration's own peak R, NaN where nothing was reserved.
func ownShares(it *Iteration) (t, c float64) {
	if it.PeakR <= 0 {
		return math.NaN(), math.NaN()
	}
	return share(it.PeakT, it.PeakR), share(it.PeakC, it.PeakR)
}

// share is part/whole, 0 where there is no whole.
func share(part, whole int64) float64 {
	if whole == 0 {
		return 0
	}
	return float64(part) / float64(whole)
}
