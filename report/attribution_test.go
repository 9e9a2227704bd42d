package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/attribution"
	"github.com/memprof/memprof/analysis/modeltest"
	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/report/reporttest"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// trainer writes down what a training job does, with all that attribution reads.
type trainer struct {
	*modeltest.Recorder
	arena *modeltest.Arena
	spoil func(name string) string // what the job calls what we call name
}

func newTrainer(limit uint64, spoil func(string) string) *trainer {
	r := &trainer{Recorder: modeltest.New(), spoil: spoil}
	arena, err := r.NewArena(0, bfc.Options{Limit: limit}, bfc.NewDevice(bfc.DeviceOptions{VMM: true, Granularity: 2 << 20}), nil)
	if err != nil {
		panic(err)
	}
	r.arena = arena
	return r
}

func (r *trainer) event(kind trace.Kind, node, parent int64, text string) {
	r.Add(trace.Event{
		Kind: kind, Device: trace.NoDevice, Arena: trace.NoArena, Requested: node, Provided: parent, Context: r.Strings.Intern(text),
	})
}

func (r *trainer) phase(name string, do func()) {
	r.event(trace.KindPhaseBegin, 0, 0, name)
	do()
	r.event(trace.KindPhaseEnd, 0, 0, name)
}

func (r *trainer) alloc(bytes int64, module string, stack int) uint64 {
	addr, _ := r.arena.Alloc(uint64(bytes), fmt.Sprintf("module=%s\tstack=%d", r.spoil(module), stack))
	return addr
}

func (r *trainer) label(addr uint64, category, name string) {
	r.Add(trace.Event{Kind: trace.KindLabel, Addr: int64(addr), Context: r.Strings.Intern("category=" + category + "\tname=" + r.spoil(name))})
}

// attributed is a transformer in training, which leaks, or in the end asks for more than there is.
func attributed(spoil func(string) string, exhausts bool) *analysis.Result {
	r := newTrainer(2<<30, spoil)
	frames := []string{
		"<module> (train.py:88)", "train (train.py:61)", "step (train.py:40)", "__call__ (module.py:1775)", "forward (gpt2.py:410)",
		"forward (gpt2.py:233)", "linear (functional.py:2344)", "gelu (activations.py:35)", "_engine_run_backward (graph.py:825)",
	}
	for i, frame := range frames {
		parent := i
		if i == 7 || i == 8 { // gelu is called where linear is, backward in the step
			parent = []int{6, 3}[i-7]
		}
		r.event(trace.KindStack, int64(i+1), int64(parent), r.spoil(frame))
	}
	const layers = 6
	var weights, states []uint64
	var names []string
	weight := func(bytes int64, name string) {
		weights, names = append(weights, r.alloc(bytes, "", 4)), append(names, name)
		r.label(weights[len(weights)-1], "weights", name)
	}
	for i := range int64(layers) {
		weight(24*mib+i*kib, fmt.Sprintf("transformer.h.%d.attn.weight", i))
		weight(40*mib, fmt.Sprintf("transformer.h.%d.mlp.weight", i))
	}
	weight(90*mib, "lm_head.weight")
	step := func(n int64) {
		var input uint64
		r.phase("data", func() { input = r.alloc(3*mib, "", 2) })
		var saved, gradients []uint64
		r.phase(spoil("forward"), func() {
			for i := range layers {
				for _, block := range []string{"attn", "mlp"} {
					scratch := r.alloc(7*mib, fmt.Sprintf("transformer.h.%d.%s", i, block), 7)
					saved = append(saved, r.alloc(20*mib*(min(n, 3)+1)+int64(i), fmt.Sprintf("transformer.h.%d.%s", i, block), 7+i%2))
					r.arena.Free(scratch, false)
				}
			}
		})
		r.phase("backward", func() {
			for i := range saved {
				g := r.alloc(30*mib, fmt.Sprintf("transformer.h.%d", layers-1-i/2), 9)
				gradients = append(gradients, g)
				if i%3 != 0 {
					r.label(g, "gradients", names[len(names)-2-i])
				}
				r.arena.Free(saved[len(saved)-1-i], false)
			}
		})
		r.phase("optimizer", func() {
			for i := range weights {
				if n == 0 {
					states = append(states, r.alloc(9*mib, "", 3))
					r.label(states[i], "optimizer", names[i]+".exp_avg")
				}
				r.arena.Free(r.alloc(5*mib, "", 3), false)
			}
		})
		if !exhausts {
			r.alloc(mib, "", 3) // a loss that the job keeps
		}
		for _, addr := range append(gradients, input) {
			r.arena.Free(addr, false)
		}
		r.Mark(n)
	}
	for n := range int64(6) {
		step(n)
	}
	r.event(trace.KindPhaseBegin, 0, 0, spoil("forward"))
	for exhausts && r.alloc(150*mib, "transformer.h.0.mlp", 8) != 0 {
	}
	result, err := analysis.Run(modeltest.Source(r.Events, 1000), analysis.Options{Process: "rank0", Text: r.Strings.Text})
	if err != nil {
		panic(err)
	}
	return result
}

// spoiled are names that try to break out of tables and markup.
func spoiled() *analysis.Result {
	n := 0
	return attributed(func(name string) string {
		n++
		return strings.ReplaceAll(reporttest.HostileName, "\t", " ")[n%7:] + "." + name
	}, true)
}

// A breakdown shows every byte: what is listed and the line for the rest add up to the last line.
func TestHeldTablesAddUp(t *testing.T) {
	for _, result := range []*analysis.Result{attributed(strings.Clone, false), attributed(strings.Clone, true), spoiled()} {
		d := &result.Devices[0]
		for _, b := range []*attribution.Breakdown{&d.Held.Categories, &d.Held.Phases, &d.Held.Modules} {
			s := groupTable{d.Peak.T, "share of T", &analysis.Chunks{}}.section("", "", b, strings.Clone)
			blocks := 0
			for _, r := range s.Rows {
				n := 0
				if _, err := fmt.Sscan(r[1].Text, &n); err != nil {
					t.Fatal(err)
				}
				blocks += n
			}
			if want := fmt.Sprint(blocks); s.Total[1].Text != want || s.Total[3].Text != "100.0%" {
				t.Errorf("%s blocks in all, %s listed; share %s", s.Total[1].Text, want, s.Total[3].Text)
			}
		}
	}
}

// The groups of live allocations in JSON add up to the instant's requested and provided bytes, exactly.
func TestJSONHeldAddsUp(t *testing.T) {
	type group struct{ Blocks, Requested, Provided int64 }
	type breakdown struct {
		Groups []group
		Rest   group
	}
	type held struct {
		Categories, Phases, Modules, Stacks breakdown
		Kinds                               breakdown `json:"module_kinds"`
	}
	type instant struct{ Live, Requested, Provided int64 }
	for _, result := range []*analysis.Result{attributed(strings.Clone, true), spoiled()} {
		var out bytes.Buffer
		assert.NoError(t, JSON(&out, []*analysis.Result{result}, Scope{}))
		var back struct {
			Processes []struct {
				Devices []struct {
					Peak instant
					Held held `json:"held_at_peak"`
					OOMs []struct {
						At   instant
						Held held
					}
					Phases []struct {
						AllocBytes int64 `json:"alloc_bytes"`
					}
				}
			}
		}
		assert.NoError(t, json.Unmarshal(out.Bytes(), &back))
		d := back.Processes[0].Devices[0]
		check := func(h held, at instant) {
			t.Helper()
			for i, b := range []breakdown{h.Categories, h.Phases, h.Modules, h.Kinds, h.Stacks} {
				sum := b.Rest
				for _, g := range b.Groups {
					sum = group{sum.Blocks + g.Blocks, sum.Requested + g.Requested, sum.Provided + g.Provided}
				}
				assert.That(t, sum == (group{at.Live, at.Requested, at.Provided}), "breakdown %d adds up to %+v, at the instant %+v", i, sum, at)
			}
		}
		check(d.Held, d.Peak)
		assert.Must(t, len(d.OOMs) == 1, "%d failed requests", len(d.OOMs))
		check(d.OOMs[0].Held, d.OOMs[0].At)
		assert.That(t, len(d.Phases) >= 5, "%d phases", len(d.Phases))
	}
}

// Provided bytes of a native allocator are not known and in no rendering.
func TestHeldOfANativeAllocator(t *testing.T) {
	result := attributed(strings.Clone, false)
	d := &result.Devices[0]
	for _, native := range []bool{false, true} {
		if native {
			d.Chunks = nil
		}
		for _, s := range attributionSections(d) {
			for _, c := range s.Columns {
				assert.That(t, c.Name != "provided" || !native, "%s has provided bytes", s.Title)
			}
			for _, r := range append(s.Rows, s.Total) {
				assert.That(t, len(r) == len(s.Columns) || r == nil, "%s: %d cells in %d columns", s.Title, len(r), len(s.Columns))
			}
		}
		g := newJSONLive(d.Chunks, d.Held).Categories.Groups[0]
		assert.That(t, (g.Provided == nil) == native, "native %v: provided %v", native, g.Provided)
	}
}
