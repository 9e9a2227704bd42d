package report

import (
	"fmt"
	"image/color"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/memprof/memprof/analysis"
)

// timelineFigure draws reserved, provided and requested bytes over time: the BFC paper's figure 2.
func timelineFigure(d *analysis.DeviceResult) Figure {
	f := Figure{Name: "timeline", title: "memory over time"}
	if len(d.Series.Points) == 0 || d.MaxR == 0 {
		f.subtitle = "no memory was mapped on this device"
		f.body = message("nothing to draw: no memory was mapped on this device")
		return f
	}
	f.subtitle = fmt.Sprintf("greatest reserved %s, provided %s, requested %s; at the peak instant %s of reserved is not requested",
		FormatSize(d.MaxR), formatLimit(d.MaxC), FormatSize(d.MaxT), FormatPercent(1-ratio(d.Peak.T, d.Peak.R)))
	points := drawnCourse(d)
	curves := []envelope{
		{points: points, curve: curveC, clr: internalColor},
		{points: points, curve: curveT, clr: requestedColor, below: 0.13},
		// R moves rarely: fine slices draw its steps, wide ones would draw blocks.
		{points: reducePoints(d.Series.Points, drawnPoints), curve: curveR, clr: reservedColor, width: 2},
	}
	f.legend = []legendEntry{
		stroke(draw.LineStyle{Color: reservedColor, Width: 2.25}, "reserved (R): mapped"),
		swatch(internalColor, "provided (C): chunks handed out"),
		swatch(requestedColor, "requested (T)"),
		peakLegend(),
	}
	if d.Sampled != nil {
		curves = curves[1:]
		f.legend[1] = sampledLegend()
	}
	marks := newTimeMarks(d)
	f.legend = append(f.legend, marks.legend()...)
	f.body = func(c draw.Canvas) {
		p := timeAxes(d)
		p.Add(grid{}, marks)
		for _, e := range curves {
			p.Add(e)
		}
		if d.Sampled != nil {
			p.Add(sampledProvided{points})
		}
		p.Add(peakMark{d, float64(d.Peak.T)}, failureMarks{d})
		drawTimePlot(c, p)
	}
	return f
}

// timeAxes are the axes of the figures over time, with room for a label above the curves.
func timeAxes(d *analysis.DeviceResult) *plot.Plot {
	p := newAxes()
	points := d.Series.Points
	timeAxis(&p.X, points[0].Start, courseEnd(points))
	byteAxis(&p.Y, d.MaxR, 1.16*float64(max(d.MaxR, 1)))
	return p
}

// drawTimePlot draws a plot with room for the iteration numbers above it and for half a tick
// label at its right.
func drawTimePlot(c draw.Canvas, p *plot.Plot) {
	p.Draw(draw.Crop(c, 0, -8, 0, -16))
}

// strip is where a point is on the paper: what happened in it lies in [from, to], and what it left
// behind holds in [to, next].
type strip struct {
	analysis.Point
	from, to, next vg.Length
}

// strips places reduced points up to the right end of a plot, each at least a pixel wide so that
// what lasts a moment is seen. Slices are no narrower than that: what a point takes of the next
// one's room does not add up.
func strips(points []analysis.Point, x func(float64) vg.Length, right vg.Length) []strip {
	out := make([]strip, len(points))
	for i, p := range points {
		from := x(float64(p.Start))
		if i > 0 {
			from = max(from, out[i-1].to)
			out[i-1].next = from
		}
		to := max(x(float64(p.End)), from+pixel)
		out[i] = strip{p, from, to, max(to, right)}
	}
	return out
}

// curve is one of the numbers that a course has.
type curve struct {
	within func(analysis.Point) analysis.Range
	at     func(analysis.Instant) int64
}

var (
	curveT = curve{func(p analysis.Point) analysis.Range { return p.T }, func(i analysis.Instant) int64 { return i.T }}
	curveC = curve{func(p analysis.Point) analysis.Range { return p.C }, func(i analysis.Instant) int64 { return i.C }}
	curveR = curve{func(p analysis.Point) analysis.Range { return p.R }, func(i analysis.Instant) int64 { return i.R }}
)

// envelope draws a value that changed many times within a pixel as the band between its least and
// greatest value there. While nothing happens the last value holds, and the band is a line.
type envelope struct {
	points []analysis.Point
	curve
	clr   color.NRGBA
	width vg.Length // of the line; 0 is that of a thin one
	below float64   // opacity of the area between the band and zero
}

func (e envelope) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	upper, lower := make([]vg.Point, 0, 4*len(e.points)), make([]vg.Point, 0, 4*len(e.points))
	for _, s := range strips(e.points, x, c.Max.X) {
		r, last := e.within(s.Point), y(float64(e.at(s.Last)))
		upper = appendStep(upper, s.from, s.to, y(float64(r.Max)))
		lower = appendStep(lower, s.from, s.to, y(float64(r.Min)))
		if s.next > s.to {
			upper, lower = appendStep(upper, s.to, s.next, last), appendStep(lower, s.to, s.next, last)
		}
	}
	if e.below > 0 {
		fillBelow(c, tint(e.clr, e.below), upper)
	}
	band := append([]vg.Point(nil), upper...)
	for i := len(lower) - 1; i >= 0; i-- {
		band = append(band, lower[i])
	}
	c.FillPolygon(e.clr, band)
	sty := draw.LineStyle{Color: e.clr, Width: max(e.width, 1.2)}
	c.StrokeLines(sty, upper)
	c.StrokeLines(sty, lower)
}

// appendStep adds a level from one x to another to a path of steps; a level that goes on lengthens
// the last step.
func appendStep(path []vg.Point, from, to, height vg.Length) []vg.Point {
	if n := len(path); n > 0 && path[n-1].Y == height {
		path[n-1].X = to
		return path
	}
	return append(path, vg.Point{X: from, Y: height}, vg.Point{X: to, Y: height})
}

// peakMark marks the peak instant: a line at its time, a dot at a height, a label above the curves.
type peakMark struct {
	d      *analysis.DeviceResult
	height float64 // of the dot, in bytes
}

func (m peakMark) Plot(c draw.Canvas, p *plot.Plot) {
	peak := m.d.Peak
	if peak.R == 0 || peak.Time < 0 {
		return
	}
	x, y := p.Transforms(&c)
	px, py := x(float64(peak.Time)), y(m.height)
	label := fmt.Sprintf("peak instant: %s requested of %s reserved", FormatSize(peak.T), FormatSize(peak.R))
	if number, ok := iterationNumber(m.d, peak.Iteration); ok {
		label += fmt.Sprintf(", iteration %d", number)
	}
	base := y(float64(m.d.MaxR)) + 7
	c.StrokeLine2(draw.LineStyle{Color: markColor, Width: 1.25}, px, py, px, base)
	c.DrawGlyphNoClip(draw.GlyphStyle{Color: color.White, Radius: 5, Shape: draw.CircleGlyph{}}, vg.Point{X: px, Y: py})
	c.DrawGlyphNoClip(draw.GlyphStyle{Color: markColor, Radius: 3.5, Shape: draw.CircleGlyph{}}, vg.Point{X: px, Y: py})
	width := boldLetters.Width(label)
	left := min(max(px-width/2, c.Min.X+6), c.Max.X-width-6)
	fillRect(c, tint(color.NRGBA{0xff, 0xff, 0xff, 0xff}, 0.9), left-4, base, left+width+4, base+17)
	c.FillText(aligned(boldLetters, draw.XLeft, draw.YBottom), vg.Point{X: left, Y: base + 2}, label)
}

func peakLegend() legendEntry {
	return legendEntry{"peak instant", func(c draw.Canvas) {
		c.DrawGlyphNoClip(draw.GlyphStyle{Color: markColor, Radius: 3.5, Shape: draw.CircleGlyph{}}, c.Center())
	}}
}

// failureMarks puts a cross on the curve of R where a request failed for good.
type failureMarks struct{ d *analysis.DeviceResult }

func (m failureMarks) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	for _, o := range m.d.OOMs {
		px, py := x(float64(o.Time)), y(float64(o.At.R))
		drawCross(c, px, py)
	}
}

func drawCross(c draw.Canvas, x, y vg.Length) {
	sty := draw.LineStyle{Color: failedColor, Width: 2.25}
	c.StrokeLine2(sty, x-4.5, y-4.5, x+4.5, y+4.5)
	c.StrokeLine2(sty, x-4.5, y+4.5, x+4.5, y-4.5)
}

// timeMarks are the lines between iterations and their numbers above the plot.
type timeMarks struct {
	iterations []analysis.Iteration
	step       int // every how many boundaries there is a line
	label      int // every how many iterations there is a number
	failures   bool
}

// How many lines between iterations, and how many of their numbers, stay apart in a figure's width.
const boundariesDrawn, numbersDrawn = 60, 30

func newTimeMarks(d *analysis.DeviceResult) timeMarks {
	n := len(d.Iterations)
	return timeMarks{d.Iterations, iterationStep(n, boundariesDrawn), iterationStep(n, numbersDrawn), len(d.OOMs) > 0}
}

// iterationStep is the least of 1, 5, 10, 20, 50, 100, 200, … with which at most most of n
// iterations are multiples.
func iterationStep(n, most int) int {
	step := 1
	for k := 0; n/step > most; k++ {
		if k == 0 {
			step = 5
			continue
		}
		step = step / [...]int{2, 5, 10}[k%3] * [...]int{5, 10, 20}[k%3]
	}
	return step
}

func (m timeMarks) legend() []legendEntry {
	var entries []legendEntry
	if len(m.iterations) > 0 {
		label := "end of an iteration"
		if m.step > 1 {
			label = fmt.Sprintf("end of an iteration (one line in %d)", m.step)
		}
		entries = append(entries, stroke(boundaryLine(), label))
	}
	if m.failures {
		entries = append(entries, legendEntry{"out of memory", func(c draw.Canvas) { drawCross(c, c.Center().X, c.Center().Y) }})
	}
	return entries
}

func boundaryLine() draw.LineStyle {
	return draw.LineStyle{Color: tint(inkColor, 0.4), Width: 0.75, Dashes: []vg.Length{3, 3}}
}

func (m timeMarks) Plot(c draw.Canvas, p *plot.Plot) {
	x, _ := p.Transforms(&c)
	sty := aligned(smallLetters, draw.XCenter, draw.YBottom)
	free := c.Min.X // where the next number may begin
	if len(m.iterations) > 0 {
		const heading = "iteration"
		c.FillText(aligned(smallLetters, draw.XRight, draw.YBottom), vg.Point{X: c.Min.X - 4, Y: c.Max.Y + 3}, heading)
	}
	for i, it := range m.iterations {
		end := x(float64(it.End))
		if (i+1)%m.step == 0 && end >= c.Min.X && end <= c.Max.X {
			c.StrokeLine2(boundaryLine(), end, c.Min.Y, end, c.Max.Y)
		}
		text := strconv.FormatInt(it.Number, 10)
		start := max(x(float64(it.Start)), c.Min.X)
		middle := (start + end) / 2
		half := sty.Width(text) / 2
		if i%m.label == 0 && middle-half >= free && middle+half <= c.Max.X {
			c.FillText(sty, vg.Point{X: middle, Y: c.Max.Y + 3}, text)
			free = middle + half + 6
		}
	}
}
