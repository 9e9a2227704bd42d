package reporttest

import (
	"image/color"
	"math"
)

// visions turn linear light into what readers see: all colours, or without one of the three kinds of cones. The matrices
// are those of Machado, Oliveira and Fernandes (2009) for the whole deficiency.
var visions = map[string][3][3]float64{
	"all":          {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}},
	"protanopia":   {{0.152286, 1.052583, -0.204868}, {0.114503, 0.786281, 0.099216}, {-0.003882, -0.048116, 1.051998}},
	"deuteranopia": {{0.367322, 0.860646, -0.227968}, {0.280085, 0.672501, 0.047413}, {-0.011820, 0.042940, 0.968881}},
	"tritanopia":   {{1.255528, -0.076749, -0.178779}, {-0.078411, 0.930809, 0.147602}, {0.004733, 0.691367, 0.303900}},
}

// ColorDistance is how far apart two colours are for the readers who tell them apart least, and who these are: the
// distance in CIELAB, of which about 2 can be seen between areas that touch.
func ColorDistance(a, b color.NRGBA) (distance float64, vision string) {
	distance = math.Inf(1)
	for name, of := range visions {
		x, y := labOf(a, of), labOf(b, of)
		if d := math.Sqrt(square(x[0]-y[0]) + square(x[1]-y[1]) + square(x[2]-y[2])); d < distance {
			distance, vision = d, name
		}
	}
	return distance, vision
}

func square(x float64) float64 { return x * x }

// labOf is the place of a colour in CIELAB, under daylight (D65), as it is seen.
func labOf(c color.NRGBA, vision [3][3]float64) [3]float64 {
	linear := func(v uint8) float64 {
		s := float64(v) / 255
		if s <= 0.04045 {
			return s / 12.92
		}
		return math.Pow((s+0.055)/1.055, 2.4)
	}
	light := [3]float64{linear(c.R), linear(c.G), linear(c.B)}
	times := func(row [3]float64, v [3]float64) float64 { return row[0]*v[0] + row[1]*v[1] + row[2]*v[2] }
	var seen [3]float64
	for i, row := range vision {
		seen[i] = min(1, max(0, times(row, light)))
	}
	root := func(t float64) float64 {
		if t > 0.008856 {
			return math.Cbrt(t)
		}
		return 7.787*t + 16.0/116
	}
	x := root(times([3]float64{0.4124564, 0.3575761, 0.1804375}, seen) / 0.95047)
	y := root(times([3]float64{0.2126729, 0.7151522, 0.0721750}, seen))
	z := root(times([3]float64{0.0193339, 0.1191920, 0.9503041}, seen) / 1.08883)
	return [3]float64{116*y - 16, 500 * (x - y), 200 * (y - z)}
}
