package report

import (
	"fmt"
	"image/color"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/memprof/memprof/analysis"
)

// layer is one band of the stacked figure.
type layer struct {
	name  string
	clr   color.NRGBA
	bytes func(analysis.Instant) int64
}

// layers are the terms of the split from the bottom up, as far as any point has them; requested,
// internal, reserve and external are always there, so that figures of several runs read alike.
func layers(d *analysis.DeviceResult, points []analysis.Point) []layer {
	all := []layer{{"requested", requestedColor, func(i analysis.Instant) int64 { return i.T }}}
	if d.Sampled == nil {
		all = append(all, layer{"internal (rounding and slack)", internalColor, analysis.Instant.Internal})
	}
	for _, p := range points {
		if p.At.Pending > 0 || p.Last.Pending > 0 {
			all = append(all, layer{"pending", pendingColor, func(i analysis.Instant) int64 { return i.Pending }})
			break
		}
	}
	if d.Sampled != nil {
		return append(all, layer{"not requested (in blocks, or free)", holeColor, unrequested})
	}
	return append(all,
		layer{"external (holes)", holeColor, func(i analysis.Instant) int64 { return i.External }},
		layer{"reserve (never handed out)", reserveColor, func(i analysis.Instant) int64 { return i.Reserve }},
	)
}

// splitFigure stacks where the reserved bytes were over time.
func splitFigure(d *analysis.DeviceResult) Figure {
	f := Figure{Name: "split", title: "where the reserved memory was"}
	if len(d.Series.Points) == 0 || d.MaxR == 0 {
		f.subtitle = "no memory was mapped on this device"
		f.body = message("nothing to draw: no memory was mapped on this device")
		return f
	}
	points := drawnCourse(d)
	f.subtitle = splitLine(d)
	stack := stacked{points, layers(d, points)}
	for _, l := range stack.layers {
		f.legend = append(f.legend, swatch(l.clr, l.name))
	}
	f.legend = append(f.legend, stroke(draw.LineStyle{Color: reservedColor, Width: 2.25}, "reserved"), peakLegend())
	marks := newTimeMarks(d)
	f.legend = append(f.legend, marks.legend()...)
	f.body = func(c draw.Canvas) {
		p := timeAxes(d)
		p.Add(grid{}, stack, marks, peakMark{d, float64(d.Peak.R)}, failureMarks{d})
		drawTimePlot(c, p)
	}
	return f
}

// splitLine is the split at the peak instant.
func splitLine(d *analysis.DeviceResult) string {
	peak := d.Peak
	if d.Sampled != nil {
		return fmt.Sprintf("at the peak instant: requested %s, pending %s, not requested %s of %s reserved",
			FormatPercent(ratio(peak.T, peak.R)), FormatPercent(ratio(peak.Pending, peak.R)), FormatPercent(ratio(unrequested(peak), peak.R)), FormatSize(peak.R))
	}
	return fmt.Sprintf("at the peak instant: requested %s, internal %s, pending %s, external %s, reserve %s of %s reserved",
		FormatPercent(ratio(peak.T, peak.R)), FormatPercent(ratio(peak.Internal(), peak.R)), FormatPercent(ratio(peak.Pending, peak.R)),
		FormatPercent(ratio(peak.External, peak.R)), FormatPercent(ratio(peak.Reserve, peak.R)), FormatSize(peak.R))
}

// stacked draws each point's split at its greatest R (then T), and while nothing happens the one
// it left behind.
type stacked struct {
	points []analysis.Point
	layers []layer
}

// Plot draws the sums from the top down, each to zero: bands that overlap leave no seam.
func (s stacked) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	places := strips(s.points, x, c.Max.X)
	for n := len(s.layers); n > 0; n-- {
		sum := func(i analysis.Instant) vg.Length {
			var bytes int64
			for _, l := range s.layers[:n] {
				bytes += l.bytes(i)
			}
			return y(float64(bytes))
		}
		edge := make([]vg.Point, 0, 4*len(places)+2)
		for _, p := range places {
			edge = appendStep(edge, p.from, p.to, sum(p.At))
			if p.next > p.to {
				edge = appendStep(edge, p.to, p.next, sum(p.Last))
			}
		}
		fillBelow(c, s.layers[n-1].clr, edge)
		if n == len(s.layers) {
			c.StrokeLines(draw.LineStyle{Color: reservedColor, Width: 2}, edge)
		}
	}
}
