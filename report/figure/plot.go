package figure

import (
	"math"

	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Plot is two axes and what is drawn between them. It has the part of gonum's plot.Plot that figures need: that package carries
// twelve fonts, of which they use two.
type Plot struct {
	X, Y     Axis
	plotters []Plotter
}

// Plotter draws data into the rectangle between the axes of a plot.
type Plotter interface {
	Plot(c draw.Canvas, p *Plot)
}

// Axis is one axis: from Min to Max, with a line, ticks and a label.
type Axis struct {
	Min, Max   float64
	Label      string // "" for none
	Ticks      []Tick
	Letters    text.Style     // of the ticks' labels
	Line       draw.LineStyle // of the axis and of the ticks
	TickLength vg.Length      // 0 draws labels only
}

// Tick is a labelled place on an axis.
type Tick struct {
	Value float64
	Label string
}

// labelPadding is between the label of an axis and the labels of its ticks.
const labelPadding = vg.Length(5)

var axisLetters = Aligned(LabelLetters, draw.XCenter, draw.YBottom)

// NewAxes is an empty plot in the figures' style.
func NewAxes() *Plot {
	axis := Axis{Line: draw.LineStyle{Color: FaintInkColor, Width: 0.75}, TickLength: 4}
	p := &Plot{X: axis, Y: axis}
	p.X.Letters = Aligned(LabelLetters, draw.XCenter, draw.YTop)
	p.Y.Letters = Aligned(LabelLetters, draw.XRight, draw.YCenter)
	return p
}

// Add adds plotters, which draw in their order.
func (p *Plot) Add(plotters ...Plotter) { p.plotters = append(p.plotters, plotters...) }

// Transforms returns the places on a canvas that values on the axes have.
func (p *Plot) Transforms(c *draw.Canvas) (x, y func(float64) vg.Length) {
	return func(v float64) vg.Length { return c.X(p.X.norm(v)) }, func(v float64) vg.Length { return c.Y(p.Y.norm(v)) }
}

// Draw draws the axes at the left and at the bottom of a canvas, and the data in the rest.
func (p *Plot) Draw(c draw.Canvas) {
	between := p.DataCanvas(c)
	left, bottom := p.Y.width(), p.X.height()
	p.X.drawBelow(p.X.spareRight(draw.Crop(c, left, 0, 0, 0)))
	p.Y.drawBeside(p.Y.spareTop(draw.Crop(c, 0, 0, bottom, 0)))
	for _, plotter := range p.plotters {
		plotter.Plot(between, p)
	}
}

// DataCanvas is the part of a canvas that is between the axes.
func (p *Plot) DataCanvas(c draw.Canvas) draw.Canvas {
	p.X.widen()
	p.Y.widen()
	return p.Y.spareTop(p.X.spareRight(draw.Crop(c, p.Y.width(), 0, p.X.height(), 0)))
}

// widen makes an axis of one value one around it.
func (a *Axis) widen() {
	if a.Min == a.Max {
		a.Min--
		a.Max++
	}
}

// norm is where a value lies on the axis: 0 at Min, 1 at Max.
func (a *Axis) norm(v float64) float64 { return (v - a.Min) / (a.Max - a.Min) }

func (a *Axis) drawsTicks() bool { return len(a.Ticks) > 0 && a.Line.Width > 0 && a.TickLength > 0 }

// labelSize is the size of the largest label of a tick.
func (a *Axis) labelSize() (size vg.Point) {
	for _, t := range a.Ticks {
		of := a.Letters.Rectangle(t.Label).Size()
		size.X, size.Y = max(size.X, of.X), max(size.Y, of.Y)
	}
	return size
}

// height is what a horizontal axis takes of a canvas.
func (a *Axis) height() vg.Length {
	h := a.labelSize().Y + a.Line.Width/2
	if a.Label != "" {
		h += axisLetters.Height(a.Label) + labelPadding
	}
	if a.drawsTicks() {
		h += a.TickLength
	}
	return h
}

// width is what a vertical axis takes of a canvas.
func (a *Axis) width() vg.Length {
	w := a.Line.Width / 2
	if a.Label != "" {
		w += axisLetters.FontExtents().Descent + axisLetters.Height(a.Label) + labelPadding
	}
	if labels := a.labelSize().X; labels > 0 {
		w += labels + axisLetters.Width(" ")
	}
	if a.drawsTicks() {
		w += a.TickLength
	}
	return w
}

// spareRight takes from a canvas what the label that reaches farthest beyond it needs.
func (a *Axis) spareRight(c draw.Canvas) draw.Canvas {
	farthest, right := c.Max.X, c.Max.X
	for _, t := range a.Ticks {
		at, of := a.norm(t.Value), a.Letters.Rectangle(t.Label)
		if reach := c.X(at) + of.Max.X; at <= 1 && of.Size().X > 0 && reach > farthest {
			farthest, right = reach, c.Min.X+(c.Max.X-of.Max.X-c.Min.X)/vg.Length(at)
		}
	}
	c.Max.X = right
	return c
}

// spareTop does so for the labels of a vertical axis.
func (a *Axis) spareTop(c draw.Canvas) draw.Canvas {
	extents := a.Letters.FontExtents()
	farthest, top := c.Max.Y, c.Max.Y
	for _, t := range a.Ticks {
		at, of := a.norm(t.Value), a.Letters.Rectangle(t.Label)
		above := of.Max.Y + extents.Height - extents.Ascent
		if reach := c.Y(at) + above; at <= 1 && of.Size().Y > 0 && reach > farthest {
			farthest, top = reach, c.Min.Y+(c.Max.Y-above-c.Min.Y)/vg.Length(at)
		}
	}
	c.Max.Y = top
	return c
}

// drawBelow draws a horizontal axis at the bottom of a canvas.
func (a *Axis) drawBelow(c draw.Canvas) {
	y := c.Min.Y
	if a.Label != "" {
		c.FillText(axisLetters, vg.Point{X: c.Center().X, Y: y + axisLetters.FontExtents().Descent}, a.Label)
		y += axisLetters.Height(a.Label) + labelPadding
	}
	labels, descent := a.labelSize().Y, a.Letters.FontExtents().Descent
	for _, t := range a.Ticks {
		if x := c.X(a.norm(t.Value)); c.ContainsX(x) {
			c.FillText(a.Letters, vg.Point{X: x, Y: y + labels + descent}, t.Label)
		}
	}
	if y += labels; len(a.Ticks) == 0 {
		y += a.Line.Width / 2
	}
	if a.drawsTicks() {
		for _, t := range a.Ticks {
			if x := c.X(a.norm(t.Value)); c.ContainsX(x) {
				c.StrokeLine2(a.Line, x, y, x, y+a.TickLength)
			}
		}
		y += a.TickLength
	}
	c.StrokeLine2(a.Line, c.Min.X, y, c.Max.X, y)
}

// drawBeside draws a vertical axis at the left of a canvas.
func (a *Axis) drawBeside(c draw.Canvas) {
	x := c.Min.X
	if a.Label != "" {
		upward := axisLetters
		upward.Rotation += math.Pi / 2
		x += axisLetters.Height(a.Label)
		descent := axisLetters.FontExtents().Descent
		c.FillText(upward, vg.Point{X: x - descent, Y: c.Center().Y}, a.Label)
		x += descent + labelPadding
	}
	x += a.labelSize().X
	descent, any := a.Letters.FontExtents().Descent, false
	for _, t := range a.Ticks {
		if y := c.Y(a.norm(t.Value)); c.ContainsY(y) {
			c.FillText(a.Letters, vg.Point{X: x, Y: y + descent}, t.Label)
			any = true
		}
	}
	if any {
		x += a.Letters.Width(" ")
	}
	if a.drawsTicks() {
		for _, t := range a.Ticks {
			if y := c.Y(a.norm(t.Value)); c.ContainsY(y) {
				c.StrokeLine2(a.Line, x, y, x+a.TickLength, y)
			}
		}
		x += a.TickLength
	}
	c.StrokeLine2(a.Line, x, c.Min.Y, x, c.Max.Y)
}
