package keyframes

import (
	"math"
	"slices"
)

// History is what the recorders of a process share: the event at hand and, in a second pass, the events of which
// everything is kept.
type History struct {
	Now       int64 // seq of the event at hand
	second    bool
	limit     int // of stretches for keyframes
	recorders []*Recorder
	clock     clock

	spans []Span  // ascending, apart from each other
	base  []int64 // position of the first event of each
	time  []int64 // of each position so far
	open  int     // index of the span of the event at hand, or of the next one
}

// NewHistory is that of a first pass.
func NewHistory() *History { return &History{limit: math.MaxInt} }

// NewSecond is that of a second pass, from the event first on, whose recorders keep all events of some spans and remember
// so many stretches for keyframes.
func NewSecond(spans []Span, first int64, limit int) *History {
	h := &History{second: true, limit: limit, spans: joinSpans(spans)}
	n := int64(0)
	for i := range h.spans {
		s := &h.spans[i]
		s.From = max(s.From, first)
		h.base = append(h.base, n)
		n += max(0, s.To-s.From)
	}
	h.spans = slices.DeleteFunc(h.spans, func(s Span) bool { return s.From >= s.To })
	return h
}

// Event takes the next event of a second pass, before it changes anything. A seq that the recording lacks counts as an
// event that changes nothing.
func (h *History) Event(seq, time int64) {
	for _, r := range h.recorders {
		r.notePaused(h.Now)
	}
	h.Now = seq
	h.clock.add(seq, time)
	for h.open < len(h.spans) && seq >= h.spans[h.open].To {
		h.open++
	}
	if h.open < len(h.spans) && seq >= h.spans[h.open].From {
		for n := h.base[h.open] + seq - h.spans[h.open].From; int64(len(h.time)) <= n; {
			h.time = append(h.time, time)
		}
	}
}

// has says whether an event from the seq `from` on, and before `to`, is in a span.
func (h *History) has(from, to int64) bool {
	for i := len(h.spans) - 1; i >= 0; i-- {
		if s := &h.spans[i]; s.From < to && from < s.To {
			return true
		}
	}
	return false
}

// position is that of the first event of a span whose seq is at least seq.
func (h *History) position(seq int64) int32 {
	for i, s := range h.spans {
		if seq < s.To {
			return int32(h.base[i] + max(0, seq-s.From))
		}
	}
	return int32(len(h.time))
}

// end cuts the spans off after the last event.
func (h *History) end(last int64) {
	for i := range h.spans {
		h.spans[i].To = min(h.spans[i].To, last+1)
	}
	h.spans = slices.DeleteFunc(h.spans, func(s Span) bool { return s.From >= s.To })
}

// joinSpans orders spans and joins those that overlap or touch.
func joinSpans(spans []Span) []Span {
	spans = slices.DeleteFunc(slices.Clone(spans), func(s Span) bool { return s.From >= s.To })
	slices.SortFunc(spans, func(a, b Span) int { return int(max(-1, min(1, a.From-b.From))) })
	out := spans[:0]
	for _, s := range spans {
		if n := len(out); n > 0 && s.From <= out[n-1].To {
			out[n-1].To = max(out[n-1].To, s.To)
			continue
		}
		out = append(out, s)
	}
	return out
}

// clock says when an event was, to within a few events of long recordings: of every so many it keeps one.
type clock struct {
	seq, time []int64
	each      int64
	seen      int64

	first, last int64 // times
}

// clockTicks is the most events that a clock keeps.
const clockTicks = 1 << 16

func (c *clock) add(seq, time int64) {
	if c.each == 0 {
		c.each, c.first = 1, time
	}
	c.last = max(c.last, time)
	if c.seen++; c.seen%c.each != 0 {
		return
	}
	c.seq, c.time = append(c.seq, seq), append(c.time, time)
	if len(c.seq) < clockTicks {
		return
	}
	for i := range clockTicks / 2 {
		c.seq[i], c.time[i] = c.seq[2*i+1], c.time[2*i+1]
	}
	c.seq, c.time = c.seq[:clockTicks/2], c.time[:clockTicks/2]
	c.each *= 2
}

// at is the time of an event; between two ticks it is interpolated.
func (c *clock) at(seq int64) int64 {
	i, found := slices.BinarySearch(c.seq, seq)
	switch {
	case found:
		return c.time[i]
	case len(c.seq) == 0:
		return 0
	case i == 0:
		return c.time[0]
	case i == len(c.seq):
		return c.time[i-1]
	}
	share := float64(seq-c.seq[i-1]) / float64(c.seq[i]-c.seq[i-1])
	return c.time[i-1] + int64(math.Round(share*float64(c.time[i]-c.time[i-1])))
}
