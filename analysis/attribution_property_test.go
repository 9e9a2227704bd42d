package analysis

import (
	"maps"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/memprof/memprof/analysis/attribution"
	"github.com/memprof/memprof/analysis/modeltest"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/tracetest/assert"
	"pgregory.net/rapid"
)

// contextFields is what a context text means.
type contextFields struct {
	name  string // module or text
	stack int64
	kind  string // where it is not the name
}

var contextTexts = map[string]contextFields{
	"":                              {},
	"a text":                        {name: "a text"},
	"lr=0.1\tx":                     {name: "lr=0.1\tx"},
	"\t\t=":                         {name: "\t\t="},
	"modules=x\t module=y":          {name: "modules=x\t module=y"},
	"module=net":                    {name: "net"},
	"module=net.a.b\tstack=2":       {name: "net.a.b", stack: 2},
	"stack=3\tmodule=net.a":         {name: "net.a", stack: 3},
	"stack=4\tmodule=..":            {name: "..", stack: 4},
	"stack=6":                       {stack: 6},
	"stack=5\tname=x":               {stack: 5},
	"module=\tstack=1":              {stack: 1},
	"module=x\tmodule=y":            {name: "x"},
	"stack=-1":                      {},
	"stack=99":                      {stack: 99},
	"stack=1e3\tmodule=x.\x00=":     {name: "x.\x00="},
	"category=x":                    {},
	"module=7.h.10.a1.٣.-1":         {name: "7.h.10.a1.٣.-1", kind: "*.h.*.a1.٣.-1"},
	"module=7.h.0.a1.٣.-1\tstack=1": {name: "7.h.0.a1.٣.-1", stack: 1, kind: "*.h.*.a1.٣.-1"},
	"stack=99999999999999999999999999\tstack=1": {}, // the first counts, and is no number
}

// stackTexts are the frames that the nodes stand for, innermost first; no event has node 99.
var stackTexts = map[int64]string{0: "", 1: "main", 2: "f|main", 3: "g|f|main", 4: "f|main", 5: "g|f|main", 6: "orphan", 99: ""}

// labelFields is what a label means; its module is that of blocks whose context has none.
type labelFields struct {
	category string
	module   contextFields
}

var labelTexts = map[string]labelFields{
	"category=weights\tname=w":                    {category: "weights"},
	"category=weights\tname=net.a.w":              {"weights", contextFields{name: "net.a"}},
	"name=x\tcategory=gradients":                  {category: "gradients"},
	"name=q.7.w\tcategory=gradients":              {"gradients", contextFields{name: "q.7", kind: "q.*"}},
	"category=optimizer":                          {category: "optimizer"},
	"category=optimizer\tname=net.w":              {category: "optimizer"},
	"category=optimizer\tname=net.w.m":            {"optimizer", contextFields{name: "net"}},
	"category=inputs\tcategory=weights\tname=a.b": {category: "inputs"},
	"category=kv_cache\tname=0.keys":              {category: "kv_cache"},
	"name=x.y.z":                                  {},
	"weights":                                     {},
	"category=":                                   {},
	"category=\xff\tname=a.b":                     {},
}

// attributedScenario is a scenario of a process that marks and labels what it does.
func attributedScenario(t *rapid.T) *modeltest.Recorder {
	plain := scenario(t)
	r := modeltest.New()
	pooled := rapid.Bool().Draw(t, "pooled")
	contexts := rapid.SampledFrom(slices.Sorted(maps.Keys(contextTexts)))
	labels := rapid.SampledFrom(slices.Sorted(maps.Keys(labelTexts)))
	names := rapid.SampledFrom([]string{"data", "forward", "backward", "optimizer", "other", "mine", ""})
	add := func(kind trace.Kind, a, b int64, text string) {
		r.Add(trace.Event{Kind: kind, Device: trace.NoDevice, Arena: trace.NoArena, Requested: a, Provided: b, Context: r.Strings.Intern(text)})
	}
	var open []string
	var addresses []int64
	for _, e := range plain.Events {
		text := plain.Strings.Text(e.Context)
		switch e.Kind {
		case trace.KindAlloc, trace.KindOOM:
			text = contexts.Draw(t, "context")
			addresses = append(addresses, e.Addr)
		case trace.KindArena:
			if pooled && e.Arena == 1 {
				text = strings.Replace(text, "pool=0", "pool=1.0", 1)
			}
		}
		e.Context = r.Strings.Intern(text)
		r.Stream = e.Stream
		r.Add(e)
		r.Stream = 0
		if e.Kind == trace.KindArena {
			if e.Arena == 1 {
				for node, call := range []struct {
					parent int64
					frame  string
				}{{0, "main"}, {1, "f"}, {2, "g"}, {1, "f"}, {4, "g"}, {7, "orphan"}} {
					add(trace.KindStack, int64(node+1), call.parent, call.frame)
				}
			}
			continue
		}
		switch rapid.IntRange(0, 9).Draw(t, "event") {
		case 0, 1:
			if len(open) == attribution.MaxOpenPhases { // deeper ones push the outermost out
				break
			}
			open = append(open, names.Draw(t, "phase"))
			add(trace.KindPhaseBegin, 0, 0, open[len(open)-1])
		case 2, 3:
			name := names.Draw(t, "end")
			if len(open) > 0 && rapid.Bool().Draw(t, "ends") {
				name = open[len(open)-1]
				open = open[:len(open)-1]
			}
			add(trace.KindPhaseEnd, 0, 0, name)
		case 4, 5:
			if len(addresses) > 0 {
				at := addresses[rapid.IntRange(0, len(addresses)-1).Draw(t, "labelled")]
				r.Add(trace.Event{Kind: trace.KindLabel, Addr: at, Context: r.Strings.Intern(labels.Draw(t, "label"))})
			}
		case 6:
			add(trace.KindCaptureBegin, 1, 0, "")
		case 7:
			add(trace.KindCaptureEnd, 0, 0, "")
		}
	}
	return r
}

// naiveVisit is a phase from its begin to its end, or to a failed request.
type naiveVisit struct {
	name  string
	ended bool
}

// heldBlock is a block and all that was ever recorded of it.
type heldBlock struct {
	e       trace.Event
	context contextFields
	phase   string // "other" outside of all
	visit   *naiveVisit
	label   labelFields
	freed   int64 // seq of its free, or past the end
	shrunk  int64 // seq of its shrink, or past the end
	lost    int64 // bytes that it lost then
	within  bool
}

// provided is how many bytes it has after an event.
func (h *heldBlock) provided(seq int64) int64 {
	if seq >= h.shrunk {
		return h.e.Provided - h.lost
	}
	return h.e.Provided
}

// naiveAttribution is the definition, executed: all blocks that ever were.
type naiveAttribution struct {
	blocks   []*heldBlock
	live     map[int64]*heldBlock
	pending  map[int64]*heldBlock
	shared   map[int64]bool
	open     []*naiveVisit
	captures int64
	captured map[int32]bool // arenas
	any      bool           // a capture was seen
	pooled   map[int32]bool
}

func (n *naiveAttribution) phase() string {
	if len(n.open) == 0 {
		return "other"
	}
	return n.open[len(n.open)-1].name
}

func (n *naiveAttribution) apply(e trace.Event, text string) {
	switch e.Kind {
	case trace.KindArena:
		n.pooled[e.Arena] = strings.Contains(text, "pool=1.0")
	case trace.KindAlloc:
		h := &heldBlock{e: e, context: contextTexts[text], phase: n.phase(), freed: 1 << 60, shrunk: 1 << 60}
		if len(n.open) > 0 {
			h.visit = n.open[len(n.open)-1]
		}
		n.blocks, n.live[e.Addr] = append(n.blocks, h), h
		n.captured[e.Arena] = n.captured[e.Arena] || n.captures > 0
	case trace.KindShrink:
		h := n.live[e.Addr]
		h.shrunk, h.lost = e.Seq, h.e.Provided-e.Provided
	case trace.KindStreamUse:
		n.shared[e.Addr] = n.shared[e.Addr] || n.live[e.Addr].e.Stream != e.Stream
	case trace.KindFree:
		h := n.live[e.Addr]
		h.freed = e.Seq
		h.within = h.visit != nil && !h.visit.ended
		if n.shared[e.Addr] {
			n.pending[e.Addr] = h
		}
		delete(n.live, e.Addr)
		delete(n.shared, e.Addr)
	case trace.KindFreeDone:
		delete(n.pending, e.Addr)
	case trace.KindLabel:
		for _, h := range []*heldBlock{n.live[e.Addr], n.pending[e.Addr]} {
			if h != nil {
				h.label = labelTexts[text]
			}
		}
	case trace.KindPhaseBegin:
		n.open = append(n.open, &naiveVisit{name: text})
	case trace.KindPhaseEnd:
		for i := len(n.open) - 1; i >= 0; i-- {
			if n.open[i].name == text {
				n.open[i].ended = true
				n.open = slices.Delete(n.open, i, i+1)
				break
			}
		}
	case trace.KindOOM:
		for i, v := range n.open {
			v.ended = true
			n.open[i] = &naiveVisit{name: v.name}
		}
	case trace.KindCaptureBegin, trace.KindCaptureEnd:
		n.captures = e.Requested
		n.any = n.any || n.captures > 0
	}
}

// owner is the origin of the context, or of the label if the context has none.
func (h *heldBlock) owner() contextFields {
	o := h.context
	if o.name == "" {
		o = h.label.module
	}
	if o.kind == "" {
		o.kind = o.name
	}
	return o
}

// at divides what was live after the event of seq, by each of the keys.
func (n *naiveAttribution) at(seq int64) map[string]map[string]attribution.Group {
	out := map[string]map[string]attribution.Group{}
	add := func(by, key string, h *heldBlock) {
		if out[by] == nil {
			out[by] = map[string]attribution.Group{}
		}
		g := out[by][key]
		g.Blocks, g.Requested, g.Provided = g.Blocks+1, g.Requested+h.e.Requested, g.Provided+h.provided(seq)
		out[by][key] = g
	}
	for _, h := range n.blocks {
		if h.e.Seq > seq || h.freed <= seq {
			continue
		}
		add("phase", h.phase, h)
		o := h.owner()
		add("module", o.name, h)
		add("kind", o.kind, h)
		add("stack", stackTexts[h.context.stack], h)
	}
	return out
}

// listed is an Attribution in the terms of the naive one.
func listed(a *attribution.Result) map[string]map[string]attribution.Group {
	out := map[string]map[string]attribution.Group{}
	add := func(by string, b attribution.Breakdown) {
		for _, g := range b.Groups {
			key := g.Name + strings.Join(g.Frames, "|")
			g.Name, g.Frames = "", nil
			if out[by] == nil {
				out[by] = map[string]attribution.Group{}
			}
			out[by][key] = g
		}
	}
	add("phase", a.Phases)
	add("module", a.Modules)
	add("kind", a.Kinds)
	add("stack", a.Stacks)
	return out
}

// Who held what is what the definition counts, at the peak (which labels and frees follow) and at
// every failed request; so is what each phase did.
func TestAttributionIsWhatItsDefinitionCounts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := attributedScenario(t)
		n := &naiveAttribution{
			live: map[int64]*heldBlock{}, pending: map[int64]*heldBlock{}, shared: map[int64]bool{},
			captured: map[int32]bool{}, pooled: map[int32]bool{},
		}
		phases := map[string]attribution.PhaseUse{}
		failed := map[int64]map[string]map[string]attribution.Group{}
		begun := false
		for _, e := range r.Events {
			n.apply(e, r.Strings.Text(e.Context))
			begun = begun || e.Kind == trace.KindPhaseBegin
			if e.Kind == trace.KindOOM {
				failed[e.Seq] = n.at(e.Seq)
			}
			u := phases[n.phase()]
			var liveT, liveC int64
			for _, h := range n.live {
				liveT += h.e.Requested
				liveC += h.provided(e.Seq)
			}
			u.PeakT, u.PeakC = max(u.PeakT, liveT), max(u.PeakC, liveC)
			if e.Kind == trace.KindAlloc {
				u.Allocs++
				u.AllocBytes += e.Requested
			}
			phases[n.phase()] = u
		}
		result, err := Run(modeltest.Source(r.Events, 7), Options{Text: r.Strings.Text, Top: 1000})
		assert.NoError(t, err)
		d := &result.Devices[0]
		if diff := gocmp.Diff(n.at(d.Peak.Seq), listed(d.Held)); diff != "" {
			t.Fatalf("at the peak, seq %d:\n%s", d.Peak.Seq, diff)
		}
		for i, o := range d.OOMs {
			assert.Must(t, (o.Held != nil) == (i < heldOOMs), "failed request %d: held %v", i, o.Held)
			if o.Held == nil {
				continue
			}
			if diff := gocmp.Diff(failed[o.Seq], listed(o.Held)); diff != "" {
				t.Fatalf("at the failed request of seq %d:\n%s", o.Seq, diff)
			}
		}
		if !begun {
			return
		}
		got := map[string]attribution.PhaseUse{}
		for _, u := range d.Phases {
			name := u.Phase
			u.Phase, u.Duration = "", 0
			got[name] = u
		}
		if diff := gocmp.Diff(phases, got); diff != "" {
			t.Fatalf("by phase:\n%s", diff)
		}
	})
}
