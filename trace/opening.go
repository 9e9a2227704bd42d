package trace

import (
	"cmp"
	"maps"
	"slices"
)

// Totals are sums over all devices of a process, after its last event. Sizes are in bytes.
type Totals struct {
	Events       int64
	Requested    int64 // T: requested by live allocations
	Provided     int64 // C: in their chunks
	Reserved     int64 // R: mapped by arenas that are not paused
	PeakReserved int64
	OOMs         int64
}

// Add adds the totals of another process. PeakReserved becomes the sum of both peaks.
func (t *Totals) Add(o Totals) {
	t.Events += o.Events
	t.Requested += o.Requested
	t.Provided += o.Provided
	t.Reserved += o.Reserved
	t.PeakReserved += o.PeakReserved
	t.OOMs += o.OOMs
}

// opening gathers what the next part of a process restates in its opening rows: the memory after
// the last event, and the marks that still hold.
type opening struct {
	live    *Live
	arenas  map[int32]Event   // the last arena event of each arena that has not ended
	phases  map[int32][]Event // open phases by thread, the innermost last
	lasting []Event           // stack and overhead events: they hold for good
	sums    map[int32]Event   // the last statistics event of each device
	kv      openingKV
}

func newOpening(strings *Strings) *opening {
	return &opening{
		live: NewLive(), kv: openingKV{text: strings.Text},
		arenas: map[int32]Event{}, phases: map[int32][]Event{}, sums: map[int32]Event{},
	}
}

func (o *opening) add(e *Event) {
	o.live.Add(e)
	switch e.Kind {
	case KindArena:
		o.arenas[e.Arena] = *e
	case KindPoolRelease:
		delete(o.arenas, e.Arena)
	case KindPhaseBegin:
		o.phases[e.Thread] = append(o.phases[e.Thread], *e)
	case KindPhaseEnd:
		o.endPhase(e)
	case KindStack, KindOverhead:
		o.lasting = append(o.lasting, *e)
	case KindStatistics:
		o.sums[e.Device] = *e
	case KindKVCache, KindKVReserve, KindKVAppend, KindKVShare, KindKVFree:
		o.kv.apply(e)
	}
}

// endPhase closes the innermost open phase of the thread with the same name.
func (o *opening) endPhase(e *Event) {
	open := o.phases[e.Thread]
	for i := len(open) - 1; i >= 0; i-- {
		if open[i].Context == e.Context {
			o.phases[e.Thread] = slices.Delete(open, i, i+1)
			return
		}
	}
}

// rows are the opening rows, in order of seq.
func (o *opening) rows() []Event {
	rows := slices.Clone(o.lasting)
	for _, events := range []map[int32]Event{o.arenas, o.sums, o.live.paused} {
		rows = slices.AppendSeq(rows, maps.Values(events))
	}
	rows = append(rows, o.live.mapped...)
	rows = append(rows, o.live.aliases...)
	for b := range o.live.Blocks() {
		rows = append(rows, b.Alloc)
		rows = append(rows, b.Uses...)
		if b.Pending {
			rows = append(rows, b.Free)
		}
	}
	for _, open := range o.phases {
		rows = append(rows, open...)
	}
	rows = slices.AppendSeq(rows, maps.Values(o.live.others))
	rows = append(rows, o.kv.rows()...)
	slices.SortStableFunc(rows, func(a, b Event) int {
		if a.Kind >= KindKVReserve && a.Kind <= KindKVCache && a.Seq == b.Seq {
			return 0 // rows of one sequence are in order
		}
		return cmp.Or(cmp.Compare(a.Seq, b.Seq), cmp.Compare(a.Addr, b.Addr))
	})
	return rows
}
