package iterations

import (
	"math"
	"slices"
)

const (
	// LeastPoints is the least number of points that can show a trend: of fewer even a strict rise
	// is no rarer than trendLevel where there is none.
	LeastPoints = 5
	// trendLevel is the quantile of the normal distribution below which a rise may be chance: of
	// points in random order, 2 % are beyond it.
	trendLevel = 2.054
	// trendSamples bounds the points that slopes are taken between; evenly chosen among more.
	trendSamples = 1024
)

// Trend is how bytes change over points of a trace. Neither an outlier now and then nor a number of
// levels that come in turns is a trend.
type Trend struct {
	Valid  bool    // there are enough points, at least 5; without them the rest is not known
	Points int     // there are
	Slope  float64 // bytes an iteration, a request or a second: the median of the slopes between all pairs of points (Theil and Sen)
	// Rising says that the slope is positive, also over the later half of the points alone, and that
	// later points are greater than earlier ones in more pairs than chance explains: by the test of
	// Mann and Kendall, one-sided, at 2 %.
	Rising bool
}

// Rise is the slope of a rising trend, 0 of another.
func (t Trend) Rise() float64 {
	if !t.Rising {
		return 0
	}
	return t.Slope
}

// trendPoint is a point of a trend.
type trendPoint struct {
	x float64 // iterations, requests or seconds
	y int64   // bytes
}

// trendOf is the trend of points in ascending order of x, no two of the same x.
func trendOf(points []trendPoint) Trend {
	t := Trend{Points: len(points), Valid: len(points) >= LeastPoints}
	if !t.Valid {
		return t
	}
	if !slices.ContainsFunc(points, func(p trendPoint) bool { return p.y != points[0].y }) {
		return t
	}
	points = evenly(points, trendSamples)
	t.Slope = theilSen(points)
	t.Rising = t.Slope > 0 && theilSen(points[len(points)/2:]) > 0 && mannKendall(points) > trendLevel
	return t
}

// evenly chooses n points among more, the first and the last among them.
func evenly(points []trendPoint, n int) []trendPoint {
	if len(points) <= n {
		return points
	}
	step := float64(len(points)-1) / float64(n-1)
	chosen := make([]trendPoint, n)
	for i := range chosen {
		chosen[i] = points[int(float64(i)*step+0.5)]
	}
	return chosen
}

// theilSen is the median of the slopes between all pairs of points; 0 without a pair.
func theilSen(points []trendPoint) float64 {
	n := len(points)
	slopes := make([]float64, 0, n*(n-1)/2)
	for i := range n {
		for j := i + 1; j < n; j++ {
			slopes = append(slopes, float64(points[j].y-points[i].y)/(points[j].x-points[i].x))
		}
	}
	if len(slopes) == 0 {
		return 0
	}
	slices.Sort(slopes)
	middle := len(slopes) / 2
	if len(slopes)%2 == 1 {
		return slopes[middle]
	}
	return (slopes[middle-1] + slopes[middle]) / 2
}

// mannKendall is how many standard deviations more pairs of points rise than fall, as if the points
// came in random order; 0 if as many do, or all are equal.
func mannKendall(points []trendPoint) float64 {
	n := len(points)
	s := 0
	values := make([]int64, 0, n)
	for i, p := range points {
		values = append(values, p.y)
		for _, q := range points[i+1:] {
			switch {
			case q.y > p.y:
				s++
			case q.y < p.y:
				s--
			}
		}
	}
	spread := func(n int) float64 { return float64(n) * float64(n-1) * float64(2*n+5) / 18 }
	variance := spread(n)
	slices.Sort(values)
	for from := 0; from < n; {
		to := from + 1
		for to < n && values[to] == values[from] {
			to++
		}
		variance -= spread(to - from)
		from = to
	}
	switch {
	case s > 0:
		return float64(s-1) / math.Sqrt(variance)
	case s < 0:
		return float64(s+1) / math.Sqrt(variance)
	}
	return 0
}
