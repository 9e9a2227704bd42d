package analysis

import (
	"fmt"

	"github.com/memprof/memprof/analysis/accounting"
	"github.com/memprof/memprof/analysis/ledger"
	"github.com/memprof/memprof/trace"
)

// handlers has what the pass does with an event of each kind. Here is the one place that hands events to the ledger and
// to the trackers; kinds without a handler are passed over.
var handlers = [256]func(*analyzer, *trace.Event) error{
	trace.KindArena:        (*analyzer).arena,
	trace.KindAlloc:        (*analyzer).change,
	trace.KindFree:         (*analyzer).change,
	trace.KindFreeDone:     (*analyzer).change,
	trace.KindShrink:       (*analyzer).change,
	trace.KindRestore:      (*analyzer).change,
	trace.KindMap:          (*analyzer).change,
	trace.KindUnmap:        (*analyzer).change,
	trace.KindPause:        (*analyzer).change,
	trace.KindResume:       (*analyzer).change,
	trace.KindStreamUse:    ofArena((*analyzer).streamUse),
	trace.KindPoolRelease:  (*analyzer).release,
	trace.KindIteration:    (*analyzer).mark,
	trace.KindPhaseBegin:   (*analyzer).phase,
	trace.KindPhaseEnd:     (*analyzer).phase,
	trace.KindStack:        func(a *analyzer, e *trace.Event) error { a.attribution.Stack(e); return nil },
	trace.KindLabel:        (*analyzer).label,
	trace.KindCaptureBegin: (*analyzer).capture,
	trace.KindCaptureEnd:   (*analyzer).capture,
	trace.KindAlias:        ofArena(func(a *analyzer, ar *arena, e *trace.Event) error { return a.graphs.Alias(ar.graphs, e) }),
	trace.KindUnalias:      ofArena(func(a *analyzer, ar *arena, e *trace.Event) error { return a.graphs.Alias(ar.graphs, e) }),
	trace.KindReclaim:      func(a *analyzer, e *trace.Event) error { a.unserved(e); return nil },
	trace.KindOOM: func(a *analyzer, e *trace.Event) error {
		if ar := a.unserved(e); ar != nil {
			return a.oom(ar.device, ar.Arena, e)
		}
		return a.oom(a.deviceOf(e.Device), nil, e)
	},
	trace.KindExternalAlloc: func(a *analyzer, e *trace.Event) error {
		a.others.OtherLibrary(a.deviceOf(e.Device).others, e)
		return nil
	},
	trace.KindExternalFree: func(a *analyzer, e *trace.Event) error {
		a.others.OtherLibrary(a.deviceOf(e.Device).others, e)
		return nil
	},
	trace.KindOverhead:   func(a *analyzer, e *trace.Event) error { a.others.Overhead(a.deviceOf(e.Device).others, e); return nil },
	trace.KindDeviceUsed: (*analyzer).used,
	trace.KindStatistics: (*analyzer).statistics,
	trace.KindKVCache:    (*analyzer).kvEvent,
	trace.KindKVReserve:  (*analyzer).kvEvent,
	trace.KindKVAppend:   (*analyzer).kvEvent,
	trace.KindKVShare:    (*analyzer).kvEvent,
	trace.KindKVFree:     (*analyzer).kvEvent,
	trace.KindLost:       func(a *analyzer, _ *trace.Event) error { a.lost++; return nil },
}

// changes has what an event does to the memory of its arena. Each is handed to the ledger, and to the trackers in their
// order before and after.
var changes = [256]func(*analyzer, *arena, *trace.Event) error{
	trace.KindAlloc:    (*analyzer).alloc,
	trace.KindRestore:  (*analyzer).restore,
	trace.KindFree:     (*analyzer).free,
	trace.KindFreeDone: (*analyzer).freeDone,
	trace.KindShrink:   func(a *analyzer, ar *arena, e *trace.Event) error { return a.ledger.Shrink(ar.Arena, e) },
	trace.KindMap:      (*analyzer).mapped,
	trace.KindUnmap:    (*analyzer).unmapped,
	trace.KindPause:    (*analyzer).pauseOrResume,
	trace.KindResume:   (*analyzer).pauseOrResume,
}

// inRange has what an event does to blocks of an arena that is a range of a graph memory: they are those of the graphs alone.
var inRange = [256]func(*analyzer, *arena, *trace.Event) error{
	trace.KindAlloc:    func(a *analyzer, ar *arena, e *trace.Event) error { return a.graphs.RangeAlloc(ar.graphs, e) },
	trace.KindRestore:  func(a *analyzer, ar *arena, e *trace.Event) error { return a.graphs.RangeAlloc(ar.graphs, e) },
	trace.KindFree:     func(a *analyzer, ar *arena, e *trace.Event) error { return a.graphs.RangeFreed(ar.graphs, e) },
	trace.KindFreeDone: func(*analyzer, *arena, *trace.Event) error { return nil },
	trace.KindShrink: func(_ *analyzer, _ *arena, e *trace.Event) error {
		return fmt.Errorf("arena %d is a range of a graph memory, whose blocks have no slack", e.Arena)
	},
}

// ofArena is a handler of the arena of an event.
func ofArena(handle func(*analyzer, *arena, *trace.Event) error) func(*analyzer, *trace.Event) error {
	return func(a *analyzer, e *trace.Event) error {
		ar, err := a.arenaOf(e)
		if err != nil {
			return err
		}
		return handle(a, ar, e)
	}
}

// passOver counts the kinds that this version does not know.
func (a *analyzer) passOver(e *trace.Event) error {
	if !e.Kind.Valid() {
		a.unknown++
	}
	return nil
}

// change takes an event that changes memory of an arena.
func (a *analyzer) change(e *trace.Event) error {
	ar, err := a.arenaOf(e)
	if err != nil {
		return err
	}
	if ar.graphs.InRange() && inRange[e.Kind] != nil {
		return inRange[e.Kind](a, ar, e)
	}
	switch err := changes[e.Kind](a, ar, e); {
	case err == errNotDone:
		return nil
	case err != nil:
		return err
	}
	return a.finishEvent(ar, e)
}

// finishEvent makes the ledger check the terms, and passes the state to the trackers.
func (a *analyzer) finishEvent(ar *arena, e *trace.Event) error {
	d := ar.device
	if err := a.ledger.EndChanges(ar.Arena); err != nil {
		return err
	}
	d.sums.Change(d.Device, e.Seq)
	ar.followFree()
	if ar.use != nil {
		ar.use.observe()
	}
	if !a.opening {
		d.observe(e.Seq, e.Time)
	}
	return nil
}

// streamUse makes the coming free of a block pending, if the stream is not its own.
func (a *analyzer) streamUse(ar *arena, e *trace.Event) error {
	if ar.graphs.InRange() {
		return nil
	}
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
	ar, err := a.arenaOf(e)
	if err != nil {
		return err
	}
	if ar.graphs.InRange() {
		return a.graphs.RangeReleased(ar.graphs)
	}
	return a.ledger.Release(ar.Arena)
}

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
