package report

import (
	"image/color"
	"math"
	"sort"
	"strconv"

	xfont "golang.org/x/image/font"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/memprof/memprof/analysis"
)

// The colours of the parts of reserved memory, the same in every figure: Okabe and Ito's palette,
// which readers with the common colour-vision deficiencies tell apart; what is merely unused is
// grey, from dark to nothing.
var (
	requestedColor = color.NRGBA{0x00, 0x72, 0xb2, 0xff} // blue
	internalColor  = color.NRGBA{0xe6, 0x9f, 0x00, 0xff} // orange
	pendingColor   = color.NRGBA{0xcc, 0x79, 0xa7, 0xff} // reddish purple
	holeColor      = color.NRGBA{0xd5, 0x5e, 0x00, 0xff} // vermillion
	reserveColor   = color.NRGBA{0xc3, 0xcc, 0xd6, 0xff} // light grey-blue
	unmappedColor  = color.NRGBA{0xf4, 0xf4, 0xf4, 0xff} // nearly white

	reservedColor = color.NRGBA{0x33, 0x3a, 0x45, 0xff} // the curve of R
	inkColor      = color.NRGBA{0x1f, 0x26, 0x30, 0xff}
	faintInkColor = color.NRGBA{0x5b, 0x66, 0x75, 0xff}
	gridColor     = color.NRGBA{0xe3, 0xe6, 0xea, 0xff}
	markColor     = color.NRGBA{0x00, 0x00, 0x00, 0xff} // the peak instant
	failedColor   = color.NRGBA{0xb0, 0x00, 0x20, 0xff} // out of memory
)

// spanColors are by analysis.SpanKind.
var spanColors = [...]color.NRGBA{
	analysis.SpanLive:      requestedColor,
	analysis.SpanSlack:     internalColor,
	analysis.SpanPending:   pendingColor,
	analysis.SpanHole:      holeColor,
	analysis.SpanUntouched: reserveColor,
	analysis.SpanUnsplit:   holeColor,
	analysis.SpanUnmapped:  unmappedColor,
}

// tint is a colour with an opacity from 0 to 1.
func tint(c color.NRGBA, opacity float64) color.NRGBA {
	c.A = uint8(math.Round(opacity * 255))
	return c
}

// Figures are measured in points; at 96 dots an inch a pixel is 0.75 of them.
const (
	pixel        = vg.Length(0.75)
	figureWidth  = 1200 * pixel
	figureHeight = 700 * pixel
	margin       = 18 * pixel
)

// letters is a text style of the figures' font.
func letters(size vg.Length, bold bool, c color.Color) text.Style {
	f := font.Font{Typeface: "Liberation", Variant: "Sans", Size: size}
	if bold {
		f.Weight = xfont.WeightBold
	}
	return text.Style{Font: f, Color: c, Handler: plot.DefaultTextHandler}
}

var (
	titleLetters    = letters(15, true, inkColor)
	subtitleLetters = letters(11, false, faintInkColor)
	labelLetters    = letters(11, false, inkColor)
	smallLetters    = letters(9.5, false, faintInkColor)
	boldLetters     = letters(11, true, inkColor)
)

// aligned is a style with another alignment.
func aligned(s text.Style, x text.XAlignment, y text.YAlignment) text.Style {
	s.XAlign, s.YAlign = x, y
	return s
}

// fit is as much of a text as has room in a width, with "…" where it was cut.
func fit(sty text.Style, s string, width vg.Length) string {
	if sty.Width(s) <= width {
		return s
	}
	runes := []rune(s)
	keep := sort.Search(len(runes), func(n int) bool { return sty.Width(string(runes[:n+1])+"…") > width })
	return string(runes[:keep]) + "…"
}

// newAxes is an empty plot in the figures' style.
func newAxes() *plot.Plot {
	p := plot.New()
	p.BackgroundColor = nil
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.LineStyle = draw.LineStyle{Color: faintInkColor, Width: 0.75}
		axis.Tick.LineStyle = axis.LineStyle
		axis.Tick.Length = 4
		axis.Tick.Label.Font = labelLetters.Font
		axis.Tick.Label.Color = inkColor
		axis.Label.TextStyle.Font = labelLetters.Font
		axis.Label.TextStyle.Color = inkColor
		axis.Label.Padding = 5
		axis.Padding = 0
	}
	return p
}

// niceTicks returns at most n+1 labelled ticks in [low, high] at multiples of 1, 2 or 5 times a
// power of ten; scale is what one unit of the labels is in the axis's units.
func niceTicks(low, high float64, n int, scale float64, label func(float64, int) string) plot.ConstantTicks {
	span := (high - low) / scale
	if !(span > 0) || math.IsInf(span, 0) {
		return plot.ConstantTicks{{Value: low, Label: label(low/scale, 0)}}
	}
	power := math.Floor(math.Log10(span / float64(n)))
	step := math.Pow(10, power)
	for _, factor := range []float64{1, 2, 5, 10} {
		if span/(factor*step) <= float64(n) {
			step *= factor
			break
		}
	}
	decimals := max(0, -int(math.Floor(math.Log10(step)+1e-9)))
	var ticks plot.ConstantTicks
	// The slack takes up rounding, so that a tick on the end is not lost.
	for k := math.Ceil(low/scale/step-1e-9) + 0; k*step <= high/scale+step*1e-9; k++ {
		ticks = append(ticks, plot.Tick{Value: k * step * scale, Label: label(k*step, decimals)})
	}
	return ticks
}

// fixed formats a tick; adding 0 makes a negative zero positive.
func fixed(value float64, decimals int) string {
	return strconv.FormatFloat(value+0, 'f', decimals, 64)
}

// byteAxis gives the y axis [0, top] bytes, with ticks in the unit that suits greatest.
func byteAxis(a *plot.Axis, greatest int64, top float64) {
	scale, unit := byteUnit(greatest)
	a.Min, a.Max = 0, max(top, 1)
	a.Tick.Marker = niceTicks(0, a.Max, 7, scale, fixed)
	a.Label.Text = "memory (" + unit + ")"
}

// timeAxis gives the x axis [start, end] nanoseconds; it begins at 0 where that costs little room,
// and lasts a millisecond where a single event would not last at all.
func timeAxis(a *plot.Axis, start, end int64) {
	if end <= start {
		end = start + 1_000_000
	}
	if start < (end-start)/10 {
		start = 0
	}
	scale, unit := 1.0, "ns"
	switch span := end - start; {
	case span >= 600e9:
		scale, unit = 60e9, "min"
	case span >= 1e9:
		scale, unit = 1e9, "s"
	case span >= 1e6:
		scale, unit = 1e6, "ms"
	case span >= 1e3:
		scale, unit = 1e3, "µs"
	}
	a.Min, a.Max = float64(start), float64(end)
	a.Tick.Marker = niceTicks(a.Min, a.Max, 10, scale, fixed)
	a.Label.Text = "time since the start of the run (" + unit + ")"
}

// grid draws a faint line at each labelled tick of the y axis.
type grid struct{}

func (grid) Plot(c draw.Canvas, p *plot.Plot) {
	_, y := p.Transforms(&c)
	for _, tick := range p.Y.Tick.Marker.Ticks(p.Y.Min, p.Y.Max) {
		if tick.Value > p.Y.Min {
			c.StrokeLine2(draw.LineStyle{Color: gridColor, Width: 0.75}, c.Min.X, y(tick.Value), c.Max.X, y(tick.Value))
		}
	}
}

// fillRect fills a rectangle given by its corners.
func fillRect(c draw.Canvas, clr color.Color, x0, y0, x1, y1 vg.Length) {
	c.FillPolygon(clr, []vg.Point{{X: x0, Y: y0}, {X: x1, Y: y0}, {X: x1, Y: y1}, {X: x0, Y: y1}})
}

// strokeRect outlines it.
func strokeRect(c draw.Canvas, sty draw.LineStyle, x0, y0, x1, y1 vg.Length) {
	c.StrokeLines(sty, []vg.Point{{X: x0, Y: y0}, {X: x1, Y: y0}, {X: x1, Y: y1}, {X: x0, Y: y1}, {X: x0, Y: y0}})
}

// fillBelow fills the area between a path, from left to right, and the bottom of the canvas.
func fillBelow(c draw.Canvas, clr color.Color, path []vg.Point) {
	area := append([]vg.Point{{X: path[0].X, Y: c.Min.Y}}, path...)
	c.FillPolygon(clr, append(area, vg.Point{X: path[len(path)-1].X, Y: c.Min.Y}))
}
