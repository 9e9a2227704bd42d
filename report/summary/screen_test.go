package summary

import (
	"bytes"
	"strings"
	"testing"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/accounting"
	"github.com/memprof/memprof/analysis/attribution"
	"github.com/memprof/memprof/analysis/iterations"
	"github.com/memprof/memprof/analysis/ledger"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/report/layout"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

const (
	mib = int64(1) << 20
	gib = int64(1) << 30
)

// job is a process that requests 4 GiB at its peak and reserves 5 under preset classic.
func job() (*analysis.Result, *analysis.DeviceResult) {
	at := ledger.Instant{Seq: 100, Time: 5e9, T: 4 * gib, C: 4 * gib, R: 5 * gib}
	d := &analysis.DeviceResult{Memory: &analysis.Memory{Peak: at, MaxR: 5 * gib, MaxT: 4 * gib, Chunks: &analysis.Chunks{}}, Failures: &analysis.Failures{}, Allocs: 10}
	d.Leak = &iterations.Leak{Verdict: iterations.NoLeak, Per: "iteration", Points: 9}
	d.Held = &attribution.Result{}
	d.Held.Uses = []attribution.CategoryUse{
		{Category: attribution.Activations, Requested: 3 * gib, Module: "h.*.attn", ModuleBytes: 2 * gib, Phase: "forward"},
		{Category: attribution.Weights, Requested: 768 * mib, Line: "train.py:7", LineBytes: 768 * mib, Phase: "other"},
		{Category: attribution.Temporaries, Requested: 256 * mib, Phase: "backward"},
	}
	a := &accounting.Account{Processes: []string{"pid1"}}
	a.Peak.At, a.Peak.Context, a.Peak.Modules, a.Peak.Unexplained = at, 500*mib, 100*mib, 6*mib
	a.Peak.Libraries = []accounting.LibraryUse{{Name: "libnccl.so.2", Bytes: 64 * mib}}
	a.Peak.Read = accounting.Reading{Valid: true, Used: 5*gib + 670*mib, Steady: true}
	d.Account = a
	d.Replays = []analysis.Replay{
		{Allocator: "torch", Setting: "native", Reserved: 6 * gib, LeastCard: 7 * gib, Step: 1},
		{Allocator: "torch", Setting: "expandable_segments:True", Reserved: 5 * gib, LeastCard: 6 * gib, Step: 1.02},
		{Allocator: "memprof", Setting: "--preset classic", Reserved: 5 * gib, LeastCard: 5 * gib, Recorded: true},
		{Allocator: "memprof", Setting: "--preset compact", Reserved: 4 * gib, LeastCard: 5 * gib, Step: 1.004},
	}
	r := &analysis.Result{Process: "pid1", Job: &analysis.Job{Path: "run", Command: []string{"python3", "my train.py"}, Frameworks: []string{"torch 2.11.0+cu130"}}}
	return r, d
}

func screenText(r *analysis.Result, d *analysis.DeviceResult, width int) string {
	var out bytes.Buffer
	_ = layout.WriteText(&out, layout.Options{Width: width}, Of(r, d).Sections(width)...) // a buffer does not fail
	return out.String()
}

// TestScreen: the screen at 80 columns, with all its parts.
func TestScreen(t *testing.T) {
	r, d := job()
	d.Savings = []analysis.Saving{
		{ID: "checkpoint", Text: "checkpoint each module of h.*: its 2 GiB of saved tensors are made again in backward, at about a third of a step more", Reserved: gib, LeastCard: 2 * gib},
		{ID: "allocator", Text: "expandable segments", LeastCard: 512 * mib, Allocator: "torch", Setting: "expandable_segments:True"},
	}
	want := `Where the memory went at the peak (5.00 s)
category              bytes   share  most of it in
activations           3 GiB   75.0%  h.*.attn 2 GiB
weights             768 MiB   18.8%  train.py:7
temporaries         256 MiB    6.2%  in backward
requested             4 GiB  100.0%
+ context and code  600 MiB          context 500 MiB, code 100 MiB
+ other libraries    64 MiB          libnccl.so.2
+ other processes       0 B          in use before the job began
+ unexplained         6 MiB          in use, in no term

What it takes to hold that
allocator               reserved  least card   step  what to type
PyTorch, as configured     6 GiB       7 GiB  1.00x  (the job alone)
PyTorch, expandable        5 GiB       6 GiB  1.02x  PYTORCH_ALLOC_CONF=
                                                     expandable_segments:True
memprof classic            5 GiB       5 GiB      –  (recorded)
memprof compact            4 GiB       5 GiB  1.00x  memprof record --preset
                                                     compact --
memprof classic doubles its arenas: 1 GiB more reserved than compact needs
(--section split)

Findings
#  change                                          least card    reserved
1  checkpoint each module of h.*: its 2 GiB of     2 GiB less  1 GiB less
   saved tensors are made again in backward, at
   about a third of a step more
2  expandable segments                           512 MiB less    the same

No leak. No failed request.
Next: memprof report --html run
      memprof fit run

`
	got := screenText(r, d, 80)
	assert.Diff(t, want, got)
	for line := range strings.Lines(got) {
		if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > 80 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	for i := range d.Replays {
		d.Replays[i].Step, d.Replays[i].Simulated = 0, true
	}
	got = screenText(r, d, 80)
	assert.That(t, strings.Contains(got, "\nno step times: the device was simulated\n") && !strings.Contains(got, "1.00x"), "a simulated device has step times:\n%s", got)
}

// TestBands: numbers that a dry run does not know say from what to what they go, in the table and in JSON.
func TestBands(t *testing.T) {
	r, d := job()
	d.Requested = plain.BandOf(4*gib, 5*gib-100*mib)
	for i := range d.Replays {
		d.Replays[i].Simulated, d.Replays[i].Step = true, 0
	}
	d.Replays[0].ReservedBand, d.Replays[0].CardBand = plain.BandOf(6*gib, 6*gib+512*mib), plain.BandOf(7*gib-100*mib, 7*gib)
	d.Replays[1].ReservedBand, d.Replays[1].CardBand = plain.BandOf(5*gib), plain.BandOf(6*gib)
	text := screenText(r, d, 80)
	for _, want := range []string{
		"\nrequested           4 to 4.90 GiB  100.0%\n", "\nPyTorch, as configured  6 to 6.50 GiB  6.90 to 7 GiB     –  (the job alone)\n",
		"\nPyTorch, expandable             5 GiB          6 GiB     –  PYTORCH_ALLOC_CONF=\n",
		"\nfrom A to B: the sizes of some workspaces",
	} {
		assert.That(t, strings.Contains(text, want), "no %q in\n%s", want, text)
	}
	s := Of(r, d)
	assert.That(t, *s.Band == plain.BandOf(4*gib, 5*gib-100*mib) && s.Allocators[0].ReservedBand.Greatest == 6*gib+512*mib && s.Allocators[0].CardBand.Least == 7*gib-100*mib,
		"%+v", s.Allocators[0])
	assert.That(t, s.Allocators[1].ReservedBand == nil && s.Allocators[1].CardBand == nil, "a band of a number that is known: %+v", s.Allocators[1])
}

// TestAllocators: which variable of torch's, whole commands, and rows that were left out.
func TestAllocators(t *testing.T) {
	r, d := job()
	commands := func() (out []string) {
		for _, a := range Of(r, d).Allocators {
			out = append(out, a.Command)
		}
		return out
	}
	want := []string{
		"python3 'my train.py'", "PYTORCH_ALLOC_CONF=expandable_segments:True python3 'my train.py'",
		"memprof record --preset classic -- python3 'my train.py'", "memprof record --preset compact -- python3 'my train.py'",
	}
	assert.Diff(t, want, commands())
	for version, want := range map[string]string{"2.8.0": "PYTORCH_CUDA_ALLOC_CONF", "2.9.1+cu128": "PYTORCH_ALLOC_CONF", "3.0.0": "PYTORCH_ALLOC_CONF"} {
		r.Job.Frameworks = []string{"jax 0.9", "torch " + version}
		assert.Equal(t, Variable(r), want, "torch %s", version)
	}
	for i := range d.Replays {
		d.Replays[i].LeftOut = "the recording has 2,000,000 events"
	}
	s := Of(r, d)
	if a := s.Allocators[0]; a.Command != "memprof fit run" || a.Reserved != nil || a.LeastCard != nil || a.Step != nil {
		t.Errorf("left out: %+v", a)
	}
	if text := screenText(r, d, 100); !strings.Contains(text, "not replayed, since the recording has 2,000,000 events: the command finds the numbers") {
		t.Errorf("left out:\n%s", text)
	}
}

// TestEnd: verdicts on leaks and failures, and the commands that say more.
func TestEnd(t *testing.T) {
	r, d := job()
	d.Leak = &iterations.Leak{}
	if l := Of(r, d).Leak; l.Verdict != "too short" || l.BytesPerIteration != nil {
		t.Errorf("no trend: %+v", l)
	}
	d.Leak = &iterations.Leak{Verdict: iterations.Leaks, Per: "iteration", Slope: 27.1 * float64(mib), Module: "net.3", Line: "train.py:31"}
	if text := screenText(r, d, 100); !strings.Contains(text, "Leak: +27.1 MiB per iteration, most of it from train.py:31.\n") || !strings.Contains(text, "Next: memprof report --section leaks run\n") {
		t.Errorf("a leak:\n%s", text)
	}
	d.OOMCount, d.OOMs = 3, []analysis.OOM{{Request: 5 * gib, Seq: 9, Origin: "net.3", Free: -1, LargestFree: -1, Used: -1, Limit: -1}}
	if text := screenText(r, d, 100); !strings.Contains(text, "3 requests failed, the first of 5 GiB at event 9, for net.3: capacity: a smaller batch, or a larger\nGPU.\n") {
		t.Errorf("a failure:\n%s", text)
	}
}

// TestFindingCommand: the command of a finding is what to type; torch's own allocator takes no words before the job's.
func TestFindingCommand(t *testing.T) {
	r, d := job()
	d.Savings = []analysis.Saving{
		{ID: "allocator", Allocator: "torch", Setting: "native"}, {ID: "allocator", Allocator: "torch", Setting: "expandable_segments:True"},
		{ID: "allocator", Allocator: "memprof", Setting: "--preset compact"}, {ID: "zero-grad"},
		{ID: "workspace", Variable: "CUBLAS_WORKSPACE_CONFIG=:4096:2:16:8"},
	}
	var commands []string
	for _, f := range Of(r, d).Findings {
		if f.Command == nil {
			commands = append(commands, "none")
		} else {
			commands = append(commands, *f.Command)
		}
	}
	assert.Diff(t, []string{
		"python3 'my train.py'", "PYTORCH_ALLOC_CONF=expandable_segments:True python3 'my train.py'", "memprof record --preset compact -- python3 'my train.py'", "none",
		"CUBLAS_WORKSPACE_CONFIG=:4096:2:16:8 python3 'my train.py'",
	}, commands, "commands")
}
