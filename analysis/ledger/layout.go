package ledger

// AddressMap is the layout of each arena of a device at one instant, to scale.
type AddressMap struct {
	At     Instant
	Arenas []ArenaMap
}

// ArenaMap lists spans in address order. They tile [Base, Base+Extent).
type ArenaMap struct {
	Arena        int32
	At           Instant // the arena's part of the device's instant, seen by its own requests: Stranded is 0
	Base, Extent int64
	Spans        []Span
}

// SpanKind says what a span of addresses is.
type SpanKind uint8

const (
	SpanLive  SpanKind = iota // requested bytes of a live chunk
	SpanSlack                 // rest of a live chunk
	SpanPending
	SpanReserve      // free, never handed out since it was mapped
	SpanReusable     // free, handed out before, in the largest free chunk of the arena
	SpanExternal     // free, handed out before, in a smaller free chunk
	SpanNotRequested // free, or what a chunk has beyond its request, where chunks are not known
	SpanUnmapped
)

// Free says whether the span is free memory of an arena whose chunks are known.
func (k SpanKind) Free() bool { return k >= SpanReserve && k <= SpanExternal }

// MarshalText gives the name in JSON, which never changes.
func (k SpanKind) MarshalText() ([]byte, error) {
	return []byte([...]string{"live", "slack", "pending", "reserve", "reusable", "external", "not_requested", "unmapped"}[k]), nil
}

// Span is [Start, Start+Bytes) relative to the arena's base.
type Span struct {
	Start int64    `json:"start"`
	Bytes int64    `json:"bytes"`
	Kind  SpanKind `json:"kind"`
}

// layout draws an arena from left to right and sums up what it draws.
type layout struct {
	m         *ArenaMap
	s         Split
	untouched []Range // ahead
	at        int64   // drawn up to here
	run       freeRun // the free chunk that ends here
	largest   freeRun // of equal ones the first
	reusable  int64   // bytes of the largest that were handed out before, after end
}

// freeRun is a free chunk and its spans, by index.
type freeRun struct {
	bytes    int64
	from, to int
}

// put draws a span up to an address.
func (l *layout) put(to int64, kind SpanKind) {
	if to > l.at {
		l.m.Spans = append(l.m.Spans, Span{Start: l.at - l.m.Base, Bytes: to - l.at, Kind: kind})
		l.at = to
	}
}

// free draws free memory up to an address. What was handed out before is external until the
// largest chunk is known.
func (l *layout) free(to int64) {
	if l.run.bytes == 0 {
		l.run.from = len(l.m.Spans)
	}
	l.run.bytes += to - l.at
	for len(l.untouched) > 0 && l.untouched[0].From < to {
		u := l.untouched[0]
		l.s.Touched += u.From - l.at
		l.put(u.From, SpanExternal)
		end := min(u.To, to)
		l.s.Untouched += end - l.at
		l.put(end, SpanReserve)
		if u.To > to {
			l.untouched[0].From = to
			return
		}
		l.untouched = l.untouched[1:]
	}
	l.s.Touched += to - l.at
	l.put(to, SpanExternal)
}

func (l *layout) block(b *Block) {
	l.endRun()
	end := b.Addr + b.Size
	if b.Pending {
		l.s.Pending += b.Size
		l.put(end, SpanPending)
		return
	}
	rounding := RoundingOf(b.Requested, b.Size)
	l.s.Live++
	l.s.T += b.Requested
	l.s.C += b.Size
	l.s.Rounding += rounding
	l.s.Slack += b.Size - b.Requested - rounding
	l.put(b.Addr+b.Requested, SpanLive)
	l.put(end, SpanSlack)
}

// endRun ends a free chunk.
func (l *layout) endRun() {
	if l.run.bytes > l.largest.bytes {
		l.run.to = len(l.m.Spans)
		l.largest = l.run
	}
	l.run.bytes = 0
}

// end draws what was handed out before of the largest free chunk as reusable.
func (l *layout) end() {
	l.endRun()
	for i := l.largest.from; i < l.largest.to; i++ {
		if s := &l.m.Spans[i]; s.Kind == SpanExternal {
			s.Kind = SpanReusable
			l.reusable += s.Bytes
		}
	}
}
