package figure

import (
	"image/color"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/memprof/memprof/analysis/attribution"
)

// CategoryColors are the colours of categories: those of the page in light.
var CategoryColors = map[attribution.Category]color.NRGBA{
	attribution.Weights:       {0x43, 0x7e, 0xb2, 0xff},
	attribution.Gradients:     {0x83, 0xba, 0xd8, 0xff},
	attribution.Optimizer:     {0x8f, 0x7a, 0xd7, 0xff},
	attribution.Activations:   {0x00, 0xa1, 0x79, 0xff},
	attribution.Inputs:        {0xb0, 0xa2, 0x52, 0xff},
	attribution.KVCache:       {0x1d, 0x52, 0x83, 0xff},
	attribution.CUDAGraphs:    {0x46, 0xc2, 0xb6, 0xff},
	attribution.Temporaries:   {0x67, 0x61, 0x6b, 0xff},
	attribution.Workspace:     {0xc1, 0xd5, 0xe7, 0xff},
	attribution.Copies:        {0x6d, 0x78, 0x97, 0xff},
	attribution.Loss:          {0x1d, 0x52, 0x83, 0xff},
	attribution.Communication: {0x46, 0xc2, 0xb6, 0xff},
	attribution.Other:         {0xc1, 0xd5, 0xe7, 0xff},
	attribution.NoCategory:    {0x6d, 0x78, 0x97, 0xff},
}

// Stacked draws requested bytes by category, one on the other. A moment holds until the next.
type Stacked struct {
	Points     []attribution.CategoryPoint
	Categories []attribution.Category // the lowest first
}

// Plot implements plot.Plotter.
func (s Stacked) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	points := widestIn(s.Points, x)
	base := make([]int64, len(points))
	for _, category := range s.Categories {
		var upper, lower []vg.Point
		for i := range points {
			from, to := x(float64(points[i].Time)), c.Max.X
			if i+1 < len(points) {
				to = x(float64(points[i+1].Time))
			}
			lower = AppendStep(lower, from, to, y(float64(base[i])))
			base[i] += points[i].Bytes[category]
			upper = AppendStep(upper, from, to, y(float64(base[i])))
		}
		slices.Reverse(lower)
		c.FillPolygon(CategoryColors[category], append(upper, lower...))
	}
}

// widestIn leaves of the moments that fall into one pixel that of most requested bytes.
func widestIn(points []attribution.CategoryPoint, x func(float64) vg.Length) []attribution.CategoryPoint {
	var out []attribution.CategoryPoint
	for _, p := range points {
		n := len(out)
		if n > 0 && int(x(float64(p.Time))/Pixel) == int(x(float64(out[n-1].Time))/Pixel) {
			if p.Bytes.Sum() > out[n-1].Bytes.Sum() {
				out[n-1] = p
			}
			continue
		}
		out = append(out, p)
	}
	return out
}
