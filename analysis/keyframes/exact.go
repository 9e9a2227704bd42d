package keyframes

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

// pausedSince are the bytes that are paused since the event seq.
type pausedSince struct{ seq, bytes int64 }

// notePaused notes what is paused after the event seq.
func (r *Recorder) notePaused(seq int64) {
	if n := len(r.paused); r.device.Paused != r.pausedNow {
		r.pausedNow = r.device.Paused
		if n > 0 && r.paused[n-1].seq == seq {
			r.paused[n-1].bytes = r.pausedNow
			return
		}
		r.paused = append(r.paused, pausedSince{seq, r.pausedNow})
	}
}

// exactly is the device at every event of the spans; nil if there are none.
func (r *Recorder) exactly(b *builder, end *End) *Exact {
	h := r.history
	h.end(end.Last)
	if len(h.spans) == 0 {
		return nil
	}
	r.notePaused(end.Last)
	b.after, b.stretches = h.position, nil
	out := &Exact{Spans: h.spans, Time: h.time, Stretches: r.stretches(b, end, r.exact)}
	for _, p := range r.paused {
		if s := (Step{From: h.position(p.seq), Bytes: p.bytes}); int64(s.From) < int64(len(h.time)) {
			if n := len(out.Paused); n > 0 && out.Paused[n-1].From == s.From {
				out.Paused = out.Paused[:n-1]
			}
			out.Paused = append(out.Paused, s)
		}
	}
	return out
}
