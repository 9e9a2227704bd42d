package analysis

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/memprof/memprof/analysis/modeltest"
	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/trace"
)

// phase records the begin of a phase and returns what records its end.
func phase(r *modeltest.Recorder, name string) (end func()) {
	e := trace.Event{Kind: trace.KindPhaseBegin, Device: trace.NoDevice, Arena: trace.NoArena, Context: r.Strings.Intern(name)}
	r.Add(e)
	return func() {
		e.Kind = trace.KindPhaseEnd
		r.Add(e)
	}
}

func label(r *modeltest.Recorder, addr uint64, text string) {
	r.Add(trace.Event{Kind: trace.KindLabel, Addr: int64(addr), Context: r.Strings.Intern(text)})
}

func stack(r *modeltest.Recorder, node, parent int64, frame string) {
	r.Add(trace.Event{Kind: trace.KindStack, Device: trace.NoDevice, Arena: trace.NoArena, Requested: node, Provided: parent, Context: r.Strings.Intern(frame)})
}

func vmmArena(t testing.TB, r *modeltest.Recorder) *modeltest.Arena {
	return newArena(t, r, bfc.Options{Limit: bfc.NoLimit}, bfc.DeviceOptions{VMM: true, Granularity: 2 * mib})
}

// groups are the names and requested bytes of a breakdown.
func groups(b Breakdown) (out []string) {
	for _, g := range b.Groups {
		out = append(out, fmt.Sprintf("%s %d", g.Name, g.Requested))
	}
	if b.RestGroups > 0 {
		out = append(out, fmt.Sprintf("%d more %d", b.RestGroups, b.Rest.Requested))
	}
	return out
}

// A training step, at whose peak every category has a block. What they are shows later: labels
// come and lifetimes end after the peak.
func TestHoldersOfAStep(t *testing.T) {
	r := modeltest.New()
	a := vmmArena(t, r)
	stack(r, 1, 0, "main (train.py:9)")
	stack(r, 2, 1, "step (train.py:5)")
	stack(r, 3, 2, "forward (model.py:7)")
	stack(r, 4, 2, "forward (model.py:7)") // the same line, another instruction
	stack(r, 5, 2, "backward (tensor.py:1)")
	weight := alloc(t, a, 1000, "module=net.fc\tstack=1")
	state := alloc(t, a, 2000, "")
	endData := phase(r, "data")
	input := alloc(t, a, 4000, "stack=2")
	loading := alloc(t, a, 100, "")
	a.Free(loading, false)
	endData()
	endForward := phase(r, "forward")
	x := alloc(t, a, 10_000, "module=net.conv.0\tstack=3")
	y := alloc(t, a, 20_000, "module=net.conv.1\tstack=4")
	graph := alloc(t, a, 40_000, "module=net.fc\tstack=4")
	endForward()
	outside := alloc(t, a, 7, "evaluation of ours=2")
	endBackward := phase(r, "backward")
	gradient := alloc(t, a, 1001, "module=net.fc\tstack=5")
	endAgain := phase(r, "forward") // recomputes
	again := alloc(t, a, 3000, "module=net.conv.1\tstack=99")
	endAgain()
	scratch := alloc(t, a, 60_000, "stack=5") // the peak
	a.Free(scratch, false)
	a.Free(again, false)
	a.Free(y, false)
	label(r, gradient, "category=gradients\tname=fc.weight")
	endBackward()
	a.Free(x, false)
	label(r, weight, "category=inputs")
	label(r, weight, "category=weights\tname=fc.weight")
	label(r, state, "category=optimizer")
	label(r, outside, "name=mine")
	label(r, graph, "category=never heard of")
	label(r, 12345, "category=weights") // of nothing live
	a.Free(gradient, false)
	a.Free(outside, false)
	a.Free(input, false)
	a.Free(weight, false)

	d := run(t, r, Options{Top: 3}).Devices[0]
	want := map[string][]string{
		"categories": {"activations 73000", "workspace 60000", "inputs 4000", "optimizer 2000", "gradients 1001", "weights 1000", "other 7"},
		"phases":     {"forward 73000", "backward 61001", "data 4000", "other 3007"},
		"modules":    {" 66000", "net.fc 42001", "net.conv.1 23000", "2 more 10007"},
		"depth 1":    {"net 75001", " 66000", "evaluation of ours=2 7"},
		"depth 2":    {" 66000", "net.fc 42001", "net.conv 33000", "1 more 7"},
		"depth 3":    {" 66000", "net.fc 42001", "net.conv.1 23000", "2 more 10007"},
	}
	got := map[string][]string{
		"categories": groups(d.Held.Categories), "phases": groups(d.Held.Phases), "modules": groups(d.Held.Modules),
	}
	for i := range d.Held.Depths {
		got[fmt.Sprintf("depth %d", i+1)] = groups(d.Held.Depths[i])
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	stacks := Breakdown{
		Groups: []Group{
			{Frames: []string{"forward (model.py:7)", "step (train.py:5)", "main (train.py:9)"}, Blocks: 3, Requested: 70_000, Provided: 10_240 + 20_224 + 40_192},
			{Frames: []string{"backward (tensor.py:1)", "step (train.py:5)", "main (train.py:9)"}, Blocks: 2, Requested: 61_001, Provided: 60_160 + 1024},
			{Blocks: 3, Requested: 5007, Provided: 2048 + 256 + 3072}, // none, or one that was never told
		},
		Rest: Group{Blocks: 2, Requested: 5000, Provided: 1024 + 4096}, RestGroups: 2,
	}
	// 4000 of step and 1000 of main come behind 5007 without a stack.
	if diff := cmp.Diff(stacks, d.Held.Stacks); diff != "" {
		t.Error(diff)
	}
	if !d.Held.Known || d.Peak.T != 141_008 {
		t.Errorf("known %v, peak T %d", d.Held.Known, d.Peak.T)
	}
}
