package page

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/iterations"
	"github.com/memprof/memprof/analysis/ledger"
	"github.com/memprof/memprof/report/reporttest"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// Joining points keeps the least and the greatest, also of C that is not always known.
func TestCoarser(t *testing.T) {
	point := func(start, low, high, last, c int64) analysis.Point {
		return analysis.Point{
			Start: start, End: start + 5, T: analysis.Range{Min: low, Max: high}, R: analysis.Range{Min: 2 * low, Max: 2 * high},
			C: analysis.Range{Min: c, Max: c}, Last: ledger.Instant{Seq: start + 1, T: last, C: c, R: 2 * last},
		}
	}
	got := coarser([]analysis.Point{point(0, 5, 9, 7, -1), point(10, 1, 8, 8, 20), point(20, 4, 30, 6, -1), point(30, 6, 7, 6, 10), point(40, 2, 3, 3, -1)})
	want := []analysis.Point{
		{Start: 0, End: 35, T: analysis.Range{Min: 1, Max: 30}, R: analysis.Range{Min: 2, Max: 60}, C: analysis.Range{Min: 10, Max: 20},
			Last: ledger.Instant{Seq: 31, T: 6, C: 10, R: 12}},
		{Start: 40, End: 45, T: analysis.Range{Min: 2, Max: 3}, R: analysis.Range{Min: 4, Max: 6}, C: analysis.Range{Min: -1, Max: -1},
			Last: ledger.Instant{Seq: 41, T: 3, C: -1, R: 6}},
	}
	assert.Diff(t, want, got)
}

func TestPageLevels(t *testing.T) {
	points := make([]analysis.Point, 10_000)
	for i := range points {
		points[i] = analysis.Point{Start: int64(10 * i), End: int64(10*i + 5), T: analysis.Range{Min: int64(i % 97), Max: int64(i % 97)}}
	}
	points[7777].T = analysis.Range{Min: -1, Max: 1 << 40}
	var p pack
	var counts []int
	for _, level := range newLevels(&p, points) {
		n := level["start"].(packed).count
		counts = append(counts, n)
		numbers := func(name string) []int64 {
			c := level[name].(packed)
			return reporttest.WithColumns(t, map[string]any{"$": []any{float64(c.start), float64(c.count)}}, p.columns).([]int64)
		}
		least, most := numbers("minT"), numbers("maxT")
		low, high := least[0], most[0]
		for i := range least {
			low, high = min(low, least[i]), max(high, most[i])
		}
		assert.That(t, low == -1 && high == 1<<40, "a level of %d points goes from %d to %d", n, low, high)
	}
	assert.Diff(t, []int{10_000, 2500, 625, 157}, counts)
}

// Of many iterations neighbours share a line; one that stands apart has its own.
func TestIterationRows(t *testing.T) {
	var list []iterations.Iteration
	for i := range int64(100) {
		list = append(list, iterations.Iteration{
			Number: i, StartSeq: 10 * i, EndSeq: 10*i + 9, Start: 100 * i, End: 100*i + 100, PeakT: 1000 + i%2, PeakC: 2000, PeakR: 4000, EndT: 10, Allocs: 3, AllocBytes: 30,
		})
	}
	list[50].PeakT = 5000
	type row struct{ number, last, count, peakT, allocs, marks int64 }
	var got []row
	for _, r := range iterationRows(list, 4) {
		got = append(got, row{r.Number, r.last, r.count, r.PeakT, r.Allocs, r.marks})
	}
	want := []row{{0, 24, 25, 1001, 75, 0}, {25, 49, 25, 1001, 75, 0}, {50, 50, 1, 5000, 3, 2}, {51, 75, 25, 1001, 75, 0}, {76, 99, 24, 1001, 72, 0}}
	assert.Diff(t, want, got, cmp.AllowUnexported(row{}))
	n := len(iterationRows(list, 4096))
	assert.That(t, n == 100, "%d lines of 100 iterations", n)
}
