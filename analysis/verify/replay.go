package verify

import (
	"errors"
	"fmt"

	"github.com/memprof/memprof/analysis/torchalloc"
	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/dataset"
)

// replayer replays the events of one process, arena by arena.
type replayer struct {
	arenas map[int32]*arena // nil for arenas of other allocators
	stores map[int32]*store // of graph memories, by their arena
	lastID int32            // of last
	last   *arena           // the arena of the event before, or nil

	ours, allocs, frees int64
	streams             map[int32]*streams // by device
	released            int64              // growths of arenas that have ended
	reclaiming          map[int32]bool     // devices on which a reclaim is under way
	observed            bool               // there are arenas of an allocator that was only observed
	totals              *totals
	marks               marks

	follower       *torchalloc.Follower // of PyTorch's own allocator; nil without one
	observedArenas int64                // that it follows
	unmodeled      error                // what it does not have
	setInCode      bool                 // the job changed settings of PyTorch's allocator: the model may differ
}

func newReplayer() *replayer {
	return &replayer{arenas: map[int32]*arena{}, stores: map[int32]*store{}, reclaiming: map[int32]bool{}, streams: map[int32]*streams{},
		totals: &totals{seq: -1, devices: map[int32]*sums{}}, marks: marks{phases: map[int32]int{}}}
}

// step replays one event. After a mismatch the replayer must not be used again.
func (r *replayer) step(e *trace.Event, strings *dataset.Strings) *Mismatch {
	if wrong := r.follow(e); wrong != nil {
		return wrong
	}
	if wrong := r.marks.clock.inOrder(e, markStep); wrong != nil {
		return wrong
	}
	switch e.Kind {
	case trace.KindArena:
		return r.begin(e, strings.Text(e.Context))
	case trace.KindReclaim:
		return r.reclaim(e, strings.Text(e.Context))
	case trace.KindIteration:
		r.endIteration()
		return r.marks.iteration(e)
	case trace.KindPhaseBegin, trace.KindPhaseEnd:
		return r.marks.phase(e, strings.Text(e.Context))
	case trace.KindAlias, trace.KindUnalias:
		return r.alias(e, strings.Text(e.Context))
	case trace.KindPoolRelease:
		if s := r.stores[e.Arena]; s != nil {
			delete(r.stores, e.Arena)
			return s.end(e)
		}
		return r.releaseArena(e)
	case trace.KindPause, trace.KindResume:
		return r.pause(e, strings.Text(e.Context))
	case trace.KindAlloc, trace.KindFree, trace.KindFreeDone, trace.KindStreamUse, trace.KindOOM, trace.KindRestore,
		trace.KindMap, trace.KindUnmap, trace.KindGrowFailed, trace.KindMapFailed, trace.KindDeviceUsed, trace.KindShortage, trace.KindShrink,
		trace.KindRegister, trace.KindDeregister, trace.KindTake, trace.KindFence:
		return r.operation(e, strings)
	}
	return nil
}

// endIteration ends the iteration in all streams and arenas, and every reclaim.
func (r *replayer) endIteration() {
	clear(r.reclaiming)
	for _, s := range r.streams {
		s.EndIteration(s.look(nil).mapped)
	}
	for _, a := range r.arenas {
		if a != nil {
			a.heap.EndIteration()
		}
	}
}

// pause pauses the arena of an event, or resumes it.
func (r *replayer) pause(e *trace.Event, text string) *Mismatch {
	a, wrong := r.arena(e)
	if a == nil {
		return wrong
	}
	was := a.paused
	if wrong = a.pause(e, text); a.paused != was {
		r.paused(a, e)
	}
	return wrong
}

// operation replays an event of blocks or of memory, in the graph memory or the arena that it names.
func (r *replayer) operation(e *trace.Event, strings *dataset.Strings) *Mismatch {
	a, wrong := r.arena(e)
	if s := r.stores[e.Arena]; a == nil && s != nil {
		return s.step(e)
	}
	if a == nil {
		return wrong
	}
	if e.Stream != a.stream && e.Kind != trace.KindStreamUse {
		return atEvent(e, fmt.Sprintf("the stream of its arena, %d", a.stream), fmt.Sprintf("stream %d", e.Stream))
	}
	if wrong := a.sums.clock.inOrder(e, timeStep); wrong != nil {
		return wrong
	}
	if taken, wrong := r.stream(a, e, strings); taken || wrong != nil {
		return wrong
	}
	if !ofReclaim(e) {
		delete(r.reclaiming, e.Device)
	}
	return r.apply(a, e)
}

// ofReclaim says whether an event may be part of a reclaim. It begins with maps of what the refused request had unmapped.
func ofReclaim(e *trace.Event) bool {
	switch e.Kind {
	case trace.KindUnmap, trace.KindFreeDone, trace.KindShortage, trace.KindShrink, trace.KindDeregister, trace.KindFence:
		return true
	}
	return e.Kind == trace.KindMap && e.AheadOfNeed()
}

// apply replays an operation in its arena.
func (r *replayer) apply(a *arena, e *trace.Event) *Mismatch {
	switch e.Kind {
	case trace.KindAlloc:
		a.sums.request(e)
		return count(&r.allocs, a.attempt(e))
	case trace.KindFree:
		a.sums.free(e)
		return count(&r.frees, a.free(e))
	case trace.KindFreeDone:
		return a.freeDone(e)
	case trace.KindStreamUse:
		return a.use(e)
	case trace.KindRestore:
		a.sums.request(e)
		return count(&r.allocs, a.restore(e))
	case trace.KindShortage:
		return a.shortage(e)
	case trace.KindRegister, trace.KindDeregister:
		return a.register(e)
	case trace.KindShrink:
		return a.shrink(e)
	case trace.KindOOM:
		return a.attempt(e)
	case trace.KindFence:
		return a.fence(e)
	case trace.KindUnmap:
		return a.unmap(e, r.reclaiming[e.Device])
	}
	if e.Kind == trace.KindMap && e.AheadOfNeed() {
		return a.remap(e)
	}
	return a.memory(e)
}

// count adds 1 to n if there is no mismatch.
func count(n *int64, wrong *Mismatch) *Mismatch {
	if wrong == nil {
		*n++
	}
	return wrong
}

// arena returns the arena of an event; nil for one of another allocator.
func (r *replayer) arena(e *trace.Event) (*arena, *Mismatch) {
	if r.last != nil && r.lastID == e.Arena {
		return r.last, nil
	}
	if e.Arena == trace.NoArena {
		return nil, nil
	}
	a, known := r.arenas[e.Arena]
	if !known && r.ours > 0 {
		return nil, atEvent(e, "an arena that an event before it describes", fmt.Sprintf("arena %d", e.Arena))
	}
	r.last, r.lastID = a, e.Arena
	return a, nil
}

func (r *replayer) begin(e *trace.Event, options string) *Mismatch {
	if r.arenas[e.Arena] != nil {
		return atEvent(e, "an arena that is new", fmt.Sprintf("arena %d a second time", e.Arena))
	}
	a, err := parseArena(e, options)
	if err != nil {
		wrong := atEvent(e, "options of an arena", fmt.Sprintf("%q: %v", options, err))
		if errors.Is(err, bfc.ErrGone) {
			wrong.gone = err
		}
		return wrong
	}
	if wrong := r.graphMemory(e, options, a); wrong != nil {
		return wrong
	}
	r.arenas[e.Arena] = a
	if a != nil {
		r.ours++
		a.sums = r.totals.of(e.Device)
		r.join(a, e)
	}
	if r.follower != nil && r.follower.Of(e) {
		r.observedArenas++
	}
	r.observed = r.observed || a == nil && trace.ParseContext(e.Kind, options).Get("allocator") != ""
	return nil
}

// releaseArena ends an arena, which may have no block and nothing mapped. Its id is not used again.
func (r *replayer) releaseArena(e *trace.Event) *Mismatch {
	a, wrong := r.arena(e)
	if a == nil {
		return wrong
	}
	if stats := a.heap.Stats(); stats.BytesInUse != 0 || stats.Reserved != 0 {
		return atEvent(e, "the end of an arena without blocks and mapped bytes",
			fmt.Sprintf("one with %d bytes in use and %d mapped", stats.BytesInUse, stats.Reserved))
	}
	r.released += a.script.growths
	a.shape.leave()
	delete(r.arenas, e.Arena)
	r.last = nil
	return nil
}

// reclaim ends the attempt of its arena, if it has one. Unmaps of any arena of the device may follow,
// ends of pending blocks, shortages and shrinks. The hook holds the device's lock until the reclaim ends, so that any
// other event of our arenas there comes after it. Its end is no event: a wrong trim right after it looks like a part of it. A reclaim event is also written when the framework is asked to free memory; that
// unmaps nothing by itself.
func (r *replayer) reclaim(e *trace.Event, why string) *Mismatch {
	delete(r.reclaiming, e.Device)
	if why != "framework" {
		r.reclaiming[e.Device] = true
	}
	a, wrong := r.arena(e)
	if a == nil {
		return wrong
	}
	return a.attempt(e)
}

// growths returns how many growths the memory granted in all arenas.
func (r *replayer) growths() int64 {
	n := r.released
	for _, a := range r.arenas {
		if a != nil {
			n += a.script.growths
		}
	}
	return n
}

// unfinished returns the first event of a request that has no end, or nil.
func (r *replayer) unfinished() *trace.Event {
	var first *trace.Event
	for _, a := range r.arenas {
		if a == nil || len(a.script.events) == 0 {
			continue
		}
		if e := &a.script.events[0]; first == nil || e.Seq < first.Seq {
			first = e
		}
	}
	return first
}
