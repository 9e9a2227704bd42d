package kv

import (
	"fmt"
	"image/color"
	"io"
	"path/filepath"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/memprof/memprof/analysis/kvcache"
	"github.com/memprof/memprof/analysis/kvcache/recorded"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/report/figure"
)

// slotUse is one use of slots; the uses add up to the capacity.
type slotUse struct {
	name string
	clr  color.NRGBA
	now  func(kvcache.Shares) int64
	mean func(kvcache.Shares64) float64
}

// slotUses are all uses, from the bottom of a figure to its top. A figure has those that occur.
var slotUses = []slotUse{
	{"token", figure.RequestedColor, func(s kvcache.Shares) int64 { return s.Token }, func(m kvcache.Shares64) float64 { return m.Token }},
	{"reserve", figure.PendingColor, func(s kvcache.Shares) int64 { return s.Reserve }, func(m kvcache.Shares64) float64 { return m.Reserve }},
	{"internal", figure.InternalColor, func(s kvcache.Shares) int64 { return s.Internal }, func(m kvcache.Shares64) float64 { return m.Internal }},
	{"external: rounding", roundingColor, func(s kvcache.Shares) int64 { return s.Rounding }, func(m kvcache.Shares64) float64 { return m.Rounding }},
	{"external: fragmented", figure.ExternalColor, func(s kvcache.Shares) int64 { return s.Fragmented }, func(m kvcache.Shares64) float64 { return m.Fragmented }},
	{"null block", figure.FaintInkColor, func(s kvcache.Shares) int64 { return s.Null }, func(m kvcache.Shares64) float64 { return m.Null }},
	{"cached", cachedColor, func(s kvcache.Shares) int64 { return s.Cached }, func(m kvcache.Shares64) float64 { return m.Cached }},
	{"idle", figure.ReserveColor, func(s kvcache.Shares) int64 { return s.Idle }, func(m kvcache.Shares64) float64 { return m.Idle }},
}

var (
	roundingColor = color.NRGBA{0xf0, 0xe4, 0x42, 0xff} // yellow
	cachedColor   = color.NRGBA{0x56, 0xb4, 0xe9, 0xff} // sky blue
)

// WritePlots draws the policies side by side, the course of each, and the block map of those
// that have one, or of several rates the latency over them, as PNG and SVG into a directory, which must exist, and returns the paths in the
// order they were written: DIR/kv-policies.png, DIR/kv-max_2048.png and so on. Existing files are
// replaced. After an error the paths are those of the files that are complete.
func WritePlots(dir string, k *Simulation) ([]string, error) {
	var paths []string
	for _, f := range figures(k) {
		for _, format := range []struct {
			suffix string
			write  func(io.Writer) error
		}{{"png", f.PNG}, {"svg", f.SVG}} {
			path := filepath.Join(dir, fmt.Sprintf("kv-%s.%s", figure.FileName(f.Name), format.suffix))
			if err := figure.WriteFile(path, format.write); err != nil {
				return paths, err
			}
			paths = append(paths, path)
		}
	}
	return paths, nil
}

func figures(k *Simulation) []figure.Figure {
	if k.sweeps() {
		return []figure.Figure{latencyFigure(k)}
	}
	figures := []figure.Figure{barsFigure(k)}
	for _, r := range k.Results {
		figures = append(figures, courseFigure(k, r))
		if r.Map != nil {
			figures = append(figures, blockMapFigure(k, r))
		}
	}
	return figures
}

// usesIn returns the uses that occur in any of the items.
func usesIn[Item any](items []Item, occurs func(slotUse, Item) bool) []slotUse {
	var uses []slotUse
	for _, u := range slotUses {
		if slices.ContainsFunc(items, func(item Item) bool { return occurs(u, item) }) {
			uses = append(uses, u)
		}
	}
	return uses
}

// barsFigure is figure 2 of the vLLM paper: a bar for each policy.
func barsFigure(k *Simulation) figure.Figure {
	f := figure.Figure{Name: "policies", Title: titleOf(k), Subtitle: lineOf(k) + " · mean over " + k.meansOver()}
	if len(k.Results) == 0 {
		f.Body = figure.Message("nothing to draw: no policy was simulated")
		return f
	}
	uses := usesIn(k.Results, func(u slotUse, r *kvcache.Result) bool { return u.mean(r.Mean) > 0 })
	f.Legend = slotsLegend(uses)
	f.Body = func(c draw.Canvas) {
		p := figure.NewAxes()
		p.X.Min, p.X.Max = -0.5, float64(len(k.Results))-0.5
		p.X.Tick.Length = 0
		var names plot.ConstantTicks
		for i, r := range k.Results {
			names = append(names, plot.Tick{Value: float64(i), Label: fmt.Sprintf("%s\nbatch %.2f", nameOf(r), r.Batch)})
		}
		p.X.Tick.Marker = names
		p.Y.Min, p.Y.Max = 0, 100
		p.Y.Tick.Marker = figure.NiceTicks(0, 100, 10, 1, figure.Fixed)
		p.Y.Label.Text = "share of the slots (%)"
		p.Add(figure.Grid{}, bars{k.Results, uses})
		figure.DrawTimePlot(c, p)
	}
	return f
}

func slotsLegend(uses []slotUse) []figure.LegendEntry {
	var entries []figure.LegendEntry
	for _, u := range uses {
		entries = append(entries, figure.Swatch(u.clr, u.name))
	}
	return entries
}

// bars draws the mean shares, and writes those that have room.
type bars struct {
	results []*kvcache.Result
	uses    []slotUse
}

func (b bars) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	for i, r := range b.results {
		left, right := x(float64(i)-0.35), x(float64(i)+0.35)
		var sum float64
		for _, u := range b.uses {
			share := 100 * u.mean(r.Mean)
			low, high := y(sum), y(sum+share)
			sum += share
			if share <= 0 {
				continue
			}
			figure.FillRect(c, u.clr, left, low, right, high)
			label := plain.FormatPercent(share / 100)
			if high-low > 14 && figure.BoldLetters.Width(label) < right-left {
				sty := figure.Aligned(figure.BoldLetters, draw.XCenter, draw.YCenter)
				if u.clr == figure.RequestedColor || u.clr == figure.ExternalColor || u.clr == figure.FaintInkColor {
					sty.Color = color.White
				}
				c.FillText(sty, vg.Point{X: (left + right) / 2, Y: (low + high) / 2}, label)
			}
		}
		figure.StrokeRect(c, draw.LineStyle{Color: figure.InkColor, Width: 0.75}, left, y(0), right, y(100))
	}
}

// courseFigure stacks the uses of the slots over time, under one policy.
func courseFigure(k *Simulation, r *kvcache.Result) figure.Figure {
	f := figure.Figure{Name: nameOf(r), Title: nameOf(r) + " · " + titleOf(k)}
	if len(r.Series) == 0 {
		f.Body = figure.Message("nothing to draw: no request was served")
		return f
	}
	f.Subtitle = fmt.Sprintf("mean share of slots with a token %s, of %s · mean batch %.2f, peak %d · %s",
		plain.FormatPercent(r.Mean.Token), plain.Counted(r.Capacity, "slot"), r.Batch, r.Peak, plain.Counted(r.Preemptions, "preemption"))
	uses := usesIn(r.Series, func(u slotUse, p kvcache.Point) bool { return u.now(p.Shares) > 0 })
	f.Legend = slotsLegend(uses)
	if r.Held != nil {
		f.Legend = append(f.Legend, figure.Stroke(heldStyle, "held"))
	}
	f.Body = func(c draw.Canvas) {
		p := figure.NewAxes()
		last := r.Series[len(r.Series)-1]
		if last.Time > 0 {
			if r.Policy == recorded.Policy {
				begin := r.Series[0].Time
				if k.duration > 0 {
					begin = 0
				}
				figure.TimeAxis(&p.X, begin, max(k.duration, last.Time))
			} else {
				figure.TimeAxis(&p.X, 0, last.Time)
				p.X.Label.Text = "simulated " + p.X.Label.Text
			}
		} else {
			p.X.Min, p.X.Max = 0, float64(max(last.Step, 1))
			p.X.Tick.Marker = figure.NiceTicks(0, p.X.Max, 10, 1, figure.Fixed)
			p.X.Label.Text = "step"
		}
		p.Y.Min, p.Y.Max = 0, float64(r.Capacity)
		p.Y.Tick.Marker = figure.NiceTicks(0, p.Y.Max, 7, 1, figure.Fixed)
		p.Y.Label.Text = "slots"
		p.Add(figure.Grid{}, course{r.Series, uses, last.Time > 0})
		if r.Held != nil {
			p.Add(heldCourse{r.Series, last.Time > 0})
		}
		figure.DrawTimePlot(c, p)
	}
	return f
}

// course draws the shares of each point up to the next point.
type course struct {
	points []kvcache.Point
	uses   []slotUse
	timed  bool // by time, else by step
}

// Plot draws each sum down to zero, the greatest first: overlapping areas leave no seam.
func (k course) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	at := func(i int) vg.Length {
		switch {
		case i == len(k.points):
			return c.Max.X
		case k.timed:
			return x(float64(k.points[i].Time))
		}
		return x(float64(k.points[i].Step))
	}
	for n := len(k.uses); n > 0; n-- {
		edge := make([]vg.Point, 0, 2*len(k.points))
		for i, point := range k.points {
			var slots int64
			for _, u := range k.uses[:n] {
				slots += u.now(point.Shares)
			}
			edge = figure.AppendStep(edge, at(i), max(at(i), at(i+1)), y(float64(slots)))
		}
		figure.FillBelow(c, k.uses[n-1].clr, edge)
	}
}

// heldStyle is the line of the memory held, above the floor of the tokens.
var heldStyle = draw.LineStyle{Color: figure.InkColor, Width: 1.5}

// heldCourse draws what is held from each point up to the next.
type heldCourse struct {
	points []kvcache.Point
	timed  bool // by time, else by step
}

func (h heldCourse) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	var line []vg.Point
	for i, point := range h.points {
		at := x(float64(point.Step))
		if h.timed {
			at = x(float64(point.Time))
		}
		if i > 0 {
			line = append(line, vg.Point{X: at, Y: line[len(line)-1].Y})
		}
		line = append(line, vg.Point{X: at, Y: y(float64(point.Held))})
	}
	if len(line) > 0 {
		line = append(line, vg.Point{X: c.Max.X, Y: line[len(line)-1].Y})
	}
	for _, part := range c.ClipLinesXY(line) {
		c.StrokeLines(heldStyle, part)
	}
}
