package verify

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/dataset"
)

// streams replays, for a device, what requests take of other arenas before theirs map more. Which work was over is recorded;
// how much is taken, of which arenas and which pages, follows from that.
type streams struct {
	bfc.Streams
	arenas []*arena // that give, the newest first
	others uint64   // bytes mapped by arenas that only take

	takes   []take   // of the request under way, since it last mapped or was refused
	seen    *picture // before the first of them
	pending []bfc.Range
}

// take is a take event, and how much it took.
type take struct {
	event trace.Event
	from  *arena // nil: none could be asked for
	taken uint64
}

// picture is the arenas that give at a moment.
type picture struct {
	mapped, touched uint64
	idle            []*arena // those with pages that no block touches
}

func (s *streams) look(but *arena) *picture {
	p := &picture{mapped: s.others, touched: s.others}
	for _, each := range s.arenas {
		touched := each.heap.Touched()
		p.mapped += each.mapped
		p.touched += touched
		if each != but && each.mapped > touched {
			p.idle = append(p.idle, each)
		}
	}
	return p
}

// join notes an arena that is new.
func (r *replayer) join(a *arena, e *trace.Event) {
	if !a.takes {
		return
	}
	s := r.streams[e.Device]
	if s == nil {
		s = &streams{}
		r.streams[e.Device] = s
	}
	if a.gives {
		s.arenas = slices.Insert(s.arenas, 0, a)
	}
}

// count adds to what an arena has mapped.
func (s *streams) count(a *arena, bytes int64) {
	a.mapped += uint64(bytes)
	if a.takes && !a.gives && !a.paused {
		s.others += uint64(bytes)
	}
}

// paused notes that an arena was paused, or resumed.
func (r *replayer) paused(a *arena, e *trace.Event) {
	if s := r.streams[e.Device]; s != nil && a.takes && !a.gives {
		s.others += map[bool]uint64{true: -a.mapped, false: a.mapped}[a.paused]
	}
}

// stream follows what arenas have mapped, and replays takes. If taken, the event needs no further replay.
func (r *replayer) stream(a *arena, e *trace.Event, strings *dataset.Strings) (taken bool, wrong *Mismatch) {
	s := r.streams[e.Device]
	if s == nil {
		s = &streams{}
	}
	switch {
	case e.Kind == trace.KindTake:
		return true, s.take(a, e, trace.ParseContext(e.Kind, strings.Text(e.Context)).Get("arena"))
	case e.Kind == trace.KindUnmap && len(s.takes) > 0 && s.takes[len(s.takes)-1].from == a && e.Requested == 0:
		return true, s.taken(a, e)
	case e.Kind == trace.KindUnmap:
		if e.ForRequest() || len(a.script.events) > 0 {
			a.released += uint64(e.Provided)
		}
		s.count(a, -e.Provided)
	case e.Kind == trace.KindMap && e.AheadOfNeed():
		s.count(a, e.Provided)
	case e.Kind == trace.KindMap:
		wrong = s.maps(a, e, uint64(e.Provided))
		a.released -= min(a.released, uint64(e.Provided))
		s.count(a, e.Provided)
	case e.Kind == trace.KindMapFailed:
		wrong = s.maps(a, e, uint64(e.Requested))
	case e.Kind == trace.KindGrowFailed:
		page := a.script.granularity
		wrong = s.maps(a, e, (uint64(e.Requested)+page-1)&^(page-1))
	case e.Kind == trace.KindFence:
	case len(s.takes) > 0:
		wrong = atEvent(e, "the map that the take was for, or its refusal", describe(e))
	}
	return false, wrong
}

// take replays a take event: a request looks at the next arena with idle pages.
func (s *streams) take(a *arena, e *trace.Event, text string) *Mismatch {
	if !a.takes || len(s.takes) > 0 && s.takes[0].event.Arena != e.Arena {
		return atEvent(e, "a take by the request under way, in an arena whose requests take pages of others", describe(e))
	}
	if s.seen == nil {
		s.seen = s.look(a)
	}
	t := take{event: *e}
	if text != "" {
		id, err := strconv.ParseInt(text, 10, 32)
		if err != nil || len(s.takes) >= len(s.seen.idle) || s.seen.idle[len(s.takes)].id != int32(id) {
			return atEvent(e, "a take of the next arena that holds idle pages, the newest first", "arena="+text)
		}
		t.from = s.seen.idle[len(s.takes)]
		page := t.from.script.granularity
		s.pending = t.from.heap.Movable((uint64(e.Requested) + page - 1) / page)
	}
	s.takes = append(s.takes, t)
	return nil
}

// taken replays an unmap that a take led to. The unmaps are of the pages that the take chose, in its order, without those that
// the driver refused to unmap.
func (s *streams) taken(a *arena, e *trace.Event) *Mismatch {
	addr, bytes := uint64(e.Addr), uint64(e.Provided)
	for len(s.pending) > 0 {
		next := &s.pending[0]
		if next.Addr <= addr && addr-next.Addr < next.Bytes && bytes > 0 && bytes <= next.Bytes-(addr-next.Addr) {
			next.Bytes -= addr - next.Addr + bytes
			next.Addr = addr + bytes
			break
		}
		s.pending = s.pending[1:]
	}
	if len(s.pending) == 0 {
		return atEvent(e, fmt.Sprintf("an unmap of pages of arena %d that no block touches and no queued work uses", a.id), describe(e))
	}
	if wrong := a.unmapFree(e); wrong != nil {
		return wrong
	}
	last := &s.takes[len(s.takes)-1]
	last.taken += bytes
	s.count(a, -e.Provided)
	return nil
}

// maps checks the takes before a map of so many bytes, or before its refusal.
func (s *streams) maps(a *arena, e *trace.Event, bytes uint64) *Mismatch {
	if !a.takes {
		return nil
	}
	seen, takes := s.seen, s.takes
	if seen == nil {
		seen = s.look(a)
	}
	s.seen, s.takes, s.pending = nil, s.takes[:0], nil
	want := s.Want(bytes, a.released, seen.mapped, seen.touched)
	next := 0
	for ; want > 0 && next < len(seen.idle); next++ {
		if next == len(takes) {
			return atEvent(e, fmt.Sprintf("a take of arena %d before it, for %d bytes", seen.idle[next].id, want), describe(e))
		}
		t := &takes[next]
		if uint64(t.event.Requested) != want {
			return atEvent(&t.event, fmt.Sprintf("a take for %d bytes", want), describe(&t.event))
		}
		if t.from == nil { // a stream is captured
			next++
			break
		}
		want -= min(want, t.taken)
		a.released += t.taken
		s.Took(t.taken)
	}
	if next < len(takes) {
		return atEvent(&takes[next].event, "no take: the request wants no more", describe(&takes[next].event))
	}
	return nil
}
