package trace

import "encoding/binary"

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
