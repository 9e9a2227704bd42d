package iterations

import (
	"testing"

	"github.com/memprof/memprof/trace/tracetest/assert"
)

// TestIterationLog holds the log, past its bound, against a list of all.
func TestIterationLog(t *testing.T) {
	var l Log
	for i := range 5*Most/2 + 3 {
		seq := int64(i) * 10
		l.Add(Iteration{Number: int64(i), StartSeq: seq, EndSeq: seq + 9, PeakC: int64(i % 7)})
		last, ok := l.Last()
		assert.Must(t, ok && last == int64(i) && l.Count == i+1, "after %d the last is %d of %d", i, last, l.Count)
	}
	for _, i := range []int{0, 1, 5, 4096, Most + 1} {
		at := l.IndexAt(int64(i)*10 + 3)
		assert.That(t, at <= i && at > i-l.each, "event %d is in iteration %d, want %d or the first of its run of %d", i*10+3, at, i, l.each)
	}
	assert.Equal(t, l.IndexAt(1<<40), l.Count, "behind the last")
}

// TestPaperOfManyIterations has the paper's table of joined iterations as of all of them.
func TestPaperOfManyIterations(t *testing.T) {
	const n, greatest = 2*Most + 3, int64(1) << 36
	var l Log
	var wholes, t2, c2, own, ownT, ownC float64
	for i := range int64(n) {
		it := Iteration{Number: i, PeakT: 1<<35 + i, PeakC: 1<<35 + 3*i, PeakR: greatest}
		if i%3 == 1 { // nothing is reserved
			it = Iteration{Number: i}
		}
		l.Add(it)
		if i == 0 {
			continue
		}
		wholes, t2, c2 = wholes+float64(greatest), t2+float64(it.PeakT), c2+float64(it.PeakC)
		if it.PeakR > 0 {
			own, ownT, ownC = own+1, ownT+float64(it.PeakT)/float64(greatest), ownC+float64(it.PeakC)/float64(greatest)
		}
	}
	want := Paper{
		Of: greatest, T1: 0.5, C1: 0.5, T2: t2 / wholes, C2: c2 / wholes, FirstExcess: 0.5/(c2/wholes) - 1, SteadyIdle: 1 - c2/wholes,
		OwnT1: 0.5, OwnC1: 0.5, OwnT2: ownT / own, OwnC2: ownC / own,
	}
	got := l.Paper(greatest)
	assert.That(t, len(l.List) <= Most && *got == want, "of %d kept: %+v, want %+v", len(l.List), got, want)
}
