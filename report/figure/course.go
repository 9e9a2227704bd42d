package figure

import (
	"image/color"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/ledger"
)

// DrawnPoints is the most points a figure draws, about one per pixel of its width.
const DrawnPoints = 1000

// DrawnCourse reduces a device's series to the points that its figures draw. From 100 iterations on,
// a point covers one and a half iterations: each has a whole rise and fall, so the figure shows an even
// band. Shorter points would show a moiré pattern of iterations and pixels.
func DrawnCourse(d *analysis.DeviceResult) []analysis.Point {
	n := DrawnPoints
	if iterations := len(d.Iterations); iterations > 100 {
		n = min(n, iterations*2/3)
	}
	return ReducePoints(d.Series.Points, n)
}

// ReducePoints divides the time of the points into n equal slices and joins the points that begin in
// the same slice, so that at most n are left. A joined point keeps the minimum and maximum of each
// value, and the split at the greatest R (then T), so that no peak is lost. A gap without events that
// is shorter than a slice becomes part of the point before it; longer gaps stay.
func ReducePoints(points []analysis.Point, n int) []analysis.Point {
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
		out[len(out)-1].Join(&p)
	}
	return out
}

// Strip is the place of a point on the x axis. The point's range of values is drawn in [From, To], and
// the values after its last event in [To, Next].
type Strip struct {
	analysis.Point
	From, To, Next vg.Length
}

// Strips places reduced points up to the right end of a plot. Each is at least a pixel wide, so that a
// moment is visible. As slices are no narrower than a pixel, points do not push each other further and
// further to the right.
func Strips(points []analysis.Point, x func(float64) vg.Length, right vg.Length) []Strip {
	out := make([]Strip, len(points))
	for i, p := range points {
		from := x(float64(p.Start))
		if i > 0 {
			from = max(from, out[i-1].To)
			out[i-1].Next = from
		}
		to := max(x(float64(p.End)), from+Pixel)
		out[i] = Strip{p, from, to, max(to, right)}
	}
	return out
}

// Curve is one value of a series: its range within a point, and its value at an instant.
type Curve struct {
	within func(analysis.Point) analysis.Range
	at     func(ledger.Instant) int64
}

// The curves of requested (T), provided (C) and reserved (R).
var (
	CurveT = Curve{func(p analysis.Point) analysis.Range { return p.T }, func(i ledger.Instant) int64 { return i.T }}
	CurveC = Curve{func(p analysis.Point) analysis.Range { return p.C }, func(i ledger.Instant) int64 { return i.C }}
	CurveR = Curve{func(p analysis.Point) analysis.Range { return p.R }, func(i ledger.Instant) int64 { return i.R }}
)

// Envelope draws a value that changes many times within a pixel as the band between its minimum and
// maximum there. Between events the band is a line at the last value.
type Envelope struct {
	Points []analysis.Point
	Curve
	Clr   color.NRGBA
	Width vg.Length // of the line, at least 1.2
	Below float64   // opacity of the area below the band, from 0 to 1
}

// Plot implements plot.Plotter.
func (e Envelope) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	upper, lower := make([]vg.Point, 0, 4*len(e.Points)), make([]vg.Point, 0, 4*len(e.Points))
	for _, s := range Strips(e.Points, x, c.Max.X) {
		r, last := e.within(s.Point), y(float64(e.at(s.Last)))
		upper = appendStep(upper, s.From, s.To, y(float64(r.Max)))
		lower = appendStep(lower, s.From, s.To, y(float64(r.Min)))
		if s.Next > s.To {
			upper, lower = appendStep(upper, s.To, s.Next, last), appendStep(lower, s.To, s.Next, last)
		}
	}
	if e.Below > 0 {
		area := append([]vg.Point{{X: upper[0].X, Y: c.Min.Y}}, upper...)
		c.FillPolygon(Tint(e.Clr, e.Below), append(area, vg.Point{X: upper[len(upper)-1].X, Y: c.Min.Y}))
	}
	band := append([]vg.Point(nil), upper...)
	for i := len(lower) - 1; i >= 0; i-- {
		band = append(band, lower[i])
	}
	c.FillPolygon(e.Clr, band)
	sty := draw.LineStyle{Color: e.Clr, Width: max(e.Width, 1.2)}
	c.StrokeLines(sty, upper)
	c.StrokeLines(sty, lower)
}

// appendStep appends a horizontal line at a height to a path of steps, or lengthens the last one if it
// has that height.
func appendStep(path []vg.Point, from, to, height vg.Length) []vg.Point {
	if n := len(path); n > 0 && path[n-1].Y == height {
		path[n-1].X = to
		return path
	}
	return append(path, vg.Point{X: from, Y: height}, vg.Point{X: to, Y: height})
}
