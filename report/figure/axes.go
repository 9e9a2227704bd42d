package figure

import (
	"math"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg/draw"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/plain"
)

// NewAxes is an empty plot in the figures' style.
func NewAxes() *plot.Plot {
	p := plot.New()
	p.BackgroundColor = nil
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.LineStyle = draw.LineStyle{Color: FaintInkColor, Width: 0.75}
		axis.Tick.LineStyle = axis.LineStyle
		axis.Tick.Length = 4
		axis.Tick.Label.Font = LabelLetters.Font
		axis.Tick.Label.Color = InkColor
		axis.Label.TextStyle.Font = LabelLetters.Font
		axis.Label.TextStyle.Color = InkColor
		axis.Label.Padding = 5
		axis.Padding = 0
	}
	return p
}

// NiceTicks returns at most n+1 labelled ticks in [low, high], at multiples of 1, 2 or 5 times a power of
// ten. Scale is the length of one unit of the labels in units of the axis.
func NiceTicks(low, high float64, n int, scale float64, label func(float64, int) string) plot.ConstantTicks {
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
	// 1e-9 allows for rounding, so that a tick at the end is not lost. The number of a tick is added, not counted up to:
	// far from zero, 1 more may be the same number.
	first := math.Ceil(low/scale/step-1e-9) + 0
	for i := range n + 1 {
		value := (first + float64(i)) * step
		if value > high/scale+step*1e-9 {
			break
		}
		ticks = append(ticks, plot.Tick{Value: value * scale, Label: label(value, decimals)})
	}
	return ticks
}

// Fixed formats a tick. Adding 0 turns a negative zero into a positive one.
func Fixed(value float64, decimals int) string {
	return strconv.FormatFloat(value+0, 'f', decimals, 64)
}

// TimeAxis sets an x axis to [start, end] nanoseconds. It begins at 0 if start is less than a tenth of the
// length, and is at least a millisecond long.
func TimeAxis(a *plot.Axis, start, end int64) {
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
	a.Tick.Marker = NiceTicks(a.Min, a.Max, 10, scale, Fixed)
	a.Label.Text = "time since the start of the run (" + unit + ")"
}

// Grid draws a faint line at each labelled tick of the y axis.
type Grid struct{}

func (Grid) Plot(c draw.Canvas, p *plot.Plot) {
	_, y := p.Transforms(&c)
	for _, tick := range p.Y.Tick.Marker.Ticks(p.Y.Min, p.Y.Max) {
		if tick.Value > p.Y.Min {
			c.StrokeLine2(draw.LineStyle{Color: gridColor, Width: 0.75}, c.Min.X, y(tick.Value), c.Max.X, y(tick.Value))
		}
	}
}

// TimeAxes are the axes of the figures over time, with room for a label above the curves.
func TimeAxes(d *analysis.DeviceResult) *plot.Plot {
	p := NewAxes()
	points := d.Series.Points
	last := points[len(points)-1]
	TimeAxis(&p.X, points[0].Start, max(last.End, last.Start))
	scale, unit := plain.Unit(d.MaxR)
	p.Y.Min, p.Y.Max = 0, 1.16*float64(max(d.MaxR, 1))
	p.Y.Tick.Marker = NiceTicks(0, p.Y.Max, 7, scale, Fixed)
	p.Y.Label.Text = "memory (" + unit + ")"
	return p
}
