package analysis

// series reduces the course of a device to at most limit points. Each stands for the same
// number of events, a power of two; when there are too many, neighbours are joined and
// each stands for twice as many. Joining keeps extremes, so no peak is lost.
type series struct {
	limit  int
	points []seriesPoint
	per    int // events to a point
	filled int // events in the last point
}

type seriesPoint struct {
	Point
	seq int64 // of the first event
}

func (s *series) add(d *device, seq, time int64) {
	if s.filled == s.per || len(s.points) == 0 {
		s.begin(d, seq, time)
	}
	s.filled++
	p := &s.points[len(s.points)-1]
	p.End = time
	p.T.include(d.t)
	p.C.include(d.c)
	p.R.include(d.r)
	if d.r > p.At.R || d.r == p.At.R && d.t > p.At.T {
		p.At.Seq, p.At.Time, p.At.Iteration = seq, time, d.iteration
		d.split.fill(&p.At)
	}
}

func (s *series) begin(d *device, seq, time int64) {
	if s.per == 0 {
		s.per = 1
	}
	if len(s.points) == s.limit {
		s.halve()
	}
	if s.filled < s.per && len(s.points) > 0 {
		return // halving left room in the last point
	}
	p := Point{Start: time, Iteration: d.iteration, At: d.instant(seq, time)}
	p.T, p.C, p.R = Range{d.t, d.t}, Range{d.c, d.c}, Range{d.r, d.r}
	s.points = append(s.points, seriesPoint{Point: p, seq: seq})
	s.filled = 0
}

func (s *series) halve() {
	n := 0
	for i := 0; i < len(s.points); i += 2 {
		p := s.points[i]
		if i+1 < len(s.points) {
			p.join(&s.points[i+1])
		}
		s.points[n] = p
		n++
	}
	if len(s.points)%2 == 0 {
		s.filled = 2 * s.per
	}
	s.points = s.points[:n]
	s.per *= 2
}

// join adds the point that follows.
func (p *seriesPoint) join(o *seriesPoint) {
	p.End = o.End
	p.T.join(o.T)
	p.C.join(o.C)
	p.R.join(o.R)
	if o.At.R > p.At.R || o.At.R == p.At.R && o.At.T > p.At.T {
		p.At = o.At
	}
}

func (r *Range) include(v int64) {
	r.Min = min(r.Min, v)
	r.Max = max(r.Max, v)
}

func (r *Range) join(o Range) {
	r.Min = min(r.Min, o.Min)
	r.Max = max(r.Max, o.Max)
}
