package fit

import (
	"errors"
	"math"
)

// Line is what a number of bytes is at each size of a job: Fixed + PerUnit x size.
type Line struct {
	Fixed, PerUnit float64
	sizes, bytes   []float64
}

// ErrSizes is the error of recordings that do not show how a number grows.
var ErrSizes = errors.New("scaling needs recordings at two different sizes or more")

// NewLine is the line of least squares through the bytes at the sizes.
func NewLine(sizes []float64, bytes []int64) (*Line, error) {
	l := &Line{sizes: sizes}
	for _, b := range bytes {
		l.bytes = append(l.bytes, float64(b))
	}
	x, y := mean(sizes), mean(l.bytes)
	var xx, xy float64
	for i := range sizes {
		xx += (sizes[i] - x) * (sizes[i] - x)
		xy += (sizes[i] - x) * (l.bytes[i] - y)
	}
	if len(sizes) < 2 || xx == 0 {
		return nil, ErrSizes
	}
	l.PerUnit = xy / xx
	l.Fixed = y - l.PerUnit*x
	return l, nil
}

func mean(values []float64) (m float64) {
	for _, v := range values {
		m += v / float64(len(values))
	}
	return m
}

// At returns the bytes at a size.
func (l *Line) At(size float64) int64 { return int64(math.Round(l.Fixed + l.PerUnit*size)) }

// Error returns the standard error of At, in bytes; ok is false with two recordings, through which each line passes.
func (l *Line) Error(size float64) (bytes int64, ok bool) {
	n := float64(len(l.sizes))
	if n < 3 {
		return 0, false
	}
	x := mean(l.sizes)
	var squares, xx float64
	for i := range l.sizes {
		off := l.bytes[i] - l.Fixed - l.PerUnit*l.sizes[i]
		squares += off * off
		xx += (l.sizes[i] - x) * (l.sizes[i] - x)
	}
	variance := squares / (n - 2)
	return int64(math.Round(math.Sqrt(variance * (1 + 1/n + (size-x)*(size-x)/xx)))), true
}

// nearest is the number of the recording whose size is nearest.
func (l *Line) nearest(size float64) (best int) {
	for i := range l.sizes {
		if math.Abs(l.sizes[i]-size) < math.Abs(l.sizes[best]-size) {
			best = i
		}
	}
	return best
}

// Scaled is a line with its value at a size.
type Scaled struct {
	Name           string  // of a category; "" for the whole
	Bytes          []int64 // as recorded, by recording
	Fixed, PerUnit float64
	Predicted      int64 // bytes
	// Error is the standard error. With two recordings it is how far the prediction is from one of the nearest
	// recording alone, with what grows in proportion; -1 if that is not known either.
	Error int64
	// Least and Greatest bound Predicted, in bytes; both 0 if the bounds are not known.
	Least, Greatest int64
}

// runs is the difference of the least cards of two recordings of one job, as a share of them.
const runs = 0.005

// Predict is a prediction by replay.
func Predict(n *Need) Scaled {
	apart := int64(runs * float64(n.Bytes))
	s := Scaled{Predicted: n.Bytes, Least: n.Bytes - apart, Greatest: n.Bytes + apart}
	s.Possible(n)
	return s
}

// Possible says that the prediction may also be that of another replay.
func (s *Scaled) Possible(n *Need) {
	s.Least, s.Greatest = min(s.Least, n.Lowest), max(s.Greatest, n.Highest)
	s.Error = max(s.Predicted-s.Least, s.Greatest-s.Predicted)
}

// Widen turns the extremes of n predictions, two or more, into bounds for all that could be drawn. For a uniform distribution
// the bounds are beyond the extremes by a share 1/(n-1) of their distance on each side, in the mean.
func (s *Scaled) Widen(predictions int) {
	more := (s.Greatest - s.Least) / int64(predictions-1)
	s.Least, s.Greatest, s.Error = max(0, s.Least-more), s.Greatest+more, s.Error+more
}

// Scale predicts bytes at a size. growing is the part of bytes, by recording, that is thought to grow in proportion to
// the size: it decides the error of a prediction from two recordings; nil if not known.
func Scale(name string, sizes []float64, bytes, growing []int64, size float64) (Scaled, error) {
	l, err := NewLine(sizes, bytes)
	if err != nil {
		return Scaled{}, err
	}
	s := Scaled{Name: name, Bytes: bytes, Fixed: l.Fixed, PerUnit: l.PerUnit, Predicted: max(0, l.At(size)), Error: -1}
	if off, ok := l.Error(size); ok {
		s.Error = off
	} else if growing != nil {
		near := l.nearest(size)
		alone := float64(bytes[near]) + (size/sizes[near]-1)*float64(growing[near])
		s.Error = int64(math.Abs(alone - float64(s.Predicted)))
	}
	if s.Error >= 0 {
		s.Least, s.Greatest = max(0, s.Predicted-s.Error), s.Predicted+s.Error
	}
	return s, nil
}
