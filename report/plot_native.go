package report

import (
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/memprof/memprof/analysis"
)

// sampledProvided draws C where a watched allocator's sums were read: a dot at the greatest of
// each point that has any. Between them nothing is known of it.
type sampledProvided struct{ points []analysis.Point }

func (s sampledProvided) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	for _, point := range s.points {
		if point.C.Max >= 0 {
			c.DrawGlyph(sampledDot(), vg.Point{X: x(float64(point.End)), Y: y(float64(point.C.Max))})
		}
	}
}

func sampledDot() draw.GlyphStyle {
	return draw.GlyphStyle{Color: internalColor, Radius: 2, Shape: draw.CircleGlyph{}}
}

func sampledLegend() legendEntry {
	return legendEntry{"provided (C), where it was read", func(c draw.Canvas) { c.DrawGlyphNoClip(sampledDot(), c.Center()) }}
}
