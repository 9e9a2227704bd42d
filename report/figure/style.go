package figure

import (
	"image/color"
	"math"
	"sort"

	xfont "golang.org/x/image/font"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// The colours of terms of reserved memory, equal in every figure and on the page, near Okabe and Ito's palette:
// readers with each of the three kinds of colour blindness can tell them apart, as a test simulates.
var (
	RequestedColor = color.NRGBA{0x43, 0x7e, 0xb2, 0xff} // blue
	InternalColor  = color.NRGBA{0xe6, 0x9e, 0x0c, 0xff} // orange

	ReservedColor = color.NRGBA{0x33, 0x3a, 0x45, 0xff} // the curve of R
	InkColor      = color.NRGBA{0x1f, 0x26, 0x30, 0xff}
	FaintInkColor = color.NRGBA{0x5b, 0x66, 0x75, 0xff}
	gridColor     = color.NRGBA{0xe3, 0xe6, 0xea, 0xff}
	MarkColor     = color.NRGBA{0x00, 0x00, 0x00, 0xff} // the peak
	failedColor   = color.NRGBA{0xb0, 0x00, 0x20, 0xff} // out of memory
)

// Tint is a colour with an opacity from 0 to 1.
func Tint(c color.NRGBA, opacity float64) color.NRGBA {
	c.A = uint8(math.Round(opacity * 255))
	return c
}

// Figures are measured in points; at 96 dots an inch a pixel is 0.75 of them.
const (
	Pixel  = vg.Length(0.75)
	Width  = 1200 * Pixel
	Height = 700 * Pixel
	Margin = 18 * Pixel
)

// letters is a text style in the font of the figures.
func letters(size vg.Length, bold bool, c color.Color) text.Style {
	f := font.Font{Typeface: "Liberation", Variant: "Sans", Size: size}
	if bold {
		f.Weight = xfont.WeightBold
	}
	return text.Style{Font: f, Color: c, Handler: plot.DefaultTextHandler}
}

var (
	titleLetters    = letters(15, true, InkColor)
	subtitleLetters = letters(11, false, FaintInkColor)
	LabelLetters    = letters(11, false, InkColor)
	SmallLetters    = letters(9.5, false, FaintInkColor)
	BoldLetters     = letters(11, true, InkColor)
)

// Aligned is a style with another alignment.
func Aligned(s text.Style, x text.XAlignment, y text.YAlignment) text.Style {
	s.XAlign, s.YAlign = x, y
	return s
}

// Fit shortens a text to a width, with "…" at its end.
func Fit(sty text.Style, s string, width vg.Length) string {
	if sty.Width(s) <= width {
		return s
	}
	runes := []rune(s)
	keep := sort.Search(len(runes), func(n int) bool { return sty.Width(string(runes[:n+1])+"…") > width })
	return string(runes[:keep]) + "…"
}

// FillRect fills a rectangle given by its corners.
func FillRect(c draw.Canvas, clr color.Color, x0, y0, x1, y1 vg.Length) {
	c.FillPolygon(clr, []vg.Point{{X: x0, Y: y0}, {X: x1, Y: y0}, {X: x1, Y: y1}, {X: x0, Y: y1}})
}
