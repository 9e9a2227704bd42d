package dataset

import (
	"cmp"
	"maps"
	"slices"

	"github.com/memprof/memprof/trace"
)

// opener follows a process: its rows restate what holds after the last event added, so that a part can be read alone. These
// are the memory and the marks that still hold.
type opener struct {
	live    *trace.Live
	arenas  map[int32]trace.Event   // the last arena event of each arena that has not ended
	phases  map[int32][]trace.Event // open phases by thread, the innermost last
	lasting []trace.Event           // stack and overhead events: they hold for good
	sums    map[int32]trace.Event   // the last statistics event of each device
	kv      openingKV
	marks   int64 // of iterations; no row restates them
}

// newOpener is the state of a process before its first event.
func newOpener(strings *Strings) *opener {
	return &opener{
		live: trace.NewLive(), kv: openingKV{text: strings.Text},
		arenas: map[int32]trace.Event{}, phases: map[int32][]trace.Event{}, sums: map[int32]trace.Event{},
	}
}

// add takes the next event.
func (o *opener) add(e *trace.Event) {
	o.live.Add(e)
	switch e.Kind {
	case trace.KindArena:
		o.arenas[e.Arena] = *e
	case trace.KindPoolRelease:
		delete(o.arenas, e.Arena)
	case trace.KindPhaseBegin:
		o.phases[e.Thread] = append(o.phases[e.Thread], *e)
	case trace.KindPhaseEnd:
		o.endPhase(e)
	case trace.KindStack, trace.KindOverhead:
		o.lasting = append(o.lasting, *e)
	case trace.KindStatistics:
		o.sums[e.Device] = *e
	case trace.KindIteration:
		o.marks++
	case trace.KindKVCache, trace.KindKVReserve, trace.KindKVAppend, trace.KindKVShare, trace.KindKVFree:
		o.kv.apply(e)
	}
}

// endPhase closes the innermost open phase of the thread with the same name.
func (o *opener) endPhase(e *trace.Event) {
	open := o.phases[e.Thread]
	for i := len(open) - 1; i >= 0; i-- {
		if open[i].Context == e.Context {
			o.phases[e.Thread] = slices.Delete(open, i, i+1)
			return
		}
	}
}

// rows restate the state, in order of seq; handedOut: with what was handed out of the memory.
func (o *opener) rows(handedOut bool) []trace.Event {
	rows := append(slices.Clone(o.lasting), o.live.Rows()...)
	if handedOut {
		rows = append(rows, o.live.HandedOut()...) // in the order below a map comes before these
	}
	for _, events := range []map[int32]trace.Event{o.arenas, o.sums} {
		rows = slices.AppendSeq(rows, maps.Values(events))
	}
	for _, open := range o.phases {
		rows = append(rows, open...)
	}
	rows = append(rows, o.kv.rows()...)
	slices.SortStableFunc(rows, func(a, b trace.Event) int {
		if a.Kind >= trace.KindKVReserve && a.Kind <= trace.KindKVCache && a.Seq == b.Seq {
			return 0 // rows of one sequence are in order
		}
		return cmp.Or(cmp.Compare(a.Seq, b.Seq), cmp.Compare(a.Addr, b.Addr))
	})
	return rows
}
