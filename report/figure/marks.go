package figure

import (
	"fmt"
	"image/color"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/iterations"
	"github.com/memprof/memprof/analysis/plain"
)

// PeakMark marks the peak: a line at its time, a dot at Height, a label above the curves.
type PeakMark struct {
	D      *analysis.DeviceResult
	Height float64 // bytes
}

// Plot implements plot.Plotter.
func (m PeakMark) Plot(c draw.Canvas, p *plot.Plot) {
	peak := m.D.Peak
	if peak.R == 0 || peak.Time < 0 {
		return
	}
	x, y := p.Transforms(&c)
	px, py := x(float64(peak.Time)), y(m.Height)
	label := fmt.Sprintf("peak: %s requested of %s reserved", plain.FormatSize(peak.T), plain.FormatSize(peak.R))
	if number, ok := m.D.IterationNumber(peak.Iteration); ok {
		label += fmt.Sprintf(", iteration %d", number)
	}
	base := y(float64(m.D.MaxR)) + 7
	c.StrokeLine2(draw.LineStyle{Color: MarkColor, Width: 1.25}, px, py, px, base)
	c.DrawGlyphNoClip(draw.GlyphStyle{Color: color.White, Radius: 5, Shape: draw.CircleGlyph{}}, vg.Point{X: px, Y: py})
	c.DrawGlyphNoClip(draw.GlyphStyle{Color: MarkColor, Radius: 3.5, Shape: draw.CircleGlyph{}}, vg.Point{X: px, Y: py})
	width := BoldLetters.Width(label)
	left := min(max(px-width/2, c.Min.X+6), c.Max.X-width-6)
	FillRect(c, Tint(color.NRGBA{0xff, 0xff, 0xff, 0xff}, 0.9), left-4, base, left+width+4, base+17)
	c.FillText(Aligned(BoldLetters, draw.XLeft, draw.YBottom), vg.Point{X: left, Y: base + 2}, label)
}

// PeakLegend is the legend entry of [PeakMark].
func PeakLegend() LegendEntry {
	return LegendEntry{"peak", func(c draw.Canvas) {
		c.DrawGlyphNoClip(draw.GlyphStyle{Color: MarkColor, Radius: 3.5, Shape: draw.CircleGlyph{}}, c.Center())
	}}
}

// FailureMarks draws a cross at the reserved bytes of each request that failed.
type FailureMarks struct{ D *analysis.DeviceResult }

// Plot implements plot.Plotter.
func (m FailureMarks) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	for _, o := range m.D.OOMs {
		px, py := x(float64(o.Time)), y(float64(o.At.R))
		drawCross(c, px, py)
	}
}

func drawCross(c draw.Canvas, x, y vg.Length) {
	sty := draw.LineStyle{Color: failedColor, Width: 2.25}
	c.StrokeLine2(sty, x-4.5, y-4.5, x+4.5, y+4.5)
	c.StrokeLine2(sty, x-4.5, y+4.5, x+4.5, y-4.5)
}

// TimeMarks draws a dashed line at the end of each iteration and the iterations' numbers above the plot.
type TimeMarks struct {
	iterations []iterations.Iteration
	step       int // iterations from one line to the next
	label      int // iterations from one number to the next
	failures   bool
}

// boundariesDrawn lines and numbersDrawn numbers of iterations fit side by side into a figure.
const boundariesDrawn, numbersDrawn = 60, 30

// NewTimeMarks returns the marks of a device's iterations.
func NewTimeMarks(d *analysis.DeviceResult) TimeMarks {
	n := len(d.Iterations)
	return TimeMarks{d.Iterations, IterationStep(n, boundariesDrawn), IterationStep(n, numbersDrawn), len(d.OOMs) > 0}
}

// IterationStep is the least step of 1, 5, 10, 20, 50, 100, 200, … that divides n iterations into at
// most most parts.
func IterationStep(n, most int) int {
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

// Legend returns the entries of the marks that are drawn.
func (m TimeMarks) Legend() []LegendEntry {
	var entries []LegendEntry
	if len(m.iterations) > 0 {
		label := "end of an iteration"
		if m.step > 1 {
			label = fmt.Sprintf("end of an iteration (one line in %d)", m.step)
		}
		entries = append(entries, Stroke(boundaryLine(), label))
	}
	if m.failures {
		entries = append(entries, LegendEntry{"out of memory", func(c draw.Canvas) { drawCross(c, c.Center().X, c.Center().Y) }})
	}
	return entries
}

func boundaryLine() draw.LineStyle {
	return draw.LineStyle{Color: Tint(InkColor, 0.4), Width: 0.75, Dashes: []vg.Length{3, 3}}
}

// Plot implements plot.Plotter.
func (m TimeMarks) Plot(c draw.Canvas, p *plot.Plot) {
	x, _ := p.Transforms(&c)
	sty := Aligned(SmallLetters, draw.XCenter, draw.YBottom)
	free := c.Min.X // right end of the last number
	if len(m.iterations) > 0 {
		const heading = "iteration"
		c.FillText(Aligned(SmallLetters, draw.XRight, draw.YBottom), vg.Point{X: c.Min.X - 4, Y: c.Max.Y + 3}, heading)
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
