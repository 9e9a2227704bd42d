package report

import (
	"fmt"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/report/figure"
)

// timelineFigures draw reserved, provided and requested bytes over time, figure 2 of the BFC paper.
func timelineFigures(_ *analysis.Result, d *analysis.DeviceResult) []figure.Figure {
	f := figure.Figure{Name: "timeline", Title: "memory over time"}
	if len(d.Series.Points) == 0 || d.MaxR == 0 {
		f.Subtitle = "no memory was mapped on this device"
		f.Body = figure.Message("nothing to draw: no memory was mapped on this device")
		return []figure.Figure{f}
	}
	f.Subtitle = fmt.Sprintf("maximum of reserved %s, provided %s, requested %s; at the peak %s of reserved is not requested",
		plain.FormatSize(d.MaxR), plain.FormatKnown(d.MaxC), plain.FormatSize(d.MaxT), plain.FormatPercent(1-plain.Ratio(d.Peak.T, d.Peak.R)))
	points := figure.DrawnCourse(d)
	curves := []figure.Envelope{
		{Points: points, Curve: figure.CurveC, Clr: figure.InternalColor},
		{Points: points, Curve: figure.CurveT, Clr: figure.RequestedColor, Below: 0.13},
		// R changes rarely: short points show its steps, long ones would draw rectangles.
		{Points: figure.ReducePoints(d.Series.Points, figure.DrawnPoints), Curve: figure.CurveR, Clr: figure.ReservedColor, Width: 2},
	}
	f.Legend = []figure.LegendEntry{
		figure.Stroke(draw.LineStyle{Color: figure.ReservedColor, Width: 2.25}, "reserved (R): mapped"),
		figure.Swatch(figure.InternalColor, "provided (C): chunks of live allocations"),
		figure.Swatch(figure.RequestedColor, "requested (T)"),
		figure.PeakLegend(),
	}
	sampled := slices.ContainsFunc(points, func(p analysis.Point) bool { return p.C.Max < 0 })
	if sampled {
		curves = curves[1:]
		f.Legend[1] = figure.LegendEntry{Label: "provided (C), as read", Sample: func(c draw.Canvas) { c.DrawGlyphNoClip(sampledDot, c.Center()) }}
	}
	marks := figure.NewTimeMarks(d)
	f.Legend = append(f.Legend, marks.Legend()...)
	f.Body = func(c draw.Canvas) {
		p := figure.TimeAxes(d)
		p.Add(figure.Grid{}, marks)
		for _, e := range curves {
			p.Add(e)
		}
		if sampled {
			p.Add(sampledProvided{points})
		}
		p.Add(figure.PeakMark{D: d, Height: float64(d.Peak.T)}, figure.FailureMarks{D: d})
		p.Draw(draw.Crop(c, 0, -8, 0, -16)) // with a margin for the iteration numbers above, and for half a tick label at the right
	}
	return []figure.Figure{f}
}

// sampledProvided draws a dot for each point in which the sums of the native allocator were read, at the
// greatest reading. Between readings C is not known.
type sampledProvided struct{ points []analysis.Point }

// Plot implements plot.Plotter.
func (s sampledProvided) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	for _, point := range s.points {
		if point.C.Max >= 0 {
			c.DrawGlyph(sampledDot, vg.Point{X: x(float64(point.End)), Y: y(float64(point.C.Max))})
		}
	}
}

var sampledDot = draw.GlyphStyle{Color: figure.InternalColor, Radius: 2, Shape: draw.CircleGlyph{}}
