package report

import (
	"fmt"
	"image/color"
	"math"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/report/figure"
	"github.com/memprof/memprof/report/units"
)

// iterationFigures has two panels: the BFC paper's figure 3 (the first iteration against the later
// ones, as shares of R), and the peaks of every iteration.
func iterationFigures(_ *analysis.Result, d *analysis.DeviceResult) []figure.Figure {
	return []figure.Figure{iterationsFigure(d)}
}

func iterationsFigure(d *analysis.DeviceResult) figure.Figure {
	f := figure.Figure{Name: "iterations", Title: "peaks by iteration"}
	if len(d.Iterations) == 0 {
		f.Subtitle = "no iterations were marked"
		f.Body = figure.Message("no iterations were marked in this recording:", "call memprof.iteration() after each training step to see peaks by iteration")
		return f
	}
	f.Subtitle = units.Counted(d.IterationCount(), "iteration") + "; " + paperLine(d)
	f.Legend = []figure.LegendEntry{
		figure.Swatch(figure.RequestedColor, "requested (T)"),
		figure.Swatch(figure.InternalColor, "provided (C): chunks handed out"),
		figure.Stroke(draw.LineStyle{Color: figure.ReservedColor, Width: 2.25}, "reserved (R)"),
	}
	f.Body = func(c draw.Canvas) {
		split := c.Min.X + (c.Max.X-c.Min.X)*0.40
		left, right := c, c
		left.Max.X, right.Min.X = split-14, split+14
		drawPaper(left, d)
		drawIterationPeaks(right, d)
	}
	return f
}

// paperLine sums the paper's table up.
func paperLine(d *analysis.DeviceResult) string {
	if !d.Paper.Valid {
		return "two are needed to compare the first with the later ones"
	}
	return fmt.Sprintf("first-iteration excess C1/C2 − 1 = %s, idle in steady state 1 − C2 = %s",
		units.FormatPercent(d.Paper.FirstExcess), units.FormatPercent(d.Paper.SteadyIdle))
}

// panelTitle writes the heading of a panel and returns the room below it.
func panelTitle(c draw.Canvas, title string) draw.Canvas {
	c.FillText(figure.Aligned(figure.BoldLetters, draw.XLeft, draw.YTop), vg.Point{X: c.Min.X, Y: c.Max.Y - 6}, title)
	return draw.Crop(c, 0, 0, 0, -28)
}

// drawPaper draws T1, C1, T2, C2 as bars.
func drawPaper(c draw.Canvas, d *analysis.DeviceResult) {
	if !d.Paper.Valid {
		c = panelTitle(c, "shares of the reserved memory")
		figure.Message("needs two iterations and", "reserved memory")(c)
		return
	}
	which := "final"
	if d.Paper.Of > d.Final.R {
		which = "greatest"
	}
	c = panelTitle(c, "shares of the "+which+" reserved memory, "+units.FormatSize(d.Paper.Of))
	values := []float64{d.Paper.T1, d.Paper.C1, d.Paper.T2, d.Paper.C2}
	p := figure.NewAxes()
	p.X.Min, p.X.Max = 0, 5.5
	p.X.LineStyle.Width, p.X.Tick.LineStyle.Width = 0, 0
	p.X.Tick.Marker = plot.ConstantTicks{
		{Value: 1, Label: "T1"}, {Value: 2, Label: "C1"}, {Value: 3.5, Label: "T2"}, {Value: 4.5, Label: "C2"},
	}
	p.X.Label.Text = fmt.Sprintf("T1, C1: first iteration    T2, C2: mean of the %s", units.Counted(d.IterationCount()-1, "later one"))
	p.Y.Min, p.Y.Max = 0, 1.1
	p.Y.Tick.Marker = figure.NiceTicks(0, p.Y.Max, 7, 0.01, func(v float64, decimals int) string { return figure.Fixed(v, decimals) + "%" })
	p.Add(figure.Grid{}, bars{p.X.Tick.Marker.(plot.ConstantTicks), values})
	p.Draw(c)
}

// bars draws one bar a tick with its value above it, and the line of 100 %.
type bars struct {
	at     plot.ConstantTicks
	values []float64
}

func (b bars) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	c.StrokeLine2(draw.LineStyle{Color: figure.ReservedColor, Width: 2}, c.Min.X, y(1), c.Max.X, y(1))
	for i, v := range b.values {
		if math.IsNaN(v) {
			continue
		}
		clr := []color.NRGBA{figure.RequestedColor, figure.InternalColor}[i%2]
		center := b.at[i].Value
		figure.FillRect(c, clr, x(center-0.4), c.Min.Y, x(center+0.4), y(v))
		// Inside the bar where it is tall enough: a label above could lie on the line of 100 %.
		label, at := figure.Aligned(figure.BoldLetters, draw.XCenter, draw.YTop), vg.Point{X: x(center), Y: y(v) - 5}
		label.Color = []color.Color{color.White, figure.InkColor}[i%2]
		if y(v)-c.Min.Y < 24 {
			label, at.Y = figure.Aligned(figure.BoldLetters, draw.XCenter, draw.YBottom), y(v)+3
		}
		c.FillText(label, at, units.FormatPercent(v))
	}
}

// drawIterationPeaks draws the peaks of each iteration in bytes.
func drawIterationPeaks(c draw.Canvas, d *analysis.DeviceResult) {
	c = panelTitle(c, "peaks of every iteration")
	p := figure.NewAxes()
	n := len(d.Iterations)
	var greatest int64
	for _, it := range d.Iterations {
		greatest = max(greatest, it.PeakT, it.PeakC, it.PeakR)
	}
	p.X.Min, p.X.Max = 0.4, float64(max(n, 4))+0.6
	p.X.Tick.Marker = iterationTicks(d.Iterations)
	p.X.Label.Text = "iteration"
	figure.ByteAxis(&p.Y, greatest, 1.1*float64(max(greatest, 1)))
	p.Add(figure.Grid{}, iterationPeaks{d.Iterations})
	p.Draw(draw.Crop(c, 0, -4, 0, 0))
}

// iterationTicks labels every so many iterations, the first one among them, by number.
func iterationTicks(iterations []analysis.Iteration) plot.ConstantTicks {
	step := figure.IterationStep(len(iterations), 20)
	var ticks plot.ConstantTicks
	for i, it := range iterations {
		if i%step == 0 {
			ticks = append(ticks, plot.Tick{Value: float64(i + 1), Label: strconv.FormatInt(it.Number, 10)})
		}
	}
	return ticks
}

// iterationPeaks draws C and, inside it, T as bars, and R as a line over them.
type iterationPeaks struct{ iterations []analysis.Iteration }

// Bars of more iterations than barsDrawn touch: they become an area, in which the neighbours that
// share one of areaSteps steps are as tall as the tallest.
const barsDrawn, areaSteps = 100, 400

func (b iterationPeaks) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	n := len(b.iterations)
	group := 1 + (n-1)/areaSteps
	var requested, provided, reserved []vg.Point
	for i := 0; i < n; i += group {
		end := min(i+group, n)
		var t, cc, r int64 // a C that is not known draws nothing
		for _, it := range b.iterations[i:end] {
			t, cc, r = max(t, it.PeakT), max(cc, it.PeakC), max(r, it.PeakR)
		}
		left, right := x(float64(i)+0.5), x(float64(end)+0.5)
		if n <= barsDrawn {
			gap := (right - left) * 0.12
			figure.FillRect(c, figure.InternalColor, left+gap, c.Min.Y, right-gap, y(float64(cc)))
			figure.FillRect(c, figure.RequestedColor, left+gap, c.Min.Y, right-gap, y(float64(t)))
		}
		requested = figure.AppendStep(requested, left, right, y(float64(t)))
		provided = figure.AppendStep(provided, left, right, y(float64(cc)))
		reserved = figure.AppendStep(reserved, left, right, y(float64(r)))
	}
	if n > barsDrawn {
		figure.FillBelow(c, figure.InternalColor, provided)
		figure.FillBelow(c, figure.RequestedColor, requested)
	}
	c.StrokeLines(draw.LineStyle{Color: figure.ReservedColor, Width: 2}, reserved)
}
