package report

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

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/trace/outfile"
)

// Figure is one plot of one device, or of a study, ready to be drawn.
type Figure struct {
	Name   string // "timeline", "iterations", "split", "map" or "sleep"; of a study "figure2" or "figure3"
	Device int32

	title    string // of one line, drawn bold at the top
	subtitle string // the numbers to remember, below it
	legend   []legendEntry
	body     func(draw.Canvas) // draws the rest in the room that is left
}

// legendEntry is a sample of how something is drawn, and its name.
type legendEntry struct {
	label  string
	sample func(c draw.Canvas) // draws in the rectangle of c
}

// Plots returns the figures of each device of a result, in order. A device on which nothing
// happened has the same figures, each saying what is missing.
func Plots(r *analysis.Result) []Figure {
	var figures []Figure
	for i := range r.Devices {
		d := &r.Devices[i]
		drawn := []Figure{timelineFigure(d), iterationsFigure(d), splitFigure(d), mapFigure(r, d)}
		if d.Sleep != nil {
			drawn = append(drawn, sleepFigure(d))
		}
		drawn = append(drawn, recordedKVFigures(d)...)
		for _, f := range drawn {
			f.Device = d.Device
			f.title = deviceTitle(r, d) + " · " + f.title
			figures = append(figures, f)
		}
	}
	return figures
}

// WritePlots draws the figures of a result as PNG and SVG into a directory, which must exist, and
// returns the paths in the order they were written: DIR/PREFIX-gpu0-timeline.png and so on. With
// an empty prefix the name of the process takes its place. Existing files and links are replaced; no
// link is followed. After an error the paths are those of the files that are complete.
func WritePlots(dir, prefix string, r *analysis.Result) ([]string, error) {
	if prefix == "" {
		prefix = r.Process
	}
	var paths []string
	for _, f := range Plots(r) {
		written, err := f.write(dir, fmt.Sprintf("%s-gpu%d-%s", fileName(prefix), f.Device, f.Name))
		paths = append(paths, written...)
		if err != nil {
			return paths, err
		}
	}
	return paths, nil
}

// write draws the figure as DIR/NAME.png and DIR/NAME.svg.
func (f Figure) write(dir, name string) ([]string, error) {
	var paths []string
	for _, format := range []struct {
		suffix string
		write  func(io.Writer) error
	}{{"png", f.PNG}, {"svg", f.SVG}} {
		path := filepath.Join(dir, name+"."+format.suffix)
		if err := writeFile(path, format.write); err != nil {
			return paths, err
		}
		paths = append(paths, path)
	}
	return paths, nil
}

// writeFile writes a plot whole or not at all, and never through a link.
func writeFile(path string, write func(io.Writer) error) error {
	var own error // the others name the path
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

// fileName makes a name from a trace safe as the start of a file name.
func fileName(prefix string) string {
	name := strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '-', r == '_', r == '.':
			return r
		}
		return '_'
	}, shorten(prefix, 80))
	name = strings.TrimLeft(name, ".-")
	if name == "" {
		return "process"
	}
	return name
}

// PNG draws the figure as an image of 1200 × 700 pixels.
func (f Figure) PNG(w io.Writer) error {
	c := vgimg.NewWith(vgimg.UseWH(figureWidth, figureHeight), vgimg.UseDPI(96), vgimg.UseBackgroundColor(color.White))
	f.draw(draw.New(c))
	_, err := vgimg.PngCanvas{Canvas: c}.WriteTo(w)
	return err
}

// SVG draws the figure as a vector image of the same size. Text stays text.
func (f Figure) SVG(w io.Writer) error {
	c := vgsvg.New(figureWidth, figureHeight)
	f.draw(draw.New(c))
	var out bytes.Buffer
	if _, err := c.WriteTo(&out); err != nil {
		return err
	}
	// The font the text was measured with is not everywhere; these have the same widths.
	svg := bytes.ReplaceAll(out.Bytes(), []byte("font-family:Liberation Sans;"), []byte("font-family:'Liberation Sans',Arial,Helvetica,sans-serif;"))
	_, err := w.Write(svg)
	return err
}

// draw puts title, subtitle and legend above the body.
func (f Figure) draw(c draw.Canvas) {
	fillRect(c, color.White, c.Min.X, c.Min.Y, c.Max.X, c.Max.Y)
	c = draw.Crop(c, margin, -margin, margin, -margin)
	y := c.Max.Y
	c.FillText(aligned(titleLetters, draw.XLeft, draw.YTop), vg.Point{X: c.Min.X, Y: y}, fit(titleLetters, f.title, c.Max.X-c.Min.X))
	y -= 22
	c.FillText(aligned(subtitleLetters, draw.XLeft, draw.YTop), vg.Point{X: c.Min.X, Y: y}, fit(subtitleLetters, f.subtitle, c.Max.X-c.Min.X))
	y -= 22
	y = drawLegend(c, f.legend, y)
	body := c
	body.Max.Y = y - 4
	f.body(body)
}

// drawLegend lays the entries out in lines from the height y down and returns the height below
// them. It has its own room: a legend never covers data.
func drawLegend(c draw.Canvas, entries []legendEntry, y vg.Length) vg.Length {
	const sampleWidth, sampleHeight, gap, line = 18, 9, 16, 17
	if len(entries) == 0 {
		return y
	}
	x := c.Min.X
	for _, e := range entries {
		width := sampleWidth + 5 + labelLetters.Width(e.label)
		if x > c.Min.X && x+width > c.Max.X {
			x, y = c.Min.X, y-line
		}
		box := draw.Canvas{Canvas: c.Canvas, Rectangle: vg.Rectangle{
			Min: vg.Point{X: x, Y: y - sampleHeight - 2}, Max: vg.Point{X: x + sampleWidth, Y: y - 2},
		}}
		e.sample(box)
		c.FillText(aligned(labelLetters, draw.XLeft, draw.YTop), vg.Point{X: x + sampleWidth + 5, Y: y}, e.label)
		x += width + gap
	}
	return y - line
}

// swatch is a filled sample.
func swatch(clr color.Color, label string) legendEntry {
	return legendEntry{label, func(c draw.Canvas) {
		fillRect(c, clr, c.Min.X, c.Min.Y, c.Max.X, c.Max.Y)
		strokeRect(c, draw.LineStyle{Color: tint(inkColor, 0.35), Width: 0.5}, c.Min.X, c.Min.Y, c.Max.X, c.Max.Y)
	}}
}

// stroke is a line as sample.
func stroke(sty draw.LineStyle, label string) legendEntry {
	return legendEntry{label, func(c draw.Canvas) {
		middle := c.Center().Y
		c.StrokeLine2(sty, c.Min.X, middle, c.Max.X, middle)
	}}
}

// message is the body of a figure that has nothing to draw.
func message(lines ...string) func(draw.Canvas) {
	return func(c draw.Canvas) {
		y := c.Center().Y + vg.Length(len(lines))*9
		for _, line := range lines {
			c.FillText(aligned(labelLetters, draw.XCenter, draw.YTop), vg.Point{X: c.Center().X, Y: y}, line)
			y -= 18
		}
	}
}
