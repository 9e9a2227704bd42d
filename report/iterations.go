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
	"github.com/memprof/memprof/analysis/iterations"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/report/figure"
	"github.com/memprof/memprof/report/layout"
)

// Rows of the table of iterations before and after the gap. The first iterations differ most, so more of
// them are shown.
const iterationsHead, iterationsTail = 8, 4

// iterationSections are the table of iterations and the BFC paper's comparison of the first with later ones.
func iterationSections(d *analysis.DeviceResult) []layout.Section {
	if len(d.Iterations) == 0 {
		return []layout.Section{{
			Title:  "Iterations",
			Before: layout.Toned(layout.Faint, layout.Note("no iterations were marked: call memprof.iteration() after each step to get peaks by iteration")),
		}}
	}
	several := len(d.Iterations) > 1
	s := layout.Section{
		Title: "Iterations",
		Columns: []layout.Column{
			layout.Numbers("iteration"), layout.Numbers("duration"), layout.Numbers("peak T"), layout.Numbers("peak C"), layout.Numbers("peak R"),
			layout.Numbers("T at end"), layout.Numbers("allocations"), layout.Numbers("allocated"),
		},
	}
	for _, it := range d.Iterations {
		s.Rows = append(s.Rows, layout.Row(
			it.Name(), plain.FormatDuration(it.End-it.Start),
			plain.FormatSize(it.PeakT), plain.FormatKnown(it.PeakC), plain.FormatSize(it.PeakR),
			plain.FormatSize(it.EndT), plain.FormatCount(it.Allocs), plain.FormatSize(it.AllocBytes)))
	}
	s.Elide(iterationsHead, iterationsTail)
	s.Listed = true
	if !several {
		return []layout.Section{s}
	}
	return []layout.Section{s, paperSection(d)}
}

// paperSection is the BFC paper's comparison of the first iteration with the later ones.
func paperSection(d *analysis.DeviceResult) layout.Section {
	p := d.Paper
	s := layout.Section{Title: "First iteration and later ones"}
	if !p.Valid {
		s.Before = layout.Toned(layout.Faint, layout.Note("no shares: no memory was reserved"))
		return s
	}
	s.Before = layout.Note("peaks as shares of " + paperWhole(d))
	s.Columns = []layout.Column{layout.Words("iterations"), layout.Numbers("requested (T)"), layout.Numbers("provided (C)"), layout.Numbers("internal (C − T)")}
	s.Rows = [][]layout.Cell{
		layout.Row("first", "T1 "+plain.FormatPercent(p.T1), "C1 "+plain.FormatPercent(p.C1), plain.FormatPercent(p.C1-p.T1)),
		layout.Row("mean of "+plain.Counted(d.IterationCount()-1, "later iteration"), "T2 "+plain.FormatPercent(p.T2), "C2 "+plain.FormatPercent(p.C2), plain.FormatPercent(p.C2-p.T2)),
	}
	if p.Of > d.Final.R {
		s.Rows = append(s.Rows,
			layout.Row("first, of its own peak R", plain.FormatPercent(p.OwnT1), plain.FormatPercent(p.OwnC1), plain.FormatPercent(p.OwnC1-p.OwnT1)),
			layout.Row("later, each of its own peak R", plain.FormatPercent(p.OwnT2), plain.FormatPercent(p.OwnC2), plain.FormatPercent(p.OwnC2-p.OwnT2)))
	}
	s.After = layout.Note(fmt.Sprintf("first-iteration excess C1/C2 − 1 = %s · idle in later ones 1 − C2 = %s (lower is better)",
		plain.FormatPercent(p.FirstExcess), plain.FormatPercent(p.SteadyIdle)))
	return s
}

// paperWhole names the bytes that the shares of the paper's table are of: the final R, or the greatest R
// if R shrank.
func paperWhole(d *analysis.DeviceResult) string {
	if d.Paper.Of > d.Final.R {
		return fmt.Sprintf("the most bytes ever reserved, %s (%s at the end)", plain.FormatSize(d.Paper.Of), plain.FormatSize(d.Final.R))
	}
	return "the bytes reserved at the end, " + plain.FormatSize(d.Paper.Of)
}

type jsonIteration struct {
	Number        int64  `json:"number"`
	StartSeq      int64  `json:"start_seq"`
	EndSeq        int64  `json:"end_seq"`
	StartNS       int64  `json:"start_ns"`
	EndNS         int64  `json:"end_ns"`
	PeakRequested int64  `json:"peak_requested"`
	PeakProvided  *int64 `json:"peak_provided"`
	PeakReserved  int64  `json:"peak_reserved"`
	EndRequested  int64  `json:"end_requested"`
	EndProvided   *int64 `json:"end_provided"`
	EndPaused     int64  `json:"end_paused,omitempty"` // requested by allocations of paused tags
	Allocs        int64  `json:"allocs"`
	AllocBytes    int64  `json:"alloc_bytes"`
	More          int64  `json:"more,omitempty"` // further iterations that this row stands for
}

// jsonPaper holds the peaks of the first iteration (1) and the means of the later ones (2), as shares of
// "reserved", which is the final R, or the greatest R if R shrank. own_... are shares of each iteration's
// own peak R.
type jsonPaper struct {
	Reserved    int64    `json:"reserved"`
	T1          *float64 `json:"t1"`
	C1          *float64 `json:"c1"`
	T2          *float64 `json:"t2"`
	C2          *float64 `json:"c2"`
	FirstExcess *float64 `json:"first_excess"`
	SteadyIdle  *float64 `json:"steady_idle"`
	OwnT1       *float64 `json:"own_t1"`
	OwnC1       *float64 `json:"own_c1"`
	OwnT2       *float64 `json:"own_t2"`
	OwnC2       *float64 `json:"own_c2"`
}

// jsonIterations are the iterations, and the comparison of the first with the later ones.
type jsonIterations struct {
	Iterations []jsonIteration `json:"iterations"`
	Paper      *jsonPaper      `json:"paper"`
}

func newJSONIterations(d *analysis.DeviceResult) jsonIterations {
	j := jsonIterations{Iterations: []jsonIteration{}}
	for _, it := range d.Iterations {
		j.Iterations = append(j.Iterations, jsonIteration{
			Number: it.Number, StartSeq: it.StartSeq, EndSeq: it.EndSeq, StartNS: it.Start, EndNS: it.End,
			PeakRequested: it.PeakT, PeakProvided: plain.Known(it.PeakC), PeakReserved: it.PeakR,
			EndRequested: it.EndT, EndProvided: plain.Known(it.EndC), EndPaused: it.EndPaused, Allocs: it.Allocs, AllocBytes: it.AllocBytes,
			More: it.More,
		})
	}
	if p := d.Paper; p.Valid {
		j.Paper = &jsonPaper{
			p.Of, plain.Finite(p.T1), plain.Finite(p.C1), plain.Finite(p.T2), plain.Finite(p.C2), plain.Finite(p.FirstExcess), plain.Finite(p.SteadyIdle),
			plain.Finite(p.OwnT1), plain.Finite(p.OwnC1), plain.Finite(p.OwnT2), plain.Finite(p.OwnC2),
		}
	}
	return j
}

// iterationFigures have two panels: figure 3 of the BFC paper (the first iteration and later ones, as
// shares of R), and the peaks of every iteration.
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
	f.Subtitle = plain.Counted(d.IterationCount(), "iteration") + "; " + paperLine(d)
	f.Legend = []figure.LegendEntry{
		figure.Swatch(figure.RequestedColor, "requested (T)"),
		figure.Swatch(figure.InternalColor, "provided (C): chunks of live allocations"),
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

// paperLine gives the results of the paper's comparison.
func paperLine(d *analysis.DeviceResult) string {
	if !d.Paper.Valid {
		return "two iterations are needed to compare the first with later ones"
	}
	return fmt.Sprintf("first-iteration excess C1/C2 − 1 = %s, idle in later ones 1 − C2 = %s",
		plain.FormatPercent(d.Paper.FirstExcess), plain.FormatPercent(d.Paper.SteadyIdle))
}

// panelTitle writes the heading of a panel and returns the room below it.
func panelTitle(c draw.Canvas, title string) draw.Canvas {
	c.FillText(figure.Aligned(figure.BoldLetters, draw.XLeft, draw.YTop), vg.Point{X: c.Min.X, Y: c.Max.Y - 6}, title)
	return draw.Crop(c, 0, 0, 0, -28)
}

// drawPaper draws T1, C1, T2, C2 as bars.
func drawPaper(c draw.Canvas, d *analysis.DeviceResult) {
	if !d.Paper.Valid {
		c = panelTitle(c, "shares of reserved memory")
		figure.Message("needs two iterations and", "reserved memory")(c)
		return
	}
	which := "reserved at the end"
	if d.Paper.Of > d.Final.R {
		which = "most ever reserved"
	}
	c = panelTitle(c, "shares of "+plain.FormatSize(d.Paper.Of)+", "+which)
	values := []float64{d.Paper.T1, d.Paper.C1, d.Paper.T2, d.Paper.C2}
	p := figure.NewAxes()
	p.X.Min, p.X.Max = 0, 5.5
	p.X.LineStyle.Width, p.X.Tick.LineStyle.Width = 0, 0
	p.X.Tick.Marker = plot.ConstantTicks{
		{Value: 1, Label: "T1"}, {Value: 2, Label: "C1"}, {Value: 3.5, Label: "T2"}, {Value: 4.5, Label: "C2"},
	}
	p.X.Label.Text = fmt.Sprintf("T1, C1: first iteration    T2, C2: mean of %s", plain.Counted(d.IterationCount()-1, "later iteration"))
	p.Y.Min, p.Y.Max = 0, 1.1
	p.Y.Tick.Marker = figure.NiceTicks(0, p.Y.Max, 7, 0.01, func(v float64, decimals int) string { return figure.Fixed(v, decimals) + "%" })
	p.Add(figure.Grid{}, bars{p.X.Tick.Marker.(plot.ConstantTicks), values})
	p.Draw(c)
}

// bars draws a bar at each tick with its value, and the line of 100 %.
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
		// The label is inside the bar if that is tall enough: above it, the line of 100 % could cross it.
		label, at := figure.Aligned(figure.BoldLetters, draw.XCenter, draw.YTop), vg.Point{X: x(center), Y: y(v) - 5}
		label.Color = []color.Color{color.White, figure.InkColor}[i%2]
		if y(v)-c.Min.Y < 24 {
			label, at.Y = figure.Aligned(figure.BoldLetters, draw.XCenter, draw.YBottom), y(v)+3
		}
		c.FillText(label, at, plain.FormatPercent(v))
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

// iterationTicks labels the first iteration, and every n-th after it, by number.
func iterationTicks(iterations []iterations.Iteration) plot.ConstantTicks {
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
type iterationPeaks struct{ iterations []iterations.Iteration }

// barsDrawn is the most iterations that are drawn as bars. More of them become an area of at most
// areaSteps steps, each as tall as the tallest of its iterations.
const barsDrawn, areaSteps = 100, 400

func (b iterationPeaks) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	n := len(b.iterations)
	group := 1 + (n-1)/areaSteps
	var requested, provided, reserved []vg.Point
	for i := 0; i < n; i += group {
		end := min(i+group, n)
		var t, cc, r int64 // a C that is not known is -1 and draws nothing
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
