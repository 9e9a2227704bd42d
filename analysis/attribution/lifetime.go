package attribution

import (
	"slices"
	"strings"

	"github.com/memprof/memprof/analysis/ledger"
	"github.com/memprof/memprof/trace"
)

// Fate is how a block's life ended, as far as its category depends on it.
type Fate uint8

const (
	alive      Fate = iota
	atOnce          // it was freed before anything else was allocated or freed, in forward or backward
	within          // freed before its phase ended, or outside of phases before one began
	inBackward      // freed in backward
	output          // freed in backward or later, and what forward returned or what was made of that
	kept            // freed two iterations after its own, or later
	keptState       // likewise, made after a backward and as large as a parameter
	keptAll         // freed late in a job that neither marks phases nor labels anything
	crossed         // freed in the iteration after its own
	replaced        // made by a module, and freed by a later forward in a job without backward
	goneLater       // freed, and none of these, in a job with phases
	gone            // in one without
)

// What had begun when a block was allocated, in bits.
const (
	bornInPass        = 1 << iota // an iteration or a phase
	bornInModule                  // by a module
	bornAfterForward              // a forward has ended, and its backward has not begun
	bornAfterBackward             // some backward has ended
)

// passes follows what the lifetimes of blocks are measured by: iterations, and the passes of training within them. All
// that is kept of past ones is the last forward, so that it is bounded.
type passes struct {
	marked   bool     // iterations are marked; else each forward counts as one
	begun    [2]int64 // the events after which the newest iterations began, the newest first
	count    int      // iterations that have begun
	changes  int32    // phases that have begun or ended
	born     uint8    // bornInPass, bornAfterForward, bornAfterBackward
	backward bool     // some backward began

	forward forwardPass // the last one
	calls   int         // forwards since the last backward, and between the two backwards before
	before  int
	over    bool // the trace has ended, and no request failed at its end
}

// forwardPass is what the last forward leaves for the loss.
type forwardPass struct {
	open  bool
	child string  // the newest submodule that allocated
	tail  int64   // what it allocated from this event on was by the outermost module, behind its submodules; -1 for none
	last  []int64 // the newest blocks of submodules that are live, the newest last
	ended int64   // the event that ended it
}

// outputsKept is how many of the newest blocks of a forward are followed, to know the newest that it leaves.
const outputsKept = 8

// iteration begins an iteration behind the event seq.
func (p *passes) iteration(seq int64) {
	p.begun[1], p.begun[0] = p.begun[0], seq
	p.count++
	p.born = p.born&^bornAfterForward | bornInPass
}

// Mark takes the mark of an iteration.
func (t *Tracker) Mark(seq int64) {
	if !t.marked {
		t.marked, t.count = true, 1
	}
	t.iteration(seq)
}

// Forwards is how many forwards have begun in a job without marks of iterations.
func (p *passes) Forwards() int { return p.count }

// trains says whether the job had a backward.
func (p *passes) trains() bool { return p.backward }

// lasts says whether what was allocated by the event seq is alive two iterations after its own.
func (p *passes) lasts(seq int64) bool { return p.count > 1 && seq <= p.begun[1] }

// changed takes the begin or end of a phase of training.
func (p *passes) changed(name string, begins bool, seq int64) {
	p.changes++
	p.born |= bornInPass
	switch {
	case name == "forward" && begins:
		if !p.marked {
			p.iteration(seq)
		}
		p.forward = forwardPass{open: true, tail: -1, last: p.forward.last[:0]}
		p.born &^= bornAfterForward
	case name == "forward":
		p.forward.open, p.forward.ended = false, seq
		p.born |= bornAfterForward
		p.calls++
	case name == "backward" && begins:
		if !p.backward || p.calls > 0 {
			p.before, p.calls = p.calls, 0
		}
		p.backward = true
		p.born &^= bornAfterForward
	case name == "backward":
		p.born |= bornAfterBackward
	case begins:
		p.born &^= bornAfterForward
	}
}

// Allocated takes a block that an event makes live in an arena, by its index, and gives it what had begun by then.
func (t *Tracker) Allocated(s *ledger.Segment, e *trace.Event, arena int32) {
	s.Label, s.Visit, s.Phase, s.Born = 0, t.Phases.Visit, t.Phases.Current, t.born
	if s.Visit == 0 {
		s.Visit = outsideVisit(t.changes)
		t.like(s, 1)
	}
	t.likeWorkspace(arena, e.Requested, 1)
	if o := &t.parsed(e.Context).origin; o.Module {
		s.Born |= bornInModule
		if t.forward.open {
			t.forward.allocated(o.Name, e.Seq)
		}
	}
	if t.capturing {
		t.arenas[arena].captured = true
	}
}

// like counts a block that may be the state of an optimizer.
func (t *Tracker) like(s *ledger.Segment, more int) {
	if s.Visit < 0 && s.Born&bornAfterBackward != 0 {
		if p := t.parameterSizes[s.Requested]; p != nil {
			p.like += more
			p.most = max(p.most, p.like)
		}
	}
}

// allocated takes a block of a module.
func (f *forwardPass) allocated(module string, seq int64) {
	if outermost(module) && f.child != "" && !strings.HasPrefix(f.child, module+".") {
		if f.tail < 0 {
			f.tail = seq
		}
		return
	}
	f.child, f.tail = module, -1
	if len(f.last) == outputsKept {
		f.last = slices.Delete(f.last, 0, 1)
	}
	f.last = append(f.last, seq)
}

// outermost says whether a module's name is that of a class: only a module that no other one holds is called so.
func outermost(name string) bool {
	return name != "" && name[0] >= 'A' && name[0] <= 'Z' && !strings.Contains(name, ".")
}

// FateOf is how the life of a block ends that is freed now; alone: nothing was allocated or freed since it was.
func (t *Tracker) FateOf(s *ledger.Segment, now int64, alone bool) Fate {
	f := &t.forward
	if f.open && len(f.last) > 0 {
		if at := slices.Index(f.last, s.Seq); at >= 0 {
			f.last = slices.Delete(f.last, at, at+1)
		}
	}
	t.like(s, -1)
	if s.Label == 0 {
		t.likeWorkspace(s.Block().Arena, s.Requested, -1)
	}
	phase := t.Phases.Name(s.Phase)
	open := t.Phases.Open(s.Visit)
	switch {
	case open && alone && (phase == "forward" || phase == "backward") && t.parameterSizes[s.Requested] == nil:
		return atOnce
	case open:
		return within
	case t.lasts(s.Seq):
		return t.keptAs(s.Born, s.Requested)
	case !t.Phases.Any() && now > 3*(s.Seq+1) && t.parameterSizes == nil:
		return keptAll
	case t.backward && phase == "forward" && !f.open && (f.tail >= 0 && s.Seq >= f.tail || len(f.last) > 0 && s.Seq == f.last[len(f.last)-1]):
		return output
	case t.backward && s.Visit < 0 && s.Born&bornAfterForward != 0 && s.Seq > f.ended && (t.calls == 0 || t.calls >= t.before):
		return output
	case t.inBackward():
		return inBackward
	case !t.backward && f.open && s.Born&bornInModule != 0:
		return replaced
	case s.Visit == outsideVisit(t.changes):
		return within
	case t.marked && s.Seq <= t.begun[0]:
		return crossed
	}
	if !t.Phases.Any() {
		return gone
	}
	return goneLater
}

// keptAs is the fate of a block that persists.
func (t *Tracker) keptAs(born uint8, requested int64) Fate {
	if p := t.parameterSizes[requested]; born&bornAfterBackward != 0 && p != nil && p.most <= mostStates*p.count {
		return keptState
	}
	return kept
}

// inBackward says whether a backward is open.
func (t *Tracker) inBackward() bool {
	for i := range t.Phases.open {
		if t.Phases.Name(t.Phases.open[i].phase) == "backward" {
			return true
		}
	}
	return false
}

// outsideVisit is below 0, and differs after each begin and end of a phase.
func outsideVisit(changes int32) int32 { return -1 - changes }

// Finish says that the trace has ended; failed: a request did, whose job was cut off.
func (t *Tracker) Finish(failed bool) { t.over = !failed }
