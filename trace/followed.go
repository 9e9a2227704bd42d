package trace

import (
	"encoding/binary"
	"errors"
	"io"
	"slices"
)

// Followed keeps the events of a process in memory, with what each did to a block, so that many replays read the process once and
// need not follow what is live. It keeps only what replays read: about eight bytes of a request or free, four of a mark.
type Followed struct {
	opening int64 // allocs before this event have addresses and sizes
	batches [][]byte
	bytes   int
	last    Event
}

// Effect is what an event did to a block; Slot is -1 where that is not stored.
type Effect struct {
	Outcome Outcome
	Slot    int32
}

const (
	mostFollowed = 256 << 20 // bytes
	// The first byte of an event is its kind with these bits: it has an effect, its seq is not the next one. Then come its time and what
	// store says.
	storedEffect = 1 << 7
	storedJump   = 1 << 6
	outcomeBits  = 4
)

// Follow reads all events, and gives them to each. Of allocs before the event opening it keeps where they are, too. The result is nil if they
// take too much memory, or contradict each other.
func Follow(source Source, opening int64, each func(*Event)) (*Followed, error) {
	f, live, e, odd := &Followed{opening: opening}, NewLive(), new(Event), false
	for {
		b, err := source.Next()
		switch {
		case errors.Is(err, io.EOF) && odd:
			return nil, nil
		case errors.Is(err, io.EOF):
			return f, nil
		case err != nil:
			return nil, err
		}
		stored := binary.AppendUvarint(nil, uint64(len(b.Seq)))
		for i := range b.Seq {
			b.Read(i, e)
			each(e)
			if !odd {
				outcome, block := live.Add(e)
				odd = outcome == Replaced || e.Kind >= storedJump || f.bytes+len(stored) > mostFollowed
				stored = f.store(stored, e, outcome, block)
			}
		}
		if f.batches = append(f.batches, append([]byte{}, stored...)); odd {
			f.batches = nil
		}
		f.bytes += len(stored)
	}
}

func (k Kind) isBlock() bool {
	return k == KindAlloc || k == KindRestore || k == KindFree || k == KindFreeDone || k == KindStreamUse
}

func (k Kind) isMark() bool {
	return k == KindIteration || k == KindPhaseBegin || k == KindPhaseEnd || k == KindLabel || k == KindStack
}

// store appends an event.
func (f *Followed) store(to []byte, e *Event, outcome Outcome, b *Block) []byte {
	put := func(values ...int64) {
		for _, v := range values {
			to = binary.AppendVarint(to, v)
		}
	}
	effect, jump := b != nil && e.Kind.isBlock(), e.Seq-f.last.Seq-1
	first := byte(e.Kind)
	if effect {
		first |= storedEffect
	}
	if jump != 0 {
		first |= storedJump
	}
	to = append(to, first)
	put(e.Time - f.last.Time)
	if jump != 0 {
		put(jump)
	}
	f.last = *e
	switch {
	case effect:
		put(int64(b.Slot)<<outcomeBits|int64(outcome), int64(e.Arena))
		switch e.Kind {
		case KindAlloc, KindRestore:
			if put(e.Requested); e.Seq < f.opening {
				put(e.Addr, e.Provided)
			}
		case KindStreamUse:
			put(e.Stream)
		}
	case !e.Kind.isMark():
		put(int64(e.Arena), e.Requested, e.Stream, int64(e.Device), int64(e.Thread), e.Addr, e.Provided, int64(e.Context))
	}
	return to
}

// Source gives the events anew.
func (f *Followed) Source() *FollowedSource {
	return &FollowedSource{opening: f.opening, batches: f.batches}
}

// FollowedSource gives events with their effects.
type FollowedSource struct {
	opening   int64
	batches   [][]byte
	batch     Batch // with room for the longest so far
	effects   []Effect
	given     Batch // of it
	whole     []int // its rows that were stored with all columns; the others have 0 in those that no replay reads
	seq, time int64 // of the last event
}

// Close does nothing.
func (*FollowedSource) Close() error { return nil }

// Next returns the next batch, or io.EOF.
func (s *FollowedSource) Next() (*Batch, error) {
	if len(s.batches) == 0 {
		return nil, io.EOF
	}
	stored := s.batches[0]
	s.batches = s.batches[1:]
	events, n := binary.Uvarint(stored)
	stored = stored[n:]
	if s.effects = slices.Grow(s.effects[:0], int(events))[:events]; len(s.batch.Seq) < int(events) {
		s.batch = Batch{}
		for range events {
			s.batch.Append(&Event{})
		}
	}
	s.given = s.batch.Slice(0, int(events))
	s.given.Effects = s.effects
	b := &s.batch
	for _, i := range s.whole {
		b.Device[i], b.Thread[i], b.Addr[i], b.Provided[i], b.Context[i] = 0, 0, 0, 0, 0
	}
	s.whole = s.whole[:0]
	next := func() int64 {
		if v := stored[0]; v < 1<<7 {
			stored = stored[1:]
			return int64(v>>1) ^ -int64(v&1)
		}
		v, n := binary.Varint(stored)
		stored = stored[n:]
		return v
	}
	for i := range s.effects {
		first, effect := stored[0], Effect{Slot: -1}
		stored = stored[1:]
		kind := Kind(first &^ (storedEffect | storedJump))
		s.seq, s.time = s.seq+1, s.time+next()
		if first&storedJump != 0 {
			s.seq += next()
		}
		var arena int32
		var requested, stream int64
		switch {
		case first&storedEffect != 0:
			v := next()
			effect, arena = Effect{Outcome(v & (1<<outcomeBits - 1)), int32(v >> outcomeBits)}, int32(next())
			switch kind {
			case KindAlloc, KindRestore:
				if requested = next(); s.seq < s.opening {
					s.whole = append(s.whole, i)
					b.Addr[i], b.Provided[i] = next(), next()
				}
			case KindStreamUse:
				stream = next()
			}
		case !kind.isMark():
			s.whole = append(s.whole, i)
			arena, requested, stream = int32(next()), next(), next()
			b.Device[i], b.Thread[i], b.Addr[i], b.Provided[i], b.Context[i] = int32(next()), int32(next()), next(), next(), int32(next())
		}
		b.Seq[i], b.Time[i], b.Kind[i], b.Arena[i], b.Requested[i], b.Stream[i] = s.seq, s.time, kind, arena, requested, stream
		s.effects[i] = effect
	}
	return &s.given, nil
}
