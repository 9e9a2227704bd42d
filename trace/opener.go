package trace

import "encoding/binary"

// Opener follows a process, so that its events can be read from the middle on: its rows restate what holds after the
// last event added, as the opening rows of a part do.
type Opener struct{ opening *opening }

// NewOpener is the state of a process before its first event.
func NewOpener(strings *Strings) *Opener { return &Opener{newOpening(strings)} }

// Add takes the next event.
func (o *Opener) Add(e *Event) { o.opening.add(e) }

// Rows restate the state, in order of seq.
func (o *Opener) Rows() []Event { return o.opening.rows() }

// PackEvents encodes events in about 20 bytes each, to keep many of them. Their contexts are numbers of the process's Strings.
func PackEvents(events []Event) []byte {
	out := binary.AppendUvarint(nil, uint64(len(events)))
	var last Event
	for i := range events {
		e := &events[i]
		for _, v := range [...]int64{
			e.Seq - last.Seq, e.Time - last.Time, int64(e.Kind), int64(e.Device), int64(e.Arena), int64(e.Thread), e.Stream,
			e.Addr - last.Addr, e.Requested, e.Provided, int64(e.Context),
		} {
			out = binary.AppendVarint(out, v)
		}
		last = *e
	}
	return out
}

// UnpackEvents decodes what PackEvents encoded.
func UnpackEvents(packed []byte) []Event {
	count, n := binary.Uvarint(packed)
	packed = packed[n:]
	events := make([]Event, count)
	next := func() int64 {
		v, n := binary.Varint(packed)
		packed = packed[n:]
		return v
	}
	var last Event
	for i := range events {
		e := Event{Seq: last.Seq + next(), Time: last.Time + next(), Kind: Kind(next()), Device: int32(next()), Arena: int32(next()), Thread: int32(next()), Stream: next()}
		e.Addr, e.Requested, e.Provided, e.Context = last.Addr+next(), next(), next(), int32(next())
		events[i], last = e, e
	}
	return events
}

// BatchOf is a batch of events.
func BatchOf(events []Event) *Batch {
	b := &Batch{}
	for i := range events {
		e := &events[i]
		b.Seq, b.Time, b.Kind = append(b.Seq, e.Seq), append(b.Time, e.Time), append(b.Kind, e.Kind)
		b.Device, b.Arena, b.Thread = append(b.Device, e.Device), append(b.Arena, e.Arena), append(b.Thread, e.Thread)
		b.Stream, b.Addr = append(b.Stream, e.Stream), append(b.Addr, e.Addr)
		b.Requested, b.Provided, b.Context = append(b.Requested, e.Requested), append(b.Provided, e.Provided), append(b.Context, e.Context)
	}
	return b
}

// Head leaves only the first n events.
func (b *Batch) Head(n int) { b.head(n) }
