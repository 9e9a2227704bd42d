package analysis

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/memprof/memprof/analysis/attribution"
	"github.com/memprof/memprof/analysis/ledger"
	"github.com/memprof/memprof/analysis/modeltest"
	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/tracetest/assert"
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
func groups(b attribution.Breakdown) (out []string) {
	for _, g := range b.Groups {
		out = append(out, fmt.Sprintf("%s %d", g.Name, g.Requested))
	}
	if b.RestGroups > 0 {
		out = append(out, fmt.Sprintf("%d more %d", b.RestGroups, b.Rest.Requested))
	}
	return out
}

// oneStep is a training step, at whose peak every category has a block. What they are shows later: labels
// come and lifetimes end after the peak.
func oneStep(t *testing.T) *modeltest.Recorder {
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
	return r
}

func TestAttributionOfAnIteration(t *testing.T) {
	d := run(t, oneStep(t), Options{Top: 3, Groups: 3}).Devices[0]
	want := map[string][]string{
		"categories": {"activations 73000", "temporaries 60000", "inputs 4000", "optimizer 2000", "gradients 1001", "weights 1000", "loss 7"},
		"phases":     {"forward 73000", "backward 61001", "data 4000", "other 3007"},
		"modules":    {" 66000", "net.fc 42001", "net.conv.1 23000", "2 more 10007"},
		"kinds":      {" 66000", "net.fc 42001", "net.conv.* 33000", "1 more 7"},
	}
	got := map[string][]string{
		"categories": groups(d.Held.Categories), "phases": groups(d.Held.Phases), "modules": groups(d.Held.Modules),
		"kinds": groups(d.Held.Kinds),
	}
	assert.Diff(t, want, got)
	stacks := attribution.Breakdown{
		Groups: []attribution.Group{
			{Frames: []string{"forward (model.py:7)", "step (train.py:5)", "main (train.py:9)"}, Blocks: 3, Requested: 70_000, Provided: 10_240 + 20_224 + 40_192},
			{Frames: []string{"backward (tensor.py:1)", "step (train.py:5)", "main (train.py:9)"}, Blocks: 2, Requested: 61_001, Provided: 60_160 + 1024},
			{Blocks: 3, Requested: 5007, Provided: 2048 + 256 + 3072}, // none, or one that no event describes
		},
		Rest: attribution.Group{Blocks: 2, Requested: 5000, Provided: 1024 + 4096}, RestGroups: 2,
	}
	// 4000 of step and 1000 of main come behind 5007 without a stack.
	assert.Diff(t, stacks, d.Held.Stacks)
	assert.That(t, d.Held.Known && d.Peak.T == 141_008, "known %v, peak T %d", d.Held.Known, d.Peak.T)
}

func ofAttribution(m Metric) bool {
	return strings.HasPrefix(m.Name, "category.") || strings.HasPrefix(m.Name, "phase.")
}

// attributionValues are the metrics of attribution that a trace has values of.
func attributionValues(d *DeviceResult) map[string]float64 {
	values := map[string]float64{}
	for _, m := range Metrics() {
		if value, _, ok := m.Value(d.Subjects()); ok && ofAttribution(m) {
			values[m.Name] = value
		}
	}
	return values
}

func TestAttributionMetrics(t *testing.T) {
	const T = 141_008.
	want := map[string]float64{
		"category.weights": 1000 / T, "category.weights.bytes": 1000,
		"category.gradients": 1001 / T, "category.gradients.bytes": 1001,
		"category.optimizer": 2000 / T, "category.optimizer.bytes": 2000,
		"category.activations": 73_000 / T, "category.activations.bytes": 73_000,
		"category.inputs": 4000 / T, "category.inputs.bytes": 4000,
		"category.kv_cache": 0, "category.kv_cache.bytes": 0,
		"category.cuda_graphs": 0, "category.cuda_graphs.bytes": 0,
		"category.temporaries": 60_000 / T, "category.temporaries.bytes": 60_000,
		"category.loss": 7 / T, "category.loss.bytes": 7,
		"category.copies": 0, "category.copies.bytes": 0, "category.workspace": 0, "category.workspace.bytes": 0,
		"category.communication": 0, "category.communication.bytes": 0, "category.other": 0, "category.other.bytes": 0,
		// 7,100 when data ends; 77,007 when the first forward has ended and the trifle outside
		// was allocated; the recomputing forward has 81,008, and the backward that it is in 141,008.
		"phase.data.peak": 7100, "phase.forward.peak": 81_008, "phase.backward.peak": 141_008, "phase.other.peak": 77_007,
	}
	d := run(t, oneStep(t), Options{}).Devices[0]
	assert.Diff(t, want, attributionValues(&d))

	r := oneStep(t) // what forward left and nobody freed outlives two iterations
	r.Mark(0)
	r.Mark(1)
	want["category.activations"], want["category.activations.bytes"] = 33_000/T, 33_000
	want["category.copies"], want["category.copies.bytes"] = 40_000/T, 40_000
	d = run(t, r, Options{}).Devices[0]
	allocated := map[string]float64{
		"phase.data.allocated": 4100. / 2, "phase.forward.allocated": 73_000. / 2,
		"phase.backward.allocated": 61_001. / 2, "phase.other.allocated": 3007. / 2,
	}
	for name, value := range allocated {
		want[name] = value
	}
	assert.Diff(t, want, attributionValues(&d))

	silent := modeltest.New()
	alloc(t, vmmArena(t, silent), 1000, "a label of its own")
	d = run(t, silent, Options{}).Devices[0]
	assert.Diff(t, map[string]float64{}, attributionValues(&d))
	got := groups(d.Held.Modules)
	assert.That(t, !d.Held.Known && len(got) == 1 && got[0] == "a label of its own 1000", "known %v, by module %q", d.Held.Known, got)
}

// A failed request cuts phases in two: what an exception lets go of was not temporary.
func TestFailedRequestEndsLifetimes(t *testing.T) {
	r := modeltest.New()
	a := newArena(t, r, bfc.Options{Limit: 8 * mib}, bfc.DeviceOptions{VMM: true, Granularity: 2 * mib})
	end := phase(r, "forward")
	scratch := alloc(t, a, 100, "")
	a.Free(scratch, false)
	x := alloc(t, a, 3*mib, "module=net\tstack=1")
	_, ok := a.Alloc(9*mib, "module=net.big")
	assert.Must(t, !ok, "more than there is")
	a.Free(x, false) // as the exception unwinds, within forward
	y := alloc(t, a, 1000, "")
	a.Free(y, false)
	end()
	d := run(t, r, Options{}).Devices[0]
	got := groups(d.Held.Categories)
	assert.That(t, cmp.Equal(got, []string{"activations 3145728"}), "at the peak: %q", got)
	o := d.OOMs[0]
	assert.Must(t, o.Held != nil && o.Origin == "net.big" && o.Context == "module=net.big", "%+v", o)
	if got := groups(o.Held.Categories); !cmp.Equal(got, []string{"activations 3145728"}) {
		t.Errorf("when the request failed: %q", got)
	}
}

// What a phase did in many iterations is summed up.
func TestPhasesAreSums(t *testing.T) {
	r := modeltest.New()
	a := vmmArena(t, r)
	const n = 2700
	for i := range n {
		end := phase(r, "forward")
		a.Free(alloc(t, a, uint64(i+1), ""), false)
		end()
		r.Mark(int64(i))
	}
	d := run(t, r, Options{}).Devices[0]
	if f := d.Phases[0]; f.Phase != "forward" || f.Allocs != n || f.AllocBytes != n*(n+1)/2 || f.PeakT != n || f.Duration != n*3000+1000 { // one had a growth
		t.Errorf("all iterations: %+v", f)
	}
}

func TestManyPhases(t *testing.T) {
	r := modeltest.New()
	a := vmmArena(t, r)
	var ends []func()
	for i := range 3 * attribution.MaxOpenPhases { // none of them ends in time
		ends = append(ends, phase(r, fmt.Sprintf("phase %d", i)))
		alloc(t, a, 1, "")
	}
	for _, end := range ends {
		end()
	}
	d := run(t, r, Options{}).Devices[0]
	if got := d.Held.Phases.Of(attribution.FurtherPhases); got.Blocks != 3*attribution.MaxOpenPhases-(attribution.MaxPhases-2) || len(d.Held.Phases.Groups) != attribution.MaxPhases-1 {
		t.Errorf("%d groups, further phases %+v", len(d.Held.Phases.Groups), got)
	}
	at := len(d.Phases) - 1
	assert.That(t, d.Phases[at].Phase == "other" && len(d.Phases) == attribution.MaxPhases, "%d phases, the last %+v", len(d.Phases), d.Phases[at])
}

// A part's opening rows restate stacks, phases, blocks and labels; what they do is in no count.
func TestAttributionOfALaterPart(t *testing.T) {
	r := modeltest.New()
	a := vmmArena(t, r)
	stack(r, 1, 0, "main")
	end := phase(r, "forward")
	x := alloc(t, a, 1000, "module=net\tstack=1")
	label(r, x, "category=weights")
	first := int64(len(r.Events))
	stack(r, 1, 0, "main")
	y := alloc(t, a, 500, "module=net\tstack=1")
	a.Free(y, false)
	end()
	d := run(t, r, Options{FirstSeq: first}).Devices[0]
	got := groups(d.Held.Categories)
	assert.That(t, cmp.Equal(got, []string{"weights 1000", "temporaries 500"}), "categories %q", got)
	if got := d.Held.Stacks.Groups; len(got) != 1 || got[0].Requested != 1500 || got[0].Frames[0] != "main" {
		t.Errorf("stacks %+v", got)
	}
	want := []attribution.PhaseUse{
		{Phase: "forward", PeakT: 1500, PeakC: 1536, Allocs: 1, AllocBytes: 500, Duration: 3000},
		{Phase: "other", PeakT: 1000, PeakC: 1024},
	}
	assert.Diff(t, want, d.Phases)
}

// Deep stacks are cut at a depth, and nodes that lie about their callers end.
func TestOddStacks(t *testing.T) {
	r := modeltest.New()
	a := vmmArena(t, r)
	for i := range int64(2 * attribution.MaxFrames) {
		stack(r, i+1, i, fmt.Sprint("f", i+1))
	}
	stack(r, 1<<62, 1<<62, "its own caller")
	stack(r, 1<<62, 1, "restated otherwise")
	stack(r, -5, 0, "negative")
	alloc(t, a, 1000, fmt.Sprintf("stack=%d", 2*attribution.MaxFrames))
	alloc(t, a, 999, fmt.Sprintf("stack=%d", int64(1)<<62))
	alloc(t, a, 998, "stack=-5")
	got := run(t, r, Options{}).Devices[0].Held.Stacks.Groups
	if len(got) != 3 || len(got[0].Frames) != attribution.MaxFrames || got[0].Frames[0] != "f512" || got[0].Frames[attribution.MaxFrames-1] != "f257" ||
		!cmp.Equal(got[1].Frames, []string{"its own caller"}) || got[2].Frames != nil {
		t.Errorf("%+v", got)
	}
}

// What leaks is listed by stack, too; what the first iteration made is no leak.
func TestLeakByStack(t *testing.T) {
	r := modeltest.New()
	a := vmmArena(t, r)
	stack(r, 1, 0, "main (job.py:9)")
	stack(r, 2, 1, "log (job.py:3)")
	stack(r, 3, 1, "log (job.py:3)") // another instruction of the line
	for n := range int64(24) {
		alloc(t, a, 1000, fmt.Sprintf("stack=%d", 2+n%2))
		alloc(t, a, 10, "module=net")
		r.Mark(n)
	}
	l := run(t, r, Options{}).Devices[0].Leak
	want := attribution.Breakdown{Groups: []attribution.Group{
		{Frames: []string{"log (job.py:3)", "main (job.py:9)"}, Blocks: 15, Requested: 15_000, Provided: 15_360},
		{Blocks: 15, Requested: 150, Provided: 3840},
	}}
	diff := cmp.Diff(want, l.Stacks)
	assert.That(t, diff == "" && l.Line == "job.py:3" && l.Module == "net", "%s: %s in %s\n%s", l.Verdict, l.Line, l.Module, diff)
}

// A breakdown that lost a block, or a byte, is an error.
func TestBreakdownsAreChecked(t *testing.T) {
	d := run(t, oneStep(t), Options{Top: 2, Groups: 2}).Devices[0]
	assert.NoError(t, d.Held.Check(d.Peak))
	breakdowns := []*attribution.Breakdown{&d.Held.Categories, &d.Held.Phases, &d.Held.Modules, &d.Held.Kinds, &d.Held.Stacks}
	for i, b := range breakdowns {
		for _, field := range []*int64{&b.Rest.Blocks, &b.Rest.Provided, &b.Groups[0].Requested} {
			*field--
			err := d.Held.Check(d.Peak)
			assert.That(t, err != nil, "breakdown %d may lose something", i)
			*field++
		}
	}
}

// TestLiveGroups checks that the groups divide the blocks of the peak and of the end by all that is known of them; nothing is left
// out, and every breakdown is a sum of them.
func TestLiveGroups(t *testing.T) {
	d := &run(t, oneStep(t), Options{LiveGroups: true}).Devices[0]
	var lines []string
	for _, o := range d.PeakLive {
		frame := ""
		if len(o.Frames) > 0 {
			frame = o.Frames[0]
		}
		lines = append(lines, fmt.Sprintf("%d %q %s %s %s", o.Requested, o.Module, o.Category, o.Phase, frame))
	}
	if diff := cmp.Diff([]string{
		`60000 "" temporaries backward backward (tensor.py:1)`,
		`40000 "net.fc" activations forward forward (model.py:7)`,
		`20000 "net.conv.1" activations forward forward (model.py:7)`,
		`10000 "net.conv.0" activations forward forward (model.py:7)`,
		`4000 "" inputs data step (train.py:5)`,
		`3000 "net.conv.1" activations forward `, // no event describes its stack
		`2000 "" optimizer other `,
		`1001 "net.fc" gradients backward backward (tensor.py:1)`,
		`1000 "net.fc" weights other main (train.py:9)`,
		`7 "evaluation of ours=2" loss other `,
	}, lines); diff != "" {
		t.Errorf("groups at the peak (-want +got):\n%s", diff)
	}
	for _, at := range []struct {
		instant ledger.Instant
		groups  []attribution.LiveGroup
	}{{d.Peak, d.PeakLive}, {d.Final, d.FinalLive}} {
		var sum attribution.Group
		for _, o := range at.groups {
			sum.Add(&attribution.Group{Blocks: o.Blocks, Requested: o.Requested, Provided: o.Provided})
		}
		want := attribution.Group{Blocks: at.instant.Live, Requested: at.instant.T, Provided: at.instant.C}
		assert.That(t, cmp.Equal(sum, want), "groups at seq %d add up to %+v, want %+v", at.instant.Seq, sum, want)
	}
	byCategory := map[string]int64{}
	for _, o := range d.PeakLive {
		byCategory[o.Category] += o.Requested
	}
	for _, g := range d.Held.Categories.Groups {
		assert.That(t, byCategory[g.Name] == g.Requested, "%s: groups have %d, the breakdown %d", g.Name, byCategory[g.Name], g.Requested)
	}
}
