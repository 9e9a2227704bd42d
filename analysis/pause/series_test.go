package pause

import (
	"testing"

	"github.com/memprof/memprof/trace/tracetest/assert"
)

// However many changes there are, the greatest sum and the last state are kept.
func TestResidenciesAreBounded(t *testing.T) {
	rs := residencies{limit: 8}
	for i := range int64(1000) {
		rs.add(i*1000, i%7, []int64{i * 1103 % 509})
	}
	assert.Must(t, len(rs.points) <= 8 && len(rs.points) >= 4, "%d points", len(rs.points))
	var greatest int64
	for i, p := range rs.points {
		greatest = max(greatest, p.At.Sum())
		if i > 0 && p.Start <= rs.points[i-1].End {
			t.Errorf("point %d starts at %d, the one before ends at %d", i, p.Start, rs.points[i-1].End)
		}
	}
	var want int64
	for i := range int64(1000) {
		want = max(want, i%7+i*1103%509)
	}
	last := rs.points[len(rs.points)-1].Last
	assert.That(t, greatest == want && last.Sum() == 999%7+999*1103%509, "greatest %d, want %d; the last is %+v", greatest, want, last)
}
