package keyframes

import (
	"math"
	"slices"
)

// Span is a run of events by seq: From is in it, To is not.
type Span struct{ From, To int64 }

// Exact has a device at every event of some spans. Its positions number the events of all spans, one after the
// other, from 0. Nothing is kept for an event by itself: each stretch says at which positions it was there.
type Exact struct {
	Spans     []Span
	Time      []int64   // of each position; the devices of a process share it
	Stretches []Stretch // From and To are positions; by arena, kind and address
	Paused    []Step    // the bytes that paused tags unmapped, where they change; 0 before the first
}

// Step is a value from a position on.
type Step struct {
	From  int32
	Bytes int64
}

// exactLog follows the events of the spans that a History keeps all of.
type exactLog struct {
	spans []Span  // ascending, apart from each other
	base  []int64 // position of the first event of each
	time  []int64
	open  int // index of the span of the event at hand, or of the next one
	gone  []lifetime
}

// KeepAll has every event of some spans be kept, besides the keyframes. It is called before the first event.
func (h *History) KeepAll(spans []Span) {
	if spans = joinSpans(spans); len(spans) > 0 {
		h.exact = &exactLog{spans: spans, base: make([]int64, len(spans))}
	}
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

// event takes the next event, before it changes anything. A seq that the recording lacks counts as an event that
// changes nothing.
func (x *exactLog) event(seq, time int64) {
	for x.open < len(x.spans) && seq >= x.spans[x.open].To {
		x.pass()
		if x.open < len(x.spans) {
			x.base[x.open] = int64(len(x.time))
		}
	}
	if x.open == len(x.spans) || seq < x.spans[x.open].From {
		return
	}
	if s := &x.spans[x.open]; x.base[x.open] == int64(len(x.time)) {
		s.From = seq // the recording may begin within the span
	}
	for seq-x.spans[x.open].From >= int64(len(x.time))-x.base[x.open] {
		x.time = append(x.time, time)
	}
}

// pass closes a span whose last event came, or whose events the recording lacks.
func (x *exactLog) pass() {
	s := &x.spans[x.open]
	had := int64(len(x.time)) - x.base[x.open]
	if had == 0 {
		s.To = s.From
	}
	for ; had > 0 && had < s.To-s.From; had++ {
		x.time = append(x.time, x.time[len(x.time)-1])
	}
	x.open++
}

// has says whether an event from the seq `from` on, and before `to`, is in a span.
func (x *exactLog) has(from, to int64) bool {
	if x == nil {
		return false
	}
	for i := len(x.spans) - 1; i >= 0; i-- {
		if s := &x.spans[i]; s.From < to && from < s.To {
			return true
		}
	}
	return false
}

// position is that of the first event of a span whose seq is at least seq.
func (x *exactLog) position(seq int64) int32 {
	for i, s := range x.spans {
		if seq < s.To {
			return int32(x.base[i] + max(0, seq-s.From))
		}
	}
	return int32(len(x.time))
}

// end closes the spans after the last event, and drops those that no event came to.
func (x *exactLog) end(last int64) {
	for x.open < len(x.spans) && int64(len(x.time)) > x.base[x.open] {
		x.spans[x.open].To = min(x.spans[x.open].To, last+1)
		x.open++
	}
	x.spans, x.base = x.spans[:x.open], x.base[:x.open]
}

// Event takes the next event, before it changes anything.
func (h *History) Event(seq, time int64) {
	for _, k := range h.devices {
		k.notePaused(h.Now)
	}
	h.Now = seq
	h.clock.add(seq, time)
	if h.exact != nil {
		h.exact.event(seq, time)
	}
}

// pausedSince are the bytes that are paused since the event seq.
type pausedSince struct{ seq, bytes int64 }

// notePaused notes what is paused after the event seq.
func (k *Tracker) notePaused(seq int64) {
	if n := len(k.paused); k.device.Paused != k.pausedNow && k.history.exact != nil {
		k.pausedNow = k.device.Paused
		if n > 0 && k.paused[n-1].seq == seq {
			k.paused[n-1].bytes = k.pausedNow
			return
		}
		k.paused = append(k.paused, pausedSince{seq, k.pausedNow})
	}
}

// exactly is the device at every event of the spans; nil if none were asked for.
func (k *Tracker) exactly(b *builder, end *End) *Exact {
	x := k.history.exact
	if x == nil {
		return nil
	}
	x.end(end.Last.Seq)
	k.notePaused(end.Last.Seq)
	b.after, b.stretches = x.position, nil
	for i := range x.gone {
		if l := &x.gone[i]; l.keys == k {
			b.add(l)
		}
	}
	k.lifetimesNow(end.Ledger, b.add)
	sortStretches(b.stretches)
	out := &Exact{Spans: x.spans, Time: x.time, Stretches: b.stretches}
	for _, p := range k.paused {
		if s := (Step{From: x.position(p.seq), Bytes: p.bytes}); int64(s.From) < int64(len(x.time)) {
			if n := len(out.Paused); n > 0 && out.Paused[n-1].From == s.From {
				out.Paused = out.Paused[:n-1]
			}
			out.Paused = append(out.Paused, s)
		}
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
