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

// closedUp is a layout with short gaps. The segments of a watched allocator lie where the driver
// puts them, hundreds of GiB apart: drawn to scale there would be nothing to see but gaps.
// A gap takes at most a 64th of what is mapped in its arena, and all of them a quarter.
func closedUp(m analysis.AddressMap) analysis.AddressMap {
	arenas := make([]analysis.ArenaMap, len(m.Arenas))
	for i, a := range m.Arenas {
		gaps := int64(0)
		for _, s := range a.Spans {
			if s.Kind == analysis.SpanUnmapped {
				gaps++
			}
		}
		longest := mappedBytes(a) / max(64, 4*gaps)
		at := int64(0)
		spans := make([]analysis.Span, len(a.Spans))
		for k, s := range a.Spans {
			s.Start = at
			if s.Kind == analysis.SpanUnmapped {
				s.Bytes = min(s.Bytes, longest)
			}
			at += s.Bytes
			spans[k] = s
		}
		a.Spans, a.Extent = spans, at
		arenas[i] = a
	}
	m.Arenas = arenas
	return m
}
