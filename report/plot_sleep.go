package report

import (
	"fmt"
	"image/color"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/memprof/memprof/analysis"
)

// tagColors are of the first tags, from the palette of all figures; what is outside of tags is
// grey, and so are further tags, each darker.
var tagColors = []color.NRGBA{
	requestedColor, internalColor, {0x00, 0x9e, 0x73, 0xff}, holeColor, pendingColor, {0x56, 0xb4, 0xe9, 0xff}, {0xf0, 0xe4, 0x42, 0xff},
}

func tagColor(tag int) color.NRGBA {
	if tag < len(tagColors) {
		return tagColors[tag]
	}
	level := uint8(0xa0 - 0x10*((tag-len(tagColors))%6))
	return color.NRGBA{level, level, level, 0xff}
}

// sleepFigure stacks what was mapped by tag over time.
func sleepFigure(d *analysis.DeviceResult) Figure {
	f := Figure{Name: "sleep", title: "what was awake"}
	sleep := d.Sleep
	if len(sleep.Series) == 0 || d.MaxR == 0 {
		f.subtitle = "no memory was mapped on this device"
		f.body = message("nothing to draw: no memory was mapped on this device")
		return f
	}
	f.subtitle = "greatest of a tag:"
	bands := awake{points: sleep.Series, tags: len(sleep.Cycle.Tags)}
	f.legend = append(f.legend, swatch(reserveColor, "outside of tags"))
	for i, t := range sleep.Cycle.Tags {
		f.subtitle += fmt.Sprintf(" %s %s,", t.Name, FormatSize(t.Bytes))
		f.legend = append(f.legend, swatch(tagColor(i), shorten(t.Name, 32)))
	}
	f.subtitle = f.subtitle[:len(f.subtitle)-1]
	f.legend = append(f.legend, stroke(draw.LineStyle{Color: reservedColor, Width: 2.25}, "reserved"))
	var plans []planLine
	if len(sleep.Stages) > 0 && sleep.OnUse.Peak < sleep.Recorded.Peak {
		plans = append(plans, planLine{sleep.OnUse.Peak})
		f.legend = append(f.legend, stroke(planStyle(), "peak of waking in stages"))
	}
	marks := newTimeMarks(d)
	f.legend = append(f.legend, marks.legend()...)
	f.body = func(c draw.Canvas) {
		p := newAxes()
		timeAxis(&p.X, sleep.Series[0].Start, max(sleep.Series[len(sleep.Series)-1].End, courseEnd(d.Series.Points)))
		byteAxis(&p.Y, d.MaxR, 1.16*float64(d.MaxR))
		p.Add(grid{}, bands, marks)
		for _, line := range plans {
			p.Add(line)
		}
		drawTimePlot(c, p)
	}
	return f
}

// awake draws each stretch at its greatest sum, and while nothing changes what it left behind.
type awake struct {
	points []analysis.Residency
	tags   int
}

// Plot draws the sums from the top down, each to zero: bands that overlap leave no seam.
func (a awake) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	for n := a.tags; n >= 0; n-- {
		sum := func(m analysis.Mapped) vg.Length {
			bytes := m.Base
			for _, b := range m.Tags[:min(n, len(m.Tags))] {
				bytes += b
			}
			return y(float64(bytes))
		}
		var edge []vg.Point
		for i, r := range a.points {
			from := x(float64(r.Start))
			to, next := max(x(float64(r.End)), from+pixel), c.Max.X
			if i+1 < len(a.points) {
				next = x(float64(a.points[i+1].Start))
			}
			to = min(to, next)
			edge = appendStep(edge, from, to, sum(r.At))
			edge = appendStep(edge, to, next, sum(r.Last))
		}
		clr := reserveColor
		if n > 0 {
			clr = tagColor(n - 1)
		}
		fillBelow(c, clr, edge)
		if n == a.tags {
			c.StrokeLines(draw.LineStyle{Color: reservedColor, Width: 2}, edge)
		}
	}
}

// planLine is a level in bytes.
type planLine struct{ bytes int64 }

func planStyle() draw.LineStyle {
	return draw.LineStyle{Color: markColor, Width: 1.25, Dashes: []vg.Length{6, 3}}
}

func (l planLine) Plot(c draw.Canvas, p *plot.Plot) {
	_, y := p.Transforms(&c)
	level := y(float64(l.bytes))
	c.StrokeLine2(planStyle(), c.Min.X, level, c.Max.X, level)
}
