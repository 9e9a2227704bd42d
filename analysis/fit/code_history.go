package fit

import (
	"cmp"
	"strings"

	"github.com/memprof/memprof/analysis/attribution"
	"github.com/memprof/memprof/trace"
)

// History is a process's events with the life of each allocation.
type History struct {
	text    func(context int32) string
	events  []trace.Event
	blocks  []block
	blockAt []int32 // by event: the block that it allocates or frees; -1 for none
	passes  []pass  // in order, none within another
	peak    int32   // the first event of most requested bytes
	most    int64   // those bytes
	guesses []guess
	lags    []lag
	states  map[string]bool // names of what the optimizer keeps for a parameter

	optimizers map[string]bool // their classes, where the recording has them

	origins map[int32]origin // by context
	stacks  map[int64]string // by node: the innermost frame of attention, or "code"
}

// origin is where a block comes from: the path of a module, "" for none, or else a frame of attention, and the stack's node.
type origin struct {
	module, place string
	node          int64
}

// block is an allocation. Its life is from the event alloc to the event free, which is behind the last one if it lives on.
type block struct {
	alloc, free int32
	bytes       int64
	category    attribution.Category
	pass        int32 // that it was allocated in; -1 outside of all
	round       int32 // how many rounds had begun: forwards behind each other, what their backwards free, and the optimizer's step
	origin
	plain bool // it can be edited
}

// pass is a phase of training: events [from, to).
type pass struct {
	name     string
	from, to int32
	// class begins the names of all modules at work in it: they are of a model that was not the first one called. "" for none.
	class string
}

// ReadHistory reads the history of a process; lives are the categories of its allocations.
func ReadHistory(source trace.Source, text func(int32) string, lives *attribution.Lives) (*History, error) {
	h := &History{text: text, states: map[string]bool{}, optimizers: map[string]bool{}, origins: map[int32]origin{}, stacks: map[int64]string{}}
	r := reader{History: h, lives: lives, live: map[int64]int32{}, freed: map[int64]lag{}, pooled: map[int32]bool{}}
	for e, err := range trace.Events(source) {
		if err != nil {
			return nil, err
		}
		r.add(e)
	}
	r.finish()
	return h, nil
}

// reader makes a History.
type reader struct {
	*History
	lives    *attribution.Lives
	live     map[int64]int32 // index of the block at an address
	pooled   map[int32]bool  // arenas of pools
	open     []string        // phases
	now      int64           // requested bytes
	round    int32
	since    int32 // the last event at which the host waited for the device
	freed    map[int64]lag
	expected int64 // bytes of the workspace that the last guess is about, until it is requested
}

func (r *reader) add(e *trace.Event) {
	at := int32(len(r.events))
	r.events, r.blockAt = append(r.events, *e), append(r.blockAt, -1)
	switch e.Kind {
	case trace.KindArena:
		words := trace.ParseContext(e.Kind, r.text(e.Context)).Map()
		r.pooled[e.Arena] = words["tag"] != "" || attribution.Pooled(words)
	case trace.KindPhaseBegin:
		name := trace.ParseContext(e.Kind, r.text(e.Context)).Name()
		if attribution.IsTraining(name) {
			if len(r.open) == 0 {
				if n := len(r.passes); name == "forward" && (n == 0 || r.passes[n-1].name != name) {
					r.round++
				}
				r.passes = append(r.passes, pass{name: name, from: at, to: -1})
			}
			r.open = append(r.open, name)
		}
	case trace.KindPhaseEnd:
		if name := trace.ParseContext(e.Kind, r.text(e.Context)).Name(); len(r.open) > 0 && attribution.IsTraining(name) {
			if r.open = r.open[:len(r.open)-1]; len(r.open) == 0 {
				r.passes[len(r.passes)-1].to = at
			}
		}
	case trace.KindStack:
		function, file, _ := strings.Cut(r.text(e.Context), " (") // "function (file.py:line)"
		file, _, python := strings.Cut(file[strings.LastIndexByte(file, '/')+1:], ".py:")
		if r.stacks[e.Requested] = cmp.Or(r.stacks[e.Provided], "code"); python && hasAttention(function+file) {
			r.stacks[e.Requested] = function + " in " + file
		}
	case trace.KindAlloc:
		b := block{alloc: at, free: -1, bytes: e.Requested, category: r.lives.Of(e.Seq), pass: -1, round: r.round, origin: r.originOf(e.Context), plain: !r.pooled[e.Arena]}
		if len(r.open) > 0 {
			b.pass = int32(len(r.passes) - 1)
		}
		r.guessed(&b)
		r.live[e.Addr], r.blockAt[at] = int32(len(r.blocks)), int32(len(r.blocks))
		r.blocks = append(r.blocks, b)
		if r.now += e.Requested; r.now > r.most {
			r.most, r.peak = r.now, at
		}
	case trace.KindFree:
		if i, ok := r.live[e.Addr]; ok {
			delete(r.live, e.Addr)
			r.blocks[i].free, r.blockAt[at] = at, i
			r.freed[e.Addr] = lag{free: at, since: r.since}
			r.now -= r.blocks[i].bytes
		}
	case trace.KindLabel:
		r.label(e, at)
	case trace.KindFreeDone, trace.KindIteration:
		r.waited(e, at)
	case trace.KindStreamUse, trace.KindShrink:
		if i, ok := r.live[e.Addr]; ok {
			r.blocks[i].plain = false
		}
	}
}

// finish ends what is open.
func (r *reader) finish() {
	end := int32(len(r.events))
	if n := len(r.passes); n > 0 && r.passes[n-1].to < 0 {
		r.passes[n-1].to = end
	}
	for i := range r.blocks {
		if r.blocks[i].free < 0 {
			r.blocks[i].free = end
		}
	}
	r.classes()
}

// classes finds the class of each pass.
func (h *History) classes() {
	known := int32(-1)
	for i := range h.blocks {
		b := &h.blocks[i]
		if b.pass < 0 || b.module == "" {
			continue
		}
		first, _, _ := strings.Cut(b.module, ".")
		switch p := &h.passes[b.pass]; {
		case b.pass > known:
			if known = b.pass; first[:1] != strings.ToLower(first[:1]) {
				p.class = first
			}
		case p.class != first:
			p.class = ""
		}
	}
}

func (h *History) originOf(context int32) origin {
	o, ok := h.origins[context]
	if !ok {
		o.module, o.node = attribution.ModuleOf(h.text(context))
		o.place = cmp.Or(o.module, h.stacks[o.node])
		h.origins[context] = o
	}
	return o
}

// passAt is the pass that an event lies in; -1 for none.
func (h *History) passAt(event int32) int {
	low, high := 0, len(h.passes)
	for low < high {
		if middle := (low + high) / 2; h.passes[middle].to <= event {
			low = middle + 1
		} else {
			high = middle
		}
	}
	if low < len(h.passes) && h.passes[low].from <= event {
		return low
	}
	return -1
}

// in says whether an event lies in a pass of a name.
func (h *History) in(event int32, name string) bool {
	at := h.passAt(event)
	return at >= 0 && h.passes[at].name == name
}

// trains says whether the process had a backward.
func (h *History) trains() bool {
	for i := range h.passes {
		if h.passes[i].name == "backward" {
			return true
		}
	}
	return false
}

// atPeak says whether a block is live at the peak.
func (h *History) atPeak(b *block) bool { return b.alloc <= h.peak && h.peak < b.free }

// hasAttention says whether a name is one that attention has.
func hasAttention(name string) bool {
	name = strings.ToLower(name)
	return strings.Contains(name, "attn") || strings.Contains(name, "attention")
}
