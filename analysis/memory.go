package analysis

import (
	"errors"
	"fmt"
	"math"

	"github.com/memprof/memprof/analysis/iterations"
	"github.com/memprof/memprof/trace"
)

// alloc, free, freeDone, mapped and unmapped keep the ledger and the terms; each ends
// with settle.

func (a *analyzer) alloc(e *trace.Event) error {
	ar, err := a.arenaOf(e)
	if err != nil {
		return err
	}
	if ar.window != nil {
		return a.rangeAlloc(ar, e)
	}
	if len(ar.waiting) > 0 {
		a.resolve(ar, e.Requested, true)
	}
	if err := a.handOut(ar, e); err != nil {
		return err
	}
	d := ar.device
	if !a.opening {
		d.Allocs++
		d.current.Allocs++
		d.current.AllocBytes += e.Requested
		d.byPhase.Alloc(e.Requested)
		if d.period != nil {
			d.period.Add(iterations.Request{
				Requested: e.Requested, Provided: e.Provided, Seq: e.Seq, Time: e.Time, T: d.t, C: d.c, R: d.r, Live: d.live, Paused: d.pausedT,
			})
		}
	}
	return a.settle(ar, e)
}

// restore makes a chunk live where a checkpoint had it. Nobody asked for it, so it is no
// request of an iteration, and ends no growth.
func (a *analyzer) restore(e *trace.Event) error {
	ar, err := a.arenaOf(e)
	if err != nil {
		return err
	}
	if ar.window != nil {
		return a.rangeAlloc(ar, e)
	}
	if err := a.handOut(ar, e); err != nil {
		return err
	}
	a.graphRestored(ar)
	return a.settle(ar, e)
}

// handOut makes the block of an event live.
func (a *analyzer) handOut(ar *arena, e *trace.Event) error {
	if e.Requested < 0 || e.Provided <= 0 || e.Requested > e.Provided || e.Addr < 0 || e.Addr > math.MaxInt64-e.Provided {
		return fmt.Errorf("%d bytes asked for, %d provided", e.Requested, e.Provided)
	}
	if ar.paused() {
		return errPaused
	}
	i, untouched, touched, err := a.ledger.occupy(ar, e.Addr, e.Provided)
	if err != nil {
		return err
	}
	s := &a.ledger.segments[i]
	s.requested, s.seq, s.context, s.stream = e.Requested, e.Seq, e.Context, e.Stream
	s.label, s.visit, s.phase = 0, a.attribution.Phases.Visit, a.attribution.Phases.Current
	if a.attribution.Capturing() {
		a.attribution.InCapture(ar.index)
	}
	if ar.tag != nil {
		ar.device.pauses.Allocated(ar.tag)
	}
	if ar.pooled && (a.attribution.Capturing() || ar.over) && e.Kind == trace.KindAlloc {
		a.graphAllocated(ar, e)
	}
	rounding := roundingOf(e.Requested, e.Provided)
	for _, x := range [2]*split{&ar.split, ar.total} {
		x.t += e.Requested
		x.c += e.Provided
		x.rounding += rounding
		x.slack += e.Provided - e.Requested - rounding
		x.untouched -= untouched
		x.touched -= touched
		x.live++
	}
	return nil
}

// occupied is the segment of a block that is live or pending.
func (a *analyzer) occupied(e *trace.Event, kind segmentKind) (*arena, int32, error) {
	ar, err := a.arenaOf(e)
	if err != nil {
		return nil, none, err
	}
	if ar.window != nil {
		return ar, none, nil // its blocks are not in the ledger
	}
	i := a.ledger.table.find(e.Addr)
	if i == none || a.ledger.segments[i].arena != ar.index || a.ledger.segments[i].kind != kind {
		if kind == segmentPending {
			return nil, none, errors.New("no chunk that starts there is pending")
		}
		return nil, none, errors.New("no chunk that starts there is live")
	}
	s := &a.ledger.segments[i]
	if e.Provided != 0 && e.Provided != s.size || e.Requested != 0 && e.Requested != s.requested {
		return nil, none, fmt.Errorf("%d bytes in a chunk of %d, but seq %d handed out %d in %d",
			e.Requested, e.Provided, s.seq, s.requested, s.size)
	}
	return ar, i, nil
}

func (a *analyzer) free(e *trace.Event) error {
	ar, i, err := a.occupied(e, segmentLive)
	if err != nil {
		return err
	}
	if i == none {
		return a.rangeFreed(ar, e)
	}
	s := &a.ledger.segments[i]
	rounding := roundingOf(s.requested, s.size)
	pending, freed := int64(0), s.size
	if s.shared {
		pending, freed = s.size, 0
	}
	for _, x := range [2]*split{&ar.split, ar.total} {
		x.t -= s.requested
		x.c -= s.size
		x.rounding -= rounding
		x.slack -= s.size - s.requested - rounding
		x.pending += pending
		x.touched += freed
		x.live--
	}
	if ar.paused() {
		ar.device.pausedT -= s.requested
	}
	if !a.opening {
		ar.device.Frees++
	}
	s.within = s.visit != 0 && a.attribution.Phases.Open(s.visit)
	if s.shared {
		ar.leftMark(s)
		s.kind, s.freed = segmentPending, e.Seq
		a.graphWaits(ar, e)
		return a.settle(ar, e)
	}
	ar.leftMark(s)
	ar.leftPeak(s)
	a.graphFreed(ar, e)
	a.ledger.vacate(ar, i)
	return a.settle(ar, e)
}

func (a *analyzer) freeDone(e *trace.Event) error {
	ar, i, err := a.occupied(e, segmentPending)
	if err != nil || i == none {
		return err
	}
	s := &a.ledger.segments[i]
	for _, x := range [2]*split{&ar.split, ar.total} {
		x.pending -= s.size
		x.touched += s.size
	}
	ar.leftPeak(s)
	a.graphFreed(ar, e)
	a.ledger.vacate(ar, i)
	return a.settle(ar, e)
}

// streamUse makes the coming free of a block pending, if the stream is not its own.
func (a *analyzer) streamUse(e *trace.Event) error {
	_, i, err := a.occupied(e, segmentLive)
	if err != nil || i == none {
		return err
	}
	s := &a.ledger.segments[i]
	s.shared = s.shared || s.stream != e.Stream
	return nil
}

// mappingOf is the range of a map or unmap.
func mappingOf(e *trace.Event) (addressRange, error) {
	if e.Provided <= 0 || e.Addr < 0 || e.Addr > math.MaxInt64-e.Provided {
		return addressRange{}, fmt.Errorf("%d bytes is no range of memory", e.Provided)
	}
	return addressRange{e.Addr, e.Addr + e.Provided}, nil
}

func (a *analyzer) mapped(e *trace.Event) error {
	ar, err := a.arenaOf(e)
	if err != nil {
		return err
	}
	r, err := mappingOf(e)
	if err != nil {
		return err
	}
	if _, ok := a.mappings.overlapping(r); ok {
		return a.overlap(r)
	}
	if ar.paused() {
		return errPaused
	}
	if ar.window != nil {
		return fmt.Errorf("arena %d is a range of a graph memory, which maps nothing", e.Arena)
	}
	if err := a.lies(ar, r, e); err != nil {
		return err
	}
	whole, again := ar.extents.overlapping(r)
	switch {
	case a.opening, ar.over, ar.backs():
	case again:
		ar.device.Remaps++
	default:
		a.grew(ar, e)
	}
	if !again {
		ar.extents.add(r, ar.coalesces, ar.coalesces)
	}
	ar.beforeMapping()
	ar.device.changing(e.Time)
	a.mappings.add(r, true, true)
	region := !ar.coalesces && (!again || r.from == whole.from)
	a.ledger.mapRange(ar, r, e.Seq, region)
	ar.keepMapping(r, e.Seq, region)
	for _, x := range [2]*split{&ar.split, ar.total} {
		x.r += r.bytes()
		x.untouched += r.bytes()
	}
	ar.maxR = max(ar.maxR, ar.r)
	ar.device.rerank(ar)
	a.residency(ar, e.Time)
	if ar.store != nil {
		ar.store.grow(r.bytes())
	}
	return a.settle(ar, e)
}

// overlap says what r, which is to be mapped, overlaps.
func (a *analyzer) overlap(r addressRange) error {
	for _, other := range a.arenas {
		if old, ok := other.mapped.overlapping(r); ok {
			return fmt.Errorf("%#x to %#x overlaps %#x to %#x, mapped in arena %d", r.from, r.to, old.from, old.to, other.info.ID)
		}
	}
	return fmt.Errorf("%#x to %#x overlaps what is mapped", r.from, r.to)
}

func (a *analyzer) unmapped(e *trace.Event) error {
	ar, err := a.arenaOf(e)
	if err != nil {
		return err
	}
	r, err := mappingOf(e)
	if err != nil {
		return err
	}
	ar.beforeMapping()
	ar.device.changing(e.Time)
	untouched, touched, err := a.ledger.unmapRange(ar, r)
	if err != nil {
		return err
	}
	a.mappings.remove(r)
	ar.forgetMapping(r)
	for _, x := range [2]*split{&ar.split, ar.total} {
		x.r -= r.bytes()
		x.untouched -= untouched
		x.touched -= touched
	}
	ar.device.rerank(ar)
	if ar.paused() {
		ar.device.paused -= r.bytes()
	}
	if ar.store != nil {
		ar.store.grow(-r.bytes())
	}
	if whole, ok := ar.extents.overlapping(r); ok {
		if _, some := ar.mapped.overlapping(whole); !some {
			ar.extents.remove(whole)
		}
	}
	a.residency(ar, e.Time)
	return a.settle(ar, e)
}

// settle checks the identity, and has the device take note.
func (a *analyzer) settle(ar *arena, e *trace.Event) error {
	d := ar.device
	ar.changed(e)
	ar.reusable = a.ledger.reusable(ar)
	ar.followFree()
	if !ar.split.holds() {
		return fmt.Errorf("the arena does not add up: %s", ar.split.text())
	}
	if !ar.largestHolds() {
		return fmt.Errorf("the largest free chunk of the arena has %d bytes, %d of them handed out before: %s", ar.largestFree(), ar.reusable, ar.split.text())
	}
	if !d.split.holds() {
		return fmt.Errorf("device %d does not add up: %s", d.Device, d.split.text())
	}
	if ar.use != nil {
		ar.use.observe()
	}
	if !a.opening {
		d.observe(e.Seq, e.Time)
	}
	return nil
}

func (s *split) text() string {
	return fmt.Sprintf("R %d, T %d + rounding %d + slack %d + pending %d + untouched %d + touched %d + unsplit %d; C %d",
		s.r, s.t, s.rounding, s.slack, s.pending, s.untouched, s.touched, s.unsplit, s.c)
}
