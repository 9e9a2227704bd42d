package ledger

import (
	"errors"
	"fmt"
	"math"

	"github.com/memprof/memprof/trace"
)

// Each change of memory is checked against the ledger and kept in the terms of the arena and its
// device. After the changes of an event, EndChanges checks that the terms add up.

// ErrPaused is the error of an event that needs memory of a paused arena.
var ErrPaused = errors.New("the arena is paused")

// Alloc makes the block of an event live. The segment is valid until the next change.
func (l *Ledger) Alloc(ar *Arena, e *trace.Event) (*Segment, error) {
	if e.Requested < 0 || e.Provided <= 0 || e.Requested > e.Provided || e.Addr < 0 || e.Addr > math.MaxInt64-e.Provided {
		return nil, fmt.Errorf("%d bytes asked for, %d provided", e.Requested, e.Provided)
	}
	if ar.Paused() {
		return nil, ErrPaused
	}
	i, untouched, touched, err := l.occupy(ar, e.Addr, e.Provided)
	if err != nil {
		return nil, err
	}
	s := &l.segments[i]
	s.Requested, s.Seq, s.Context, s.stream = e.Requested, e.Seq, e.Context, e.Stream
	rounding := RoundingOf(e.Requested, e.Provided)
	ar.Split.handOut(e.Requested, e.Provided, rounding, untouched, touched)
	ar.total.handOut(e.Requested, e.Provided, rounding, untouched, touched)
	return s, nil
}

// Segment is a segment by its index, valid until the next change.
func (l *Ledger) Segment(i int32) *Segment { return &l.segments[i] }

// Occupied is the index of the segment of the live or pending block of an event.
func (l *Ledger) Occupied(ar *Arena, e *trace.Event, kind SegmentKind) (int32, error) {
	i := l.table.find(e.Addr)
	if i == none || l.segments[i].arena != ar.Index || l.segments[i].Kind != kind {
		if kind == PendingSegment {
			return none, errors.New("no chunk that starts there is pending")
		}
		return none, errors.New("no chunk that starts there is live")
	}
	s := &l.segments[i]
	if e.Provided != 0 && e.Provided != s.Size || e.Requested != 0 && e.Requested != s.Requested {
		return none, fmt.Errorf("%d bytes in a chunk of %d, but seq %d handed out %d in %d",
			e.Requested, e.Provided, s.Seq, s.Requested, s.Size)
	}
	return i, nil
}

// Free takes the free of a live block by the event seq, which makes it free, or pending if another
// stream has used it.
func (l *Ledger) Free(ar *Arena, i int32, seq int64) (pending bool) {
	s := &l.segments[i]
	rounding := RoundingOf(s.Requested, s.Size)
	waiting, freed := int64(0), s.Size
	if s.shared {
		waiting, freed = s.Size, 0
	}
	ar.Split.takeBack(s.Requested, s.Size, rounding, waiting, freed)
	ar.total.takeBack(s.Requested, s.Size, rounding, waiting, freed)
	if ar.Paused() {
		ar.Device.PausedT -= s.Requested
	}
	if s.shared {
		s.Kind, s.Freed = PendingSegment, seq
		return true
	}
	ar.gone(s)
	l.vacate(ar, i)
	return false
}

// Shrink makes the live block of an event as small as the event says: its slack becomes free.
func (l *Ledger) Shrink(ar *Arena, e *trace.Event) error {
	i := l.table.find(e.Addr)
	if i == none || l.segments[i].arena != ar.Index || l.segments[i].Kind != LiveSegment {
		return errors.New("no chunk that starts there is live")
	}
	s := &l.segments[i]
	if e.Requested != s.Requested || e.Provided < e.Requested || e.Provided <= 0 || e.Provided >= s.Size || s.shrunk != 0 {
		return fmt.Errorf("%d bytes in a chunk that becomes %d, but seq %d handed out %d in %d", e.Requested, e.Provided, s.Seq, s.Requested, s.Size)
	}
	if ar.Paused() {
		return ErrPaused
	}
	freed := s.Size - e.Provided
	rounding := RoundingOf(s.Requested, e.Provided) - RoundingOf(s.Requested, s.Size)
	for _, x := range [2]*Split{&ar.Split, ar.total} {
		x.C -= freed
		x.Rounding += rounding
		x.Slack -= freed + rounding
		x.Touched += freed
	}
	slack := l.cutSegment(ar, i, s.Addr+e.Provided)
	l.segments[i].shrunk, l.segments[i].lost = e.Seq, freed
	l.vacate(ar, slack)
	return nil
}

// FreeDone makes a pending block free.
func (l *Ledger) FreeDone(ar *Arena, i int32) {
	s := &l.segments[i]
	for _, x := range [2]*Split{&ar.Split, ar.total} {
		x.Pending -= s.Size
		x.Touched += s.Size
	}
	ar.gone(s)
	l.vacate(ar, i)
}

// Use takes the use of a live block by a stream: its free will be pending if that is not its own.
func (s *Segment) Use(stream int64) { s.shared = s.shared || s.stream != stream }

// At is the live or pending block that starts at an address, and its arena; nil if there is none.
func (l *Ledger) At(addr int64) (*Segment, *Arena) {
	if i := l.table.find(addr); i != none && !l.segments[i].Free() {
		s := &l.segments[i]
		return s, l.Arenas[s.arena]
	}
	return nil, nil
}

// Spend makes r of an arena touched memory, all of it free: somebody hands it out who is not in the
// ledger.
func (l *Ledger) Spend(ar *Arena, r Range) error {
	i, untouched, _, err := l.occupy(ar, r.From, r.Bytes())
	if err != nil {
		return err
	}
	l.vacate(ar, i)
	for _, x := range [2]*Split{&ar.Split, ar.total} {
		x.Untouched -= untouched
		x.Touched += untouched
	}
	return nil
}

// RangeOf is the range of a map or unmap event, or of another one of a range.
func RangeOf(e *trace.Event) (Range, error) {
	if e.Provided <= 0 || e.Addr < 0 || e.Addr > math.MaxInt64-e.Provided {
		return Range{}, fmt.Errorf("%d bytes is no range of memory", e.Provided)
	}
	return Range{e.Addr, e.Addr + e.Provided}, nil
}

// CanMap returns an error if r, which is to be mapped, overlaps what is mapped, or the arena is paused.
func (l *Ledger) CanMap(ar *Arena, r Range) error {
	if _, ok := l.mappings.Overlapping(r); ok {
		return l.overlap(r)
	}
	if ar.Paused() {
		return ErrPaused
	}
	return nil
}

// overlap says what r, which is to be mapped, overlaps.
func (l *Ledger) overlap(r Range) error {
	for _, other := range l.Arenas {
		if old, ok := other.mapped.Overlapping(r); ok {
			return fmt.Errorf("%#x to %#x overlaps %#x to %#x, mapped in arena %d", r.From, r.To, old.From, old.To, other.Info.ID)
		}
	}
	return fmt.Errorf("%#x to %#x overlaps what is mapped", r.From, r.To)
}

// Map maps r, after CanMap. It says whether a region starts there.
func (l *Ledger) Map(ar *Arena, r Range, seq int64) (region bool) {
	whole, again := ar.extents.Overlapping(r)
	if !again {
		ar.extents.Add(r, ar.Coalesces, ar.Coalesces)
	}
	l.mappings.Add(r, true, true)
	region = !ar.Coalesces && (!again || r.From == whole.From)
	l.mapRange(ar, r, seq, region)
	for _, x := range [2]*Split{&ar.Split, ar.total} {
		x.R += r.Bytes()
		x.Untouched += r.Bytes()
	}
	ar.MaxR = max(ar.MaxR, ar.R)
	ar.Device.rerank(ar)
	return region
}

// Unmap unmaps r, all of it mapped and free.
func (l *Ledger) Unmap(ar *Arena, r Range) error {
	untouched, touched, err := l.unmapRange(ar, r)
	if err != nil {
		return err
	}
	l.mappings.Remove(r)
	for _, x := range [2]*Split{&ar.Split, ar.total} {
		x.R -= r.Bytes()
		x.Untouched -= untouched
		x.Touched -= touched
	}
	ar.Device.rerank(ar)
	if ar.Paused() {
		ar.Device.Paused -= r.Bytes()
	}
	if whole, ok := ar.extents.Overlapping(r); ok {
		if _, some := ar.mapped.Overlapping(whole); !some {
			ar.extents.Remove(whole)
		}
	}
	return nil
}

// Pause takes the terms of an arena out of its device, at the event seq, which names its mapped bytes.
// A paused arena has nothing mapped, and its blocks are in none of the device's numbers until it
// resumes. Meanwhile blocks may be freed; granules that are free then are unmapped for good just
// before the resume.
func (l *Ledger) Pause(ar *Arena, seq, bytes int64) error {
	if ar.Paused() {
		return ErrPaused
	}
	if bytes != ar.R {
		return fmt.Errorf("%d bytes of an arena that has %d mapped", bytes, ar.R)
	}
	d := ar.Device
	d.Split = d.Split.Minus(ar.Split)
	d.Paused += ar.R
	d.PausedT += ar.T
	ar.total, ar.away = &ar.away, ar.Split
	d.rerank(ar)
	ar.pauses = append(ar.pauses, PauseSpan{seq, math.MaxInt64})
	return nil
}

// Resume adds the terms of a paused arena to its device, at the event seq, which names its mapped
// bytes.
func (l *Ledger) Resume(ar *Arena, seq, bytes int64) error {
	if !ar.Paused() {
		return errors.New("the arena is not paused")
	}
	if bytes != ar.R {
		return fmt.Errorf("%d bytes of an arena that has %d mapped", bytes, ar.R)
	}
	ar.pauses[len(ar.pauses)-1].To = seq
	d := ar.Device
	d.Split = d.Split.Plus(ar.Split)
	d.Paused -= ar.R
	d.PausedT -= ar.T
	ar.total = &d.Split
	d.rerank(ar)
	return nil
}

// ForgetPauses forgets the pauses that are over and were not in force at the peak or after another
// event.
func (ar *Arena) ForgetPauses(after int64) {
	kept := ar.pauses[:0]
	for _, span := range ar.pauses {
		if span.To == math.MaxInt64 || span.has(ar.Device.Peak.Seq) || span.has(after) {
			kept = append(kept, span)
		}
	}
	ar.pauses = kept
}

// EndChanges ends the changes of an event: it returns an error if the terms of the arena, or of its device,
// do not add up.
func (l *Ledger) EndChanges(ar *Arena) error {
	if ar.Unknown {
		untouched, touched := ar.Split.Undivided()
		ar.total.Untouched -= untouched
		ar.total.Touched -= touched
		ar.total.NotRequested += untouched + touched
	}
	d := ar.Device
	if !ar.Split.holds() {
		return fmt.Errorf("the arena does not add up: %s", ar.Split.text())
	}
	if !ar.largestHolds() {
		return fmt.Errorf("the largest free chunk of the arena has %d bytes, %d of them handed out before: %s", ar.LargestFree(), ar.reusable(), ar.Split.text())
	}
	if !d.Split.holds() {
		return fmt.Errorf("device %d does not add up: %s", d.ID, d.Split.text())
	}
	return nil
}
