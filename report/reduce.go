package report

import (
	"github.com/memprof/memprof/analysis"
)

// drawnPoints is how many intervals a figure draws at most: about one a pixel of its width.
const drawnPoints = 1000

// drawnCourse is a device's course as its figures draw it. Hundreds of iterations are drawn as a
// band: with slices of one and a half iterations each one holds a whole rise and fall, where finer
// ones would show an interference of iterations and pixels.
func drawnCourse(d *analysis.DeviceResult) []analysis.Point {
	n := drawnPoints
	if iterations := len(d.Iterations); iterations > 100 {
		n = min(n, iterations*2/3)
	}
	return reducePoints(d.Series.Points, n)
}

// reducePoints joins points that begin in the same of n equal slices of time, so that at most n
// are left. The joined point covers both: it keeps the least and greatest of each value, and the
// split at the greatest R (then T), so that neither a peak nor the peak instant is lost. Silence
// shorter than a slice is part of the point before it; longer silence stays between the points.
func reducePoints(points []analysis.Point, n int) []analysis.Point {
	start := points[0].Start
	span := points[len(points)-1].Start - start + 1
	slice := func(p analysis.Point) int64 {
		return int64(float64(p.Start-start) / float64(span) * float64(n))
	}
	out := make([]analysis.Point, 0, min(n, len(points)))
	last := int64(-1)
	for _, p := range points {
		if at := slice(p); at != last {
			if k := len(out) - 1; k >= 0 && p.Start-out[k].End < span/int64(n) {
				out[k].End = p.Start
			}
			out = append(out, p)
			last = at
			continue
		}
		joined := &out[len(out)-1]
		joined.End = max(joined.End, p.End)
		joined.T, joined.C, joined.R = hull(joined.T, p.T), hullKnown(joined.C, p.C), hull(joined.R, p.R)
		if p.At.R > joined.At.R || p.At.R == joined.At.R && p.At.T > joined.At.T {
			joined.At = p.At
		}
		joined.Last = p.Last
	}
	return out
}

// hull is the least range that holds both.
func hull(a, b analysis.Range) analysis.Range {
	return analysis.Range{Min: min(a.Min, b.Min), Max: max(a.Max, b.Max)}
}

// hullKnown is hull for values of which -1 says that they are not known.
func hullKnown(a, b analysis.Range) analysis.Range {
	switch {
	case a.Max < 0:
		return b
	case b.Max < 0:
		return a
	}
	return hull(a, b)
}

// courseEnd is the time at which a course ends.
func courseEnd(points []analysis.Point) int64 {
	last := points[len(points)-1]
	return max(last.End, last.Start)
}
