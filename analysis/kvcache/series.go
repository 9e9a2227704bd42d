package kvcache

// Point is the state after a step, one of those kept.
type Point struct {
	Step, Time int64
	Running    int64
	Waiting    int64 // preempted, and the head of the queue if it waits
	Shares     Shares
}

// mostPoints is the most points of a series.
const mostPoints = 2048

// Series keeps the course of a simulation in a bounded number of points. Time is divided into
// spans of equal numbers of counts; of each the count with the most tokens and the one with the
// most running requests are kept, so the peaks of both are in the series however long it gets.
type Series struct {
	spans []span
	limit int // of spans, even, at least 2
	width int // counts of a full span: a power of two
	fill  int // counts in the last span, 1..width; 0 without any
}

// span is what is kept of some counts in a row.
type span struct{ tokens, running Point }

func NewSeries() Series { return Series{limit: mostPoints / 2, width: 1} }

func (s *Series) Add(p Point) {
	if len(s.spans) > 0 && s.fill < s.width {
		last := &s.spans[len(s.spans)-1]
		*last = last.join(span{p, p})
		s.fill++
		return
	}
	if len(s.spans) == s.limit {
		s.halve()
	}
	s.spans = append(s.spans, span{p, p})
	s.fill = 1
}

// halve joins every two spans, all of which are full.
func (s *Series) halve() {
	for i := range s.limit / 2 {
		s.spans[i] = s.spans[2*i].join(s.spans[2*i+1])
	}
	s.spans = s.spans[:s.limit/2]
	s.width *= 2
}

// join is the span of both, a before b. Of equals the earlier stays.
func (a span) join(b span) span {
	if b.tokens.Shares.Token > a.tokens.Shares.Token {
		a.tokens = b.tokens
	}
	if b.running.Running > a.running.Running {
		a.running = b.running
	}
	return a
}

// Points are those kept, in the order of their steps, each once.
func (s *Series) Points() []Point {
	var points []Point
	for _, span := range s.spans {
		a, b := span.tokens, span.running
		if a.Step > b.Step {
			a, b = b, a
		}
		points = append(points, a)
		if b.Step != a.Step {
			points = append(points, b)
		}
	}
	return points
}

// Revise changes the shares of the points that are of a time or later. Those are the last, but
// where clocks of threads differ.
func (s *Series) Revise(since int64, change func(*Shares)) {
	for i := len(s.spans) - 1; i >= 0; i-- {
		p := &s.spans[i]
		if p.tokens.Time < since && p.running.Time < since {
			return
		}
		for _, point := range []*Point{&p.tokens, &p.running} {
			if point.Time >= since {
				change(&point.Shares)
			}
		}
	}
}
