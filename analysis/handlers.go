package analysis

import (
	"slices"

	"github.com/memprof/memprof/analysis/accounting"
	"github.com/memprof/memprof/analysis/iterations"
	"github.com/memprof/memprof/analysis/ledger"
	"github.com/memprof/memprof/trace"
)

// handler is what the pass does with an event. Either arena or event is set.
type handler struct {
	arena   func(*analyzer, *arena, *trace.Event) error
	changes bool // arena changes memory of the arena
	event   func(*analyzer, *trace.Event) error
}

// handlers has what the pass does with an event of each kind. Here is the one place that hands events to the ledger and
// to the trackers; kinds without a handler are passed over.
var handlers = [256]handler{
	trace.KindArena:        {event: (*analyzer).arena},
	trace.KindAlloc:        {arena: (*analyzer).alloc, changes: true},
	trace.KindRestore:      {arena: (*analyzer).restore, changes: true},
	trace.KindFree:         {arena: (*analyzer).free, changes: true},
	trace.KindFreeDone:     {arena: (*analyzer).freeDone, changes: true},
	trace.KindShrink:       {arena: func(a *analyzer, ar *arena, e *trace.Event) error { return a.ledger.Shrink(ar.Arena, e) }, changes: true},
	trace.KindMap:          {arena: (*analyzer).mapped, changes: true},
	trace.KindUnmap:        {arena: (*analyzer).unmapped, changes: true},
	trace.KindPause:        {arena: (*analyzer).pauseOrResume},
	trace.KindResume:       {arena: (*analyzer).pauseOrResume},
	trace.KindStreamUse:    {arena: (*analyzer).streamUse},
	trace.KindPoolRelease:  {event: (*analyzer).release},
	trace.KindIteration:    {event: (*analyzer).mark},
	trace.KindPhaseBegin:   {event: (*analyzer).phase},
	trace.KindPhaseEnd:     {event: (*analyzer).phase},
	trace.KindStack:        {event: func(a *analyzer, e *trace.Event) error { a.attribution.Stack(e); return nil }},
	trace.KindLabel:        {event: (*analyzer).label},
	trace.KindCaptureBegin: {event: (*analyzer).capture},
	trace.KindCaptureEnd:   {event: (*analyzer).capture},
	trace.KindAlias:        {arena: func(a *analyzer, ar *arena, e *trace.Event) error { return a.graphs.Alias(ar.graphs, e) }},
	trace.KindUnalias:      {arena: func(a *analyzer, ar *arena, e *trace.Event) error { return a.graphs.Alias(ar.graphs, e) }},
	trace.KindReclaim:      {event: func(a *analyzer, e *trace.Event) error { a.unserved(e); return nil }},
	trace.KindOOM: {event: func(a *analyzer, e *trace.Event) error {
		if ar := a.unserved(e); ar != nil {
			return a.oom(ar.device, ar.Arena, e)
		}
		return a.oom(a.deviceOf(e.Device), nil, e)
	}},
	trace.KindExternalAlloc: {event: (*analyzer).otherLibrary},
	trace.KindExternalFree:  {event: (*analyzer).otherLibrary},
	trace.KindOverhead:      {event: func(a *analyzer, e *trace.Event) error { a.others.Overhead(a.deviceOf(e.Device).others, e); return nil }},
	trace.KindDeviceUsed:    {event: (*analyzer).used},
	trace.KindStatistics:    {event: (*analyzer).statistics},
	trace.KindKVCache:       {event: (*analyzer).kvEvent},
	trace.KindKVReserve:     {event: (*analyzer).kvEvent},
	trace.KindKVAppend:      {event: (*analyzer).kvEvent},
	trace.KindKVShare:       {event: (*analyzer).kvEvent},
	trace.KindKVFree:        {event: (*analyzer).kvEvent},
	trace.KindTotals:        {event: func(a *analyzer, e *trace.Event) error { a.calls.Add(e, a.opt.Text(e.Context)); return nil }},
	trace.KindLost:          {event: func(a *analyzer, _ *trace.Event) error { a.lost++; return nil }},
}

// ofArena hands an event to the handler of its arena. Of an arena that is a range of a graph memory, the graphs have most
// events.
func (a *analyzer) ofArena(h *handler, e *trace.Event) error {
	ar, err := a.arenaOf(e)
	if err != nil {
		return err
	}
	if ar.graphs.InRange() {
		if taken, err := a.graphs.RangeEvent(ar.graphs, e); taken {
			return err
		}
	}
	switch e.Kind { // called directly where nearly all events are
	case trace.KindAlloc:
		err = a.alloc(ar, e)
	case trace.KindFree:
		err = a.free(ar, e)
	default:
		err = h.arena(a, ar, e)
	}
	if err != nil || !h.changes {
		return err
	}
	return a.finishEvent(ar, e)
}

func (a *analyzer) alloc(ar *arena, e *trace.Event) error {
	if ar.growth.Waiting() {
		ar.device.growths.Resolve(&ar.growth, ar.Arena, e.Requested, true)
	}
	if err := a.handOut(ar, e); err != nil {
		return err
	}
	a.graphs.Allocated(ar.graphs, e)
	if d := ar.device; !a.opening {
		d.result.Allocs++
		d.current.Allocs++
		d.current.AllocBytes += e.Requested
		d.byPhase.Alloc(e.Requested)
		if d.period != nil {
			d.unmarked(e)
		}
	}
	return nil
}

// unmarked passes an alloc of a device without marks to the finder of iterations.
func (d *device) unmarked(e *trace.Event) {
	d.period.Add(iterations.Request{
		Requested: e.Requested, Provided: e.Provided, Seq: e.Seq, Time: e.Time, T: d.T, C: d.Known(d.C), R: d.R, Live: d.Live, Paused: d.PausedT,
	})
}

// restore makes a chunk live where a checkpoint had it. It is no request, so it counts in no iteration and ends no growth.
func (a *analyzer) restore(ar *arena, e *trace.Event) error {
	if err := a.handOut(ar, e); err != nil {
		return err
	}
	a.graphs.Restored(ar.graphs)
	return nil
}

// handOut makes the block of an event live.
func (a *analyzer) handOut(ar *arena, e *trace.Event) error {
	s, err := a.ledger.Alloc(ar.Arena, e)
	if err != nil {
		return err
	}
	a.attribution.Allocated(s, e, ar.Index)
	ar.device.newest.requested(e)
	if !ar.Over {
		ar.device.trend.Allocated(e.Context, e.Requested)
	}
	if ar.tag != nil {
		ar.device.pauses.Allocated(ar.tag)
	}
	return nil
}

func (a *analyzer) free(ar *arena, e *trace.Event) error {
	i, err := a.ledger.Occupied(ar.Arena, e, ledger.LiveSegment)
	if err != nil {
		if r, bad := ledger.RangeOf(e); a.opening && bad == nil { // restated: it was handed out before
			return a.ledger.Spend(ar.Arena, r)
		}
		return err
	}
	d, s := ar.device, a.ledger.Segment(i)
	if !a.opening {
		d.result.Frees++
	}
	s.Fate = uint8(a.attribution.FateOf(s, e.Seq, d.newest.freedAlone(s)))
	if !ar.Over {
		d.trend.Freed(s)
	}
	if d.categories != nil && d.categories.Counts(s.Seq) {
		a.categorize(d, ar.Arena, s, e.Seq)
	}
	if d.lives != nil {
		b := s.Block()
		d.lives.Add(s.Seq, a.attribution.Category(&b))
	}
	if a.ledger.Free(ar.Arena, i, e.Seq) {
		a.graphs.Waits(ar.graphs, e)
	} else {
		a.graphs.Freed(ar.graphs, e)
	}
	return nil
}

// categorize adds a block that was live up to an event to the course of its category.
func (a *analyzer) categorize(d *device, ar *ledger.Arena, s *ledger.Segment, to int64) {
	if !ar.Over {
		b := s.Block()
		d.categories.Live(b.Requested, a.attribution.Category(&b), b.Seq, to, ar.Pauses())
	}
}

func (a *analyzer) freeDone(ar *arena, e *trace.Event) error {
	i, err := a.ledger.Occupied(ar.Arena, e, ledger.PendingSegment)
	if err != nil {
		return err
	}
	a.ledger.FreeDone(ar.Arena, i)
	a.graphs.Freed(ar.graphs, e)
	return nil
}

func (a *analyzer) mapped(ar *arena, e *trace.Event) error {
	r, err := ledger.RangeOf(e)
	if err != nil {
		return err
	}
	if err := a.ledger.CanMap(ar.Arena, r); err != nil {
		return err
	}
	if err := a.graphs.Mapping(ar.graphs, r, e); err != nil {
		return err
	}
	_, again := ar.Extent(r)
	switch {
	case a.opening, ar.Over, ar.graphs.Backs(), again: // what had been unmapped inside an arena is no growth
	default:
		if k := ar.device.keys; k != nil {
			k.Growth(ar.Arena, e.Seq, e.Time)
		}
		ar.device.growths.Grew(&ar.growth, ar.Arena, e)
	}
	ar.device.others.Changing(e.Time)
	region := a.ledger.Map(ar.Arena, r, e.Seq)
	ar.device.kept.Map(ar.Index, r, e.Seq, region)
	a.residency(ar, e.Time)
	ar.graphs.Grew(r.Bytes())
	return nil
}

func (a *analyzer) unmapped(ar *arena, e *trace.Event) error {
	r, err := ledger.RangeOf(e)
	if err != nil {
		return err
	}
	ar.device.others.Changing(e.Time)
	if err := a.ledger.Unmap(ar.Arena, r); err != nil {
		return err
	}
	ar.device.kept.Unmap(ar.Index, r)
	ar.graphs.Grew(-r.Bytes())
	a.residency(ar, e.Time)
	return nil
}

// pauseOrResume only notes a pause or resume that failed.
func (a *analyzer) pauseOrResume(ar *arena, e *trace.Event) (err error) {
	t := a.transition(ar, e)
	if t.Failed != "" {
		return nil
	}
	ar.device.others.Changing(e.Time)
	if !t.Resume {
		err = a.ledger.Pause(ar.Arena, e.Seq, e.Requested)
	} else if err = a.ledger.Resume(ar.Arena, e.Seq, e.Requested); err == nil && ar.device.keys == nil && !a.second {
		ar.ForgetPauses(ar.device.trend.Bound) // else looked at only as it was at the peak, the last bound and the end
	}
	if err != nil {
		return err
	}
	a.transitioned(ar, t)
	return a.finishEvent(ar, e)
}

// finishEvent makes the ledger check the terms, and passes the state to the trackers.
func (a *analyzer) finishEvent(ar *arena, e *trace.Event) error {
	d := ar.device
	if err := a.ledger.EndChanges(ar.Arena); err != nil {
		return err
	}
	d.sums.Change(d.Device, e.Seq)
	if d.pauses != nil {
		ar.followFree()
	}
	if ar.use != nil {
		ar.use.observe()
	}
	if !a.opening {
		d.observe(e.Seq, e.Time)
	}
	return nil
}

// observe hands the state after an event that changed it to the trackers.
func (d *device) observe(seq, time int64) {
	if d.Observe(seq, time) {
		d.kept.Peak(d.Peak)
	}
	it := &d.current
	it.PeakT, it.PeakR = max(it.PeakT, d.T), max(it.PeakR, d.R)
	d.sums.Observe()
	d.byPhase.Observe(d.T, d.Known(d.C))
	d.series.add(d.Device, seq, time)
	d.trend.Observe(seq, time, d.T+d.PausedT, d.result.Allocs)
	if d.keys != nil {
		d.keys.Observe(seq, time)
	}
	if d.categories != nil {
		d.categories.Observe(d.Device, seq, time)
	}
}

// streamUse makes the coming free of a block pending, if the stream is not its own.
func (a *analyzer) streamUse(ar *arena, e *trace.Event) error {
	i, err := a.ledger.Occupied(ar.Arena, e, ledger.LiveSegment)
	if err != nil {
		return err
	}
	a.ledger.Segment(i).Use(e.Stream)
	return nil
}

// release takes the last event of an arena, or passes over the release of a pool that has
// none.
func (a *analyzer) release(e *trace.Event) error {
	if e.Arena == trace.NoArena {
		return nil
	}
	return a.ofArena(&releaseOfArena, e)
}

var releaseOfArena = handler{arena: func(a *analyzer, ar *arena, _ *trace.Event) error { return a.ledger.Release(ar.Arena) }}

func (a *analyzer) capture(e *trace.Event) error {
	a.captures = e.OpenCaptures()
	return a.graphs.Capture(e)
}

// unserved ends the growths of a request that failed, or is made again. It returns the request's arena, nil if it has none.
func (a *analyzer) unserved(e *trace.Event) *arena {
	ar := a.lookup(e.Arena)
	if ar != nil {
		ar.device.growths.Resolve(&ar.growth, ar.Arena, e.Requested, false)
	}
	return ar
}

func (a *analyzer) otherLibrary(e *trace.Event) error {
	a.others.OtherLibrary(a.deviceOf(e.Device).others, e)
	return nil
}

// used takes a reading of used memory. It makes no device, unless it is the process's own.
func (a *analyzer) used(e *trace.Event) error {
	_, used := e.DeviceMemory()
	for _, d := range a.devices {
		if d.ID == e.Device && used >= 0 {
			d.others.Saw(e.Time, used)
		}
	}
	if accounting.IsOwnReading(e) {
		a.deviceOf(e.Device).others.Read(e.Time, used)
	}
	return nil
}

// mark ends an iteration, on all devices.
func (a *analyzer) mark(e *trace.Event) error {
	if a.opening {
		return nil
	}
	m := a.start
	m.Number, m.EndSeq, m.End = e.IterationNumber(), e.Seq, e.Time
	a.marks.Add(m)
	a.calls.Mark()
	a.attribution.Mark(e.Seq)
	a.start = iterations.Iteration{StartSeq: e.Seq + 1, Start: e.Time}
	for _, d := range a.devices {
		d.mark(m, a.start)
	}
	return nil
}

func (d *device) mark(m, next iterations.Iteration) {
	it := d.current
	it.Number, it.EndSeq, it.End = m.Number, m.EndSeq, m.End
	it.EndT, it.EndPaused = d.T, d.PausedT
	it.PeakC, it.EndC = d.sums.Mark(it.PeakT)
	d.log.Add(it)
	d.Iteration = d.log.Count
	d.current = next
	// What is live when an iteration begins is live in it.
	d.current.PeakT, d.current.PeakR = d.T, d.R
	d.trend.Mark(m.EndSeq, m.End, d.others.LibraryBytes())
	d.period = nil
	if d.keys != nil {
		d.keys.Mark(m.EndSeq, m.End)
	}
}

// phase takes a phase_begin or phase_end.
func (a *analyzer) phase(e *trace.Event) error {
	a.attribution.Phase(e)
	current := a.attribution.Phases.Current
	if a.bands != nil && !a.opening {
		a.bands.Enter(a.attribution.Phases.Name(current), e.Time)
	}
	ended := a.requests.Phase(e) && !a.opening
	for _, d := range a.devices {
		d.byPhase.Enter(current, e.Time, d.T, d.Known(d.C))
		if d.pauses != nil {
			d.pauses.Phase(e.Time)
		}
		if ended {
			d.trend.RequestEnded(trace.ParseContext(e.Kind, a.opt.Text(e.Context)).Name(), e.Seq, e.Time, d.others.LibraryBytes())
		}
	}
	return nil
}

// kvEvent takes a mark of a KV cache. The end of a sequence is that of a request.
func (a *analyzer) kvEvent(e *trace.Event) error {
	id, ended := a.kv.Event(e)
	if !ended || a.opening {
		return nil
	}
	for _, d := range a.devices {
		if d.ID == id {
			d.trend.RequestEnded(iterations.KVRequests, e.Seq, e.Time, d.others.LibraryBytes())
		}
	}
	return nil
}

// label takes a label event: its context stays with the block that lives there, if one does. The course of categories
// has a pending block since its free: its bytes move.
func (a *analyzer) label(e *trace.Event) error {
	s, ar := a.ledger.At(e.Addr)
	a.attribution.Label(e.Context, s)
	if s == nil {
		return nil
	}
	d := a.arenas[ar.Index].device
	move := d.categories != nil && s.Kind == ledger.PendingSegment && !ar.Over
	before := s.Block()
	s.Label = e.Context
	if move {
		after := s.Block()
		d.categories.Live(-s.Requested, a.attribution.Category(&before), s.Seq, s.Freed, ar.Pauses())
		d.categories.Live(s.Requested, a.attribution.Category(&after), s.Seq, s.Freed, ar.Pauses())
	}
	return nil
}

// statistics hands on the sums of an allocator that is only observed.
func (a *analyzer) statistics(e *trace.Event) error {
	at := slices.IndexFunc(a.devices, func(d *device) bool { return d.ID == e.Device })
	if at < 0 || a.opening {
		return nil
	}
	d := a.devices[at]
	var own ledger.Split
	for _, ar := range d.native {
		own = own.Plus(ar.Split)
	}
	if !d.sums.Statistics(e, d.Device, own) {
		return nil
	}
	d.series.sample(d.Device, d.sums.Changed, d.sums.C)
	for _, ar := range d.native {
		ar.growth.Read(d.Device, d.sums.Changed, d.sums.C)
	}
	return nil
}
