// Package figure draws the plots of reports, as PNG and as SVG: their style, axes and legends, curves of
// memory over time, and marks on them. What a plot shows is decided by the report's subjects.
package figure

import (
	"bytes"
	"fmt"
	"image/color"
	"io"
	"path/filepath"
	"strings"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/trace/outfile"
)

// Figure is one plot of one device, ready to be drawn.
type Figure struct {
	Name   string // ends its file's name: "timeline"
	Device int32

	Title    string            // one line, bold
	Subtitle string            // one line below it: the most important numbers
	Legend   []LegendEntry     // below the subtitle
	Body     func(draw.Canvas) // draws the rest in the remaining rectangle
	Footer   string            // one faint line at the bottom: where the data comes from; "" for none
}

// LegendEntry names something that the figure draws and shows how it looks.
type LegendEntry struct {
	Label  string
	Sample func(c draw.Canvas) // fills the rectangle of c
}

// Write draws the figure into DIR/NAME.png and DIR/NAME.svg and returns the paths that are complete.
func (f Figure) Write(dir, name string) ([]string, error) {
	var paths []string
	for _, format := range []struct {
		suffix string
		write  func(io.Writer) error
	}{{"png", f.PNG}, {"svg", f.SVG}} {
		path := filepath.Join(dir, name+"."+format.suffix)
		if err := WriteFile(path, format.write); err != nil {
			return paths, err
		}
		paths = append(paths, path)
	}
	return paths, nil
}

// WriteFile writes a plot whole or not at all, and never through a link.
func WriteFile(path string, write func(io.Writer) error) error {
	var own error // of write; errors of outfile.Write name the path themselves
	err := outfile.Write(path, outfile.Private, func(w io.Writer) error {
		own = write(w)
		return own
	})
	switch {
	case own != nil:
		return fmt.Errorf("cannot write plot %s: %w", path, err)
	case err != nil:
		return fmt.Errorf("cannot write plot: %w", err)
	}
	return nil
}

// FileName makes a name from a recording safe as the start of a file name: letters, digits, "-", "_"
// and "." stay, and any other character becomes "_".
func FileName(prefix string) string {
	name := strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '-', r == '_', r == '.':
			return r
		}
		return '_'
	}, plain.Shorten(prefix, 80))
	name = strings.TrimLeft(name, ".-")
	if name == "" {
		return "process"
	}
	return name
}

// PNG draws the figure as an image of 1200 × 700 pixels.
func (f Figure) PNG(w io.Writer) error {
	c := vgimg.NewWith(vgimg.UseWH(Width, Height), vgimg.UseDPI(96), vgimg.UseBackgroundColor(color.White))
	f.draw(draw.New(c))
	_, err := vgimg.PngCanvas{Canvas: c}.WriteTo(w)
	return err
}

// SVG draws the figure as a vector image of the same size. Text stays text.
func (f Figure) SVG(w io.Writer) error {
	c := vgsvg.New(Width, Height)
	f.draw(draw.New(c))
	var out bytes.Buffer
	if _, err := c.WriteTo(&out); err != nil {
		return err
	}
	// The text was measured in Liberation Sans, which not every machine has; the others are as wide.
	svg := bytes.ReplaceAll(out.Bytes(), []byte("font-family:Liberation Sans;"), []byte("font-family:'Liberation Sans',Arial,Helvetica,sans-serif;"))
	_, err := w.Write(svg)
	return err
}

// draw puts title, subtitle and legend above the body, and the footer below it.
func (f Figure) draw(c draw.Canvas) {
	FillRect(c, color.White, c.Min.X, c.Min.Y, c.Max.X, c.Max.Y)
	c = draw.Crop(c, Margin, -Margin, Margin, -Margin)
	y := c.Max.Y
	c.FillText(Aligned(titleLetters, draw.XLeft, draw.YTop), vg.Point{X: c.Min.X, Y: y}, Fit(titleLetters, f.Title, c.Max.X-c.Min.X))
	y -= 22
	c.FillText(Aligned(subtitleLetters, draw.XLeft, draw.YTop), vg.Point{X: c.Min.X, Y: y}, Fit(subtitleLetters, f.Subtitle, c.Max.X-c.Min.X))
	y -= 22
	y = drawLegend(c, f.Legend, y)
	body := c
	body.Max.Y = y - 4
	if f.Footer != "" {
		c.FillText(Aligned(SmallLetters, draw.XLeft, draw.YBottom), c.Min, Fit(SmallLetters, f.Footer, c.Max.X-c.Min.X))
		body.Min.Y += 16
	}
	f.Body(body)
}

// drawLegend lays the entries out in lines from the height y down and returns the height below them.
// The legend stands above the body, so it never covers data.
func drawLegend(c draw.Canvas, entries []LegendEntry, y vg.Length) vg.Length {
	const sampleWidth, sampleHeight, gap, line = 18, 9, 16, 17
	if len(entries) == 0 {
		return y
	}
	x := c.Min.X
	for _, e := range entries {
		width := sampleWidth + 5 + LabelLetters.Width(e.Label)
		if x > c.Min.X && x+width > c.Max.X {
			x, y = c.Min.X, y-line
		}
		box := draw.Canvas{Canvas: c.Canvas, Rectangle: vg.Rectangle{
			Min: vg.Point{X: x, Y: y - sampleHeight - 2}, Max: vg.Point{X: x + sampleWidth, Y: y - 2},
		}}
		e.Sample(box)
		c.FillText(Aligned(LabelLetters, draw.XLeft, draw.YTop), vg.Point{X: x + sampleWidth + 5, Y: y}, e.Label)
		x += width + gap
	}
	return y - line
}

// Swatch is the legend entry of an area.
func Swatch(clr color.Color, label string) LegendEntry {
	return LegendEntry{label, func(c draw.Canvas) {
		area := []vg.Point{c.Min, {X: c.Max.X, Y: c.Min.Y}, c.Max, {X: c.Min.X, Y: c.Max.Y}}
		c.FillPolygon(clr, area)
		c.StrokeLines(draw.LineStyle{Color: Tint(InkColor, 0.35), Width: 0.5}, append(area, c.Min))
	}}
}

// Stroke is the legend entry of a line.
func Stroke(sty draw.LineStyle, label string) LegendEntry {
	return LegendEntry{label, func(c draw.Canvas) {
		middle := c.Center().Y
		c.StrokeLine2(sty, c.Min.X, middle, c.Max.X, middle)
	}}
}

// Message is the body of a figure without data: a line of text in its middle.
func Message(line string) func(draw.Canvas) {
	return func(c draw.Canvas) {
		c.FillText(Aligned(LabelLetters, draw.XCenter, draw.YTop), vg.Point{X: c.Center().X, Y: c.Center().Y + 9}, line)
	}
}
