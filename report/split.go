package report

import (
	"fmt"
	"image/color"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/ledger"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/report/figure"
	"github.com/memprof/memprof/report/layout"
	"github.com/memprof/memprof/report/terms"
)

// splitSections say what each byte that was reserved at the peak was used for.
func splitSections(d *analysis.DeviceResult) []layout.Section {
	return layout.ShownAtPins(splitSection(d))
}

func splitSection(d *analysis.DeviceResult) layout.Section {
	s := layout.Section{
		Title:   "Reserved memory at the peak",
		Before:  layout.Note(terms.Instant(d, d.Peak)),
		Columns: []layout.Column{layout.Words("part"), layout.Numbers("bytes"), layout.Numbers("of reserved"), layout.Words("meaning")},
	}
	for _, p := range splitParts(d) {
		bytes := p.bytes(d.Peak)
		line := layout.Row(p.name, plain.FormatSize(bytes), plain.FormatPercent(plain.Ratio(bytes, d.Peak.R)), p.meaning)
		if bytes == 0 {
			layout.Toned(layout.Faint, line)
		} else if p.tone != layout.Plain {
			line[2].Tone = p.tone
		}
		s.Rows = append(s.Rows, line)
	}
	s.Total = layout.Toned(layout.Strong, layout.Row("= reserved", plain.FormatSize(d.Peak.R), plain.FormatPercent(plain.Ratio(d.Peak.R, d.Peak.R)), "physical memory mapped by the arenas"))
	return s
}

// part is one term of R = T + rounding + slack + pending + stranded + reserve + reusable + external.
type part struct {
	name    string // "internal: slack"
	meaning string
	bytes   func(ledger.Instant) int64
	tone    layout.Tone
}

// parts are all terms, in the order of the sum.
var parts = []part{
	{"requested", "bytes that live allocations asked for", func(i ledger.Instant) int64 { return i.T }, layout.Plain},
	{"internal: rounding", "requests rounded up to 256 B", func(i ledger.Instant) int64 { return i.Rounding }, layout.Plain},
	{"internal: slack", "chunks larger than the rounded request", func(i ledger.Instant) int64 { return i.Slack }, layout.Plain},
	{"pending", "freed; another stream may still use it", func(i ledger.Instant) int64 { return i.Pending }, layout.Plain},
	{"stranded", "free, in arenas the request cannot use", func(i ledger.Instant) int64 { return i.Stranded }, layout.Warned},
	{"reserve", "free, not handed out since it was mapped", func(i ledger.Instant) int64 { return i.Reserve }, layout.Plain},
	{"reusable", "free again, in the largest free chunk", func(i ledger.Instant) int64 { return i.Reusable }, layout.Plain},
	{"external", "free again, in chunks smaller than the largest", func(i ledger.Instant) int64 { return i.External }, layout.Warned},
}

// splitParts are the terms whose sum is R at the peak. Of the native allocator fewer are known.
func splitParts(d *analysis.DeviceResult) []part {
	switch {
	case d.Chunks != nil:
		return parts
	case d.Peak.C < 0:
		return []part{parts[0], parts[3], {"not requested", "in chunks beyond the requests, or free: not known", unrequested, layout.Warned}}
	}
	return []part{
		parts[0],
		{"internal", "rounding and slack", ledger.Instant.Internal, layout.Plain},
		parts[3],
		{"free", "in chunks that are not known", ledger.Instant.Free, layout.Warned},
	}
}

// unrequested is what is reserved and neither requested nor pending.
func unrequested(i ledger.Instant) int64 { return i.R - i.T - i.Pending }

// splitFigures stack the terms of reserved memory over time.
func splitFigures(_ *analysis.Result, d *analysis.DeviceResult) []figure.Figure {
	return []figure.Figure{splitFigure(d)}
}

func splitFigure(d *analysis.DeviceResult) figure.Figure {
	f := figure.Figure{Name: "split", Title: "reserved memory over time"}
	if len(d.Series.Points) == 0 || d.MaxR == 0 {
		f.Subtitle = "no memory was mapped on this device"
		f.Body = figure.Message("nothing to draw: no memory was mapped on this device")
		return f
	}
	points := figure.DrawnCourse(d)
	f.Subtitle = splitLine(d)
	stack := stacked{points, layers(d, points)}
	for _, l := range stack.layers {
		f.Legend = append(f.Legend, figure.Swatch(l.clr, l.name))
	}
	f.Legend = append(f.Legend, figure.Stroke(draw.LineStyle{Color: figure.ReservedColor, Width: 2.25}, "reserved"), figure.PeakLegend())
	marks := figure.NewTimeMarks(d)
	f.Legend = append(f.Legend, marks.Legend()...)
	f.Body = func(c draw.Canvas) {
		p := figure.TimeAxes(d)
		p.Add(figure.Grid{}, stack, marks, figure.PeakMark{D: d, Height: float64(d.Peak.R)}, figure.FailureMarks{D: d})
		figure.DrawTimePlot(c, p)
	}
	return f
}

// splitLine gives the terms at the peak as shares of reserved.
func splitLine(d *analysis.DeviceResult) string {
	peak := d.Peak
	if d.Chunks == nil {
		return fmt.Sprintf("at the peak: requested %s, pending %s, not requested %s of %s reserved",
			plain.FormatPercent(plain.Ratio(peak.T, peak.R)), plain.FormatPercent(plain.Ratio(peak.Pending, peak.R)), plain.FormatPercent(plain.Ratio(unrequested(peak), peak.R)), plain.FormatSize(peak.R))
	}
	return fmt.Sprintf("at the peak: requested %s, internal %s, pending %s, external %s, stranded %s, reusable %s, reserve %s of %s reserved",
		plain.FormatPercent(plain.Ratio(peak.T, peak.R)), plain.FormatPercent(plain.Ratio(peak.Internal(), peak.R)), plain.FormatPercent(plain.Ratio(peak.Pending, peak.R)),
		plain.FormatPercent(plain.Ratio(peak.External, peak.R)), plain.FormatPercent(plain.Ratio(peak.Stranded, peak.R)), plain.FormatPercent(plain.Ratio(peak.Reusable, peak.R)),
		plain.FormatPercent(plain.Ratio(peak.Reserve, peak.R)), plain.FormatSize(peak.R))
}

// layer is one area of the stacked figure.
type layer struct {
	name  string
	clr   color.NRGBA
	bytes func(ledger.Instant) int64
}

// layers are the terms of the figure, from the bottom up. Pending and stranded are left out if they are
// 0 all the time; the others are always there, so that figures of several runs look alike.
func layers(d *analysis.DeviceResult, points []analysis.Point) []layer {
	all := []layer{{"requested", figure.RequestedColor, func(i ledger.Instant) int64 { return i.T }}}
	if d.Chunks != nil {
		all = append(all, layer{"internal (rounding and slack)", figure.InternalColor, ledger.Instant.Internal})
	}
	some := func(l layer) {
		for _, p := range points {
			if l.bytes(p.At) > 0 || l.bytes(p.Last) > 0 {
				all = append(all, l)
				return
			}
		}
	}
	some(layer{"pending", figure.PendingColor, func(i ledger.Instant) int64 { return i.Pending }})
	if d.Chunks == nil {
		return append(all, layer{"not requested (in chunks, or free)", figure.ExternalColor, unrequested})
	}
	all = append(all, layer{"external (fragmented)", figure.ExternalColor, func(i ledger.Instant) int64 { return i.External }})
	some(layer{"stranded (in other arenas)", figure.StrandedColor, func(i ledger.Instant) int64 { return i.Stranded }})
	return append(all,
		layer{"reusable (largest free chunk)", figure.ReusableColor, func(i ledger.Instant) int64 { return i.Reusable }},
		layer{"reserve (never handed out)", figure.ReserveColor, func(i ledger.Instant) int64 { return i.Reserve }},
	)
}

// stacked draws the terms of each point at its greatest R (then T), and between points those after its
// last event.
type stacked struct {
	points []analysis.Point
	layers []layer
}

// Plot draws each sum down to zero, the greatest first: overlapping areas leave no seam.
func (s stacked) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	places := figure.Strips(s.points, x, c.Max.X)
	for n := len(s.layers); n > 0; n-- {
		sum := func(i ledger.Instant) vg.Length {
			var bytes int64
			for _, l := range s.layers[:n] {
				bytes += l.bytes(i)
			}
			return y(float64(bytes))
		}
		edge := make([]vg.Point, 0, 4*len(places)+2)
		for _, p := range places {
			edge = figure.AppendStep(edge, p.From, p.To, sum(p.At))
			if p.Next > p.To {
				edge = figure.AppendStep(edge, p.To, p.Next, sum(p.Last))
			}
		}
		figure.FillBelow(c, s.layers[n-1].clr, edge)
		if n == len(s.layers) {
			c.StrokeLines(draw.LineStyle{Color: figure.ReservedColor, Width: 2}, edge)
		}
	}
}
