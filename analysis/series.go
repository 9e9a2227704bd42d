package analysis

import (
	"slices"

	"github.com/memprof/memprof/analysis/ledger"
)

// series reduces the course of a device to at most limit points. Time is cut into buckets of
// one width, a power of two of nanoseconds, at multiples of it; a bucket with events is a
// point, and one without takes no room. When there are too many, the width doubles and the
// points that fall into one bucket are joined. Joining keeps extremes, so no peak is lost.
//
// The width never shrinks and doubles at most 55 times, each time in one pass over the
// points: whatever the times of the events, their number decides the cost.
type series struct {
	limit  int // at least 2
	points []seriesPoint
	shift  uint  // buckets are 1<<shift ns wide; 0 before the first event
	last   int64 // the last moment of the last point's bucket, ns
	// Last of the last point has no terms yet. They are those of the device until an event behind the
	// bucket changes it; so they are taken then, once a point and not once an event.
	open bool
	due  *int64 // at most the least `last` of all series of the process that are open
}

// firstShift makes the first buckets 256 ns wide: few recordings have events that close.
const firstShift = 8

type seriesPoint struct {
	Point
	seq int64 // of the first event
}

// add takes the state after an event. A time may lie before that of the event in front, as
// threads read the clock on their own; such an event counts at the end of the last point.
func (s *series) add(d *ledger.Device, seq, time int64) {
	if len(s.points) == 0 || time > s.last {
		s.next(d, seq, time)
	}
	p := &s.points[len(s.points)-1]
	p.End = max(p.End, time)
	p.T.include(d.T)
	p.C.include(d.Known(d.C))
	p.R.include(d.R)
	p.Last.Seq, p.Last.Time, p.Last.Iteration = seq, time, d.Iteration
	s.open = true
	*s.due = min(*s.due, s.last)
	if d.R > p.At.R || d.R == p.At.R && d.T > p.At.T {
		p.At.Seq, p.At.Time, p.At.Iteration = seq, time, d.Iteration
		d.Fill(&p.At, d.View())
	}
}

// close gives the last point, if it is open, the state after its last event, which is that of the device.
func (s *series) close(d *ledger.Device) {
	if s.open {
		d.Fill(&s.points[len(s.points)-1].Last, d.View())
		s.open = false
	}
}

// next goes on to the bucket of a moment behind the last point; add fills in the rest of a new point,
// At among it: any R is greater.
func (s *series) next(d *ledger.Device, seq, moment int64) {
	if len(s.points) == 0 {
		s.shift = firstShift
	}
	for len(s.points) == s.limit && !s.reaches(moment) {
		s.widen()
	}
	if !s.reaches(moment) {
		p := Point{Start: moment, End: moment, Iteration: d.Iteration, At: ledger.Instant{R: -1}}
		c := d.Known(d.C)
		p.T, p.C, p.R = Range{d.T, d.T}, Range{c, c}, Range{d.R, d.R}
		if len(s.points) == cap(s.points) { // points are large: they are not copied time and again
			s.points = slices.Grow(s.points, min(8*len(s.points)+64, s.limit)-len(s.points))
		}
		s.points = append(s.points, seriesPoint{Point: p, seq: seq})
	}
	s.last = s.points[len(s.points)-1].Start | (1<<s.shift - 1)
}

// finish returns the points, nil if there are none.
func (s *series) finish(d *ledger.Device) []Point {
	s.close(d)
	if len(s.points) == 0 {
		return nil
	}
	points := make([]Point, len(s.points))
	for i := range s.points {
		points[i] = s.points[i].Point
	}
	return points
}

// reaches says whether a moment is in the bucket of the last point.
func (s *series) reaches(moment int64) bool {
	n := len(s.points)
	return n > 0 && s.points[n-1].Start>>s.shift == moment>>s.shift
}

// widen doubles the width. Points that are far apart may all stay as they are.
func (s *series) widen() {
	s.shift++
	n := 0
	for i := 1; i < len(s.points); i++ {
		p, o := &s.points[n], &s.points[i]
		if p.Start>>s.shift == o.Start>>s.shift {
			p.Join(&o.Point)
			continue
		}
		n++
		s.points[n] = *o
	}
	s.points = s.points[:n+1]
}

// Join adds the point that follows.
func (p *Point) Join(o *Point) {
	p.End = max(p.End, o.End)
	p.T.join(o.T)
	p.C.join(o.C)
	p.R.join(o.R)
	if o.At.R > p.At.R || o.At.R == p.At.R && o.At.T > p.At.T {
		p.At = o.At
	}
	p.Last = o.Last
}

func (r *Range) include(v int64) {
	if v < r.Min || v > r.Max {
		r.join(Range{v, v})
	}
}

// join takes the values of another one, if any is known.
func (r *Range) join(o Range) {
	switch {
	case o.Max < 0:
	case r.Max < 0:
		*r = o
	default:
		r.Min, r.Max = min(r.Min, o.Min), max(r.Max, o.Max)
	}
}

// sample gives the last point the C after its last event.
func (s *series) sample(d *ledger.Device, seq, c int64) {
	n := len(s.points)
	if n == 0 || s.points[n-1].Last.Seq != seq {
		return
	}
	s.close(d)
	p := &s.points[n-1]
	p.C.include(c)
	p.Last.C = c
	if p.At.Seq == seq {
		p.At.C = c
	}
}
