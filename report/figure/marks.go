package figure

import (
	"fmt"
	"image/color"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/report/units"
)

// PeakMark marks the peak instant: a line at its time, a dot at a height, a label above the curves.
type PeakMark struct {
	D      *analysis.DeviceResult
	Height float64 // of the dot, in bytes
}

func (m PeakMark) Plot(c draw.Canvas, p *plot.Plot) {
	peak := m.D.Peak
	if peak.R == 0 || peak.Time < 0 {
		return
	}
	x, y := p.Transforms(&c)
	px, py := x(float64(peak.Time)), y(m.Height)
	label := fmt.Sprintf("peak instant: %s requested of %s reserved", units.FormatSize(peak.T), units.FormatSize(peak.R))
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

func PeakLegend() LegendEntry {
	return LegendEntry{"peak instant", func(c draw.Canvas) {
		c.DrawGlyphNoClip(draw.GlyphStyle{Color: MarkColor, Radius: 3.5, Shape: draw.CircleGlyph{}}, c.Center())
	}}
}

// FailureMarks puts a cross on the curve of R where a request failed for good.
type FailureMarks struct{ D *analysis.DeviceResult }

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

// timeMarks are the lines between iterations and their numbers above the plot.
type timeMarks struct {
	iterations []analysis.Iteration
	step       int // every how many boundaries there is a line
	label      int // every how many iterations there is a number
	failures   bool
}

// How many lines between iterations, and how many of their numbers, stay apart in a figure's width.
const boundariesDrawn, numbersDrawn = 60, 30

func NewTimeMarks(d *analysis.DeviceResult) timeMarks {
	n := len(d.Iterations)
	return timeMarks{d.Iterations, IterationStep(n, boundariesDrawn), IterationStep(n, numbersDrawn), len(d.OOMs) > 0}
}

// IterationStep is the least of 1, 5, 10, 20, 50, 100, 200, … with which at most most of n
// iterations are multiples.
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

func (m timeMarks) Legend() []LegendEntry {
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

func (m timeMarks) Plot(c draw.Canvas, p *plot.Plot) {
	x, _ := p.Transforms(&c)
	sty := Aligned(SmallLetters, draw.XCenter, draw.YBottom)
	free := c.Min.X // where the next number may begin
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
