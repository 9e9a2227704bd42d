package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/accounting"
	"github.com/memprof/memprof/analysis/attribution"
	"github.com/memprof/memprof/analysis/compare"
	"github.com/memprof/memprof/analysis/ledger"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/tracetest"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// record runs memprof record on the simulated device, with further flags and a job.
func (b *bench) record(name string, args ...string) {
	b.Helper()
	cmd, stderr := b.memprof(append([]string{"record", "--device", "sim", "-q", "-o", b.path(name)}, args...)...)
	if err := cmd.Run(); err != nil {
		b.Fatalf("recording %s: %v\n%s", name, err, stderr)
	}
}

// saying is an event without what a rerun does at other times, on other threads and streams.
type saying struct {
	Kind                      string
	Device, Arena             int32
	Addr, Requested, Provided int64
	Context                   string
}

// sayings are the events of the only process of a recording, and how many there are of each kind.
// The driver's overhead is measured at every run, and is left out.
func sayings(t *testing.T, path string) ([]saying, map[string]int) {
	t.Helper()
	run, err := openRun(path)
	assert.NoError(t, err)
	process, err := pickProcess(run, "")
	assert.NoError(t, err)
	reader, err := process.NewReader()
	assert.NoError(t, err)
	defer reader.Close()
	var all []saying
	kinds := map[string]int{}
	places := places{bases: map[int32]int64{}, others: map[int64]int64{}}
	for {
		batch, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return all, kinds
		}
		assert.NoError(t, err)
		for i := range batch.Len() {
			e := batch.Event(i)
			tracetest.CheckContext(t, e.Kind, process.Strings().Text(e.Context))
			if e.Kind == trace.KindOverhead {
				continue
			}
			kinds[e.Kind.String()]++
			s := sayingOf(&e, process.Strings().Text(e.Context))
			if e.Kind == trace.KindTotals && s.Context == "of=calls" {
				s.Requested, s.Provided = 0, 0 // nanoseconds, which differ from run to run
			}
			s.Addr = places.relative(&e, s.Addr)
			all = append(all, s)
		}
	}
}

// places tell addresses that differ from process to process by what is the same in each.
type places struct {
	bases  map[int32]int64 // of arenas: the first address
	others map[int64]int64 // of other libraries: the number in the order of coming
}

func (p *places) relative(e *trace.Event, addr int64) int64 {
	switch {
	case e.Kind == trace.KindExternalAlloc:
		p.others[addr] = int64(len(p.others))
		return p.others[addr]
	case e.Kind == trace.KindExternalFree:
		return p.others[addr]
	case e.Arena == trace.NoArena || addr == 0:
		return addr
	case e.Kind == trace.KindArena:
		p.bases[e.Arena] = addr
	}
	return addr - p.bases[e.Arena]
}

func sayingOf(e *trace.Event, context string) saying {
	s := saying{Kind: e.Kind.String(), Device: e.Device, Arena: e.Arena, Addr: e.Addr, Requested: e.Requested, Provided: e.Provided, Context: context}
	if e.Kind == trace.KindPause || e.Kind == trace.KindResume {
		s.Addr = 0 // the time it took
	}
	return s
}

// TestRerunSaysTheSame records a job that uses all that a recording can know, runs the recording
// again, and wants the same events in the same order.
func TestRerunSaysTheSame(t *testing.T) {
	b := newBench(t)
	for _, job := range []struct {
		name  string
		words []string
		kinds map[string]int // that the job is there for
	}{
		{"training", []string{
			"alloc", "weight", "5M", "holds", "weight", "category=weights%tname=net.fc.weight", "library", "3M",
			"frame", "0", "main (train.py:1)", "frame", "1", "step (train.py:9)",
			"begin", "data", "alloc", "batch", "2M", "end", "data",
			"begin", "forward\tuses=trainer", "in", "module=net.fc%tstack=2", "alloc", "activation", "9M", "end", "forward\tuses=trainer",
			"in", "", "free", "activation", "free", "batch", "iteration", "alloc", "other", "1M", "free", "other", "iteration",
		}, map[string]int{"label": 1, "stack": 2, "external_alloc": 1, "phase_begin": 2, "phase_end": 2, "iteration": 2}},
		{"tags", []string{
			"kept", "trainer", "alloc", "master", "64M", "tag", "", "tag", "rollout", "alloc", "served", "32M", "tag", "",
			"alloc", "plain", "3M", "pause", "rollout", "pause", "trainer", "free", "served", "alloc", "more", "8M",
			"resume", "trainer", "resume", "rollout", "iteration",
		}, map[string]int{"pause": 2, "resume": 2}},
		{"graphs", []string{
			"alloc", "model", "5M", "shape", "bs8", "alloc", "a", "3M", "free", "a", "shape", "",
			"shape", "bs64", "alloc", "b", "5M", "alloc", "c", "11M", "free", "b", "free", "c", "shape", "", "reset", "bs64",
			"graph", "plain", "alloc", "d", "9M", "free", "d", "graph", "", "reset", "plain", "shape", "bs16", "alloc", "e", "2M", "shape", "", "iteration",
		}, map[string]int{"capture_begin": 4, "capture_end": 4, "pool_begin": 4, "pool_end": 4, "alias": 4}},
		{"checkpoint", []string{
			"alloc", "model", "5M", "graph", "tree", "alloc", "a", "1M", "alloc", "b", "2M", "alloc", "c", "3M", "free", "b", "note", "tree", "graph", "",
			"free", "a", "graph", "tree", "alloc", "d", "512K", "back", "tree", "alloc", "e", "4M", "graph", "", "free", "c", "free", "a", "free", "e", "iteration",
		}, map[string]int{"checkpoint": 1, "restore": 2, "capture_begin": 2}},
	} {
		t.Run(job.name, func(t *testing.T) {
			b := b.part(t)
			b.record(job.name, append([]string{"--", b.job}, job.words...)...)
			want, kinds := sayings(t, b.path(job.name))
			for kind, count := range job.kinds {
				assert.That(t, kinds[kind] == count, "the job recorded %d events of %s, want %d", kinds[kind], kind, count)
			}
			again := job.name + "-again"
			b.record(again, "--", "memprof", "lab", "rerun", b.path(job.name))
			got, _ := sayings(t, b.path(again))
			assert.Diff(t, want, got, "the rerun against the recording")
		})
	}
}

// TestRerunOfFailure wants a request that failed to fail again under the same limit: what is held
// at it decides the categories.
func TestRerunOfFailure(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	cmd, _ := b.memprof("record", "--device", "sim", "-q", "--limit", "64MiB", "-o", b.path("full"), "--",
		b.job, "begin", "forward", "alloc", "a", "40M", "alloc", "b", "40M")
	err := cmd.Run()
	assert.Must(t, err != nil && cmd.ProcessState.ExitCode() == 10, "the job ended with %v, want exit code 10", err)
	b.record("again", "--limit", "64MiB", "--", "memprof", "lab", "rerun", b.path("full"))
	want, kinds := sayings(t, b.path("full"))
	got, _ := sayings(t, b.path("again"))
	assert.Must(t, kinds["oom"] == 1, "%d failed requests were recorded, want 1", kinds["oom"])
	assert.Diff(t, want, got, "the rerun against the recording")

	// with room for it the request succeeds, and holds nothing
	b.record("roomy", "--", "memprof", "lab", "rerun", b.path("full"))
	_, kinds = sayings(t, b.path("roomy"))
	if kinds["oom"] != 0 || kinds["alloc"] != 2 || kinds["free"] != 1 {
		t.Errorf("with room: %d failed requests, %d allocations and %d frees; want 0, 2 and 1", kinds["oom"], kinds["alloc"], kinds["free"])
	}
}

// known is what a recording knows of one device, apart from times and the driver's overhead.
type known struct {
	Peak, Final    ledger.Instant
	MaxT, MaxC     int64
	MaxR           int64
	Held           attribution.Result
	Phases         []phaseKnown
	Requested      []int64 // greatest of each iteration
	Reserved       []int64
	AtPeak, AtEnd  []accounting.LibraryUse
	Pinned         int64
	Labels, Stacks int
	Others         map[string]int64 // bytes that calls of a context took
}

type phaseKnown struct {
	Name         string
	PeakT, PeakC int64
}

func knownOf(t *testing.T, path string) known {
	t.Helper()
	run, err := analyze(path, analysis.Options{Top: 1000, Groups: 1000})
	assert.NoError(t, err)
	assert.Must(t, len(run.Results) == 1 && len(run.Results[0].Devices) == 1, "%s: %d processes, want 1 with one device", path, len(run.Results))
	d := &run.Results[0].Devices[0]
	k := known{Peak: d.Peak, Final: d.Final, MaxT: d.MaxT, MaxC: d.MaxC, MaxR: d.MaxR, Held: *d.Held, Others: map[string]int64{}}
	k.Peak.Seq, k.Peak.Time, k.Final.Seq, k.Final.Time = 0, 0, 0, 0
	k.AtPeak, k.AtEnd, k.Pinned = d.Holdings.Peak.Libraries, d.Holdings.Final.Libraries, d.Holdings.Final.HostPinned
	for _, p := range d.Phases {
		k.Phases = append(k.Phases, phaseKnown{p.Phase, p.PeakT, p.PeakC})
	}
	for _, it := range d.Iterations {
		k.Requested, k.Reserved = append(k.Requested, it.PeakT), append(k.Reserved, it.PeakR)
	}
	all, kinds := sayings(t, path)
	k.Labels, k.Stacks = kinds["label"], kinds["stack"]
	for _, s := range all {
		if s.Kind == "external_alloc" {
			k.Others[s.Context] += s.Requested
		}
	}
	return k
}

// TestRerunOfSamples wants a rerun of each recording in samples/ to know what the recording knew.
// Without MEMPROF_TEST_ALL, which make campaign sets, it takes the small ones.
func TestRerunOfSamples(t *testing.T) {
	b := newBench(t)
	samples, err := filepath.Glob("../../samples/*/run.json")
	assert.NoError(t, err)
	zoo, err := filepath.Glob("../../samples/zoo/*/run.json")
	assert.NoError(t, err)
	samples = append(samples, zoo...)
	assert.Must(t, len(samples) >= 20, "%d recordings in samples/, want 20 or more", len(samples))
	short := []string{"alexnet", "zoo/squeezenet1_1", "zoo/llama"} // TestFits reruns gpt2
	for _, file := range samples {
		name, err := filepath.Rel("../../samples", filepath.Dir(file))
		assert.NoError(t, err)
		t.Run(name, func(t *testing.T) {
			if os.Getenv("MEMPROF_TEST_ALL") == "" && !slices.Contains(short, name) {
				t.Skip("one of the larger recordings")
			}
			again := strings.ReplaceAll(name, "/", "-")
			b := b.part(t)
			b.record(again, "--sim-memory", "140GiB", "--", "memprof", "lab", "rerun", filepath.Dir(file))
			want, got := knownOf(t, filepath.Dir(file)), knownOf(t, b.path(again))
			assert.That(t, want.Labels != 0 && len(want.Others) != 0,
				"the recording has %d labels and memory of %d others: nothing to keep", want.Labels, len(want.Others))
			assert.Diff(t, want, got, "the rerun knows something else (-recording +rerun)")
			diff := compare.Compare([][]*analysis.Result{analyzedResults(t, filepath.Dir(file))}, [][]*analysis.Result{analyzedResults(t, b.path(again))})
			for _, change := range slices.Concat(diff.Categories, diff.Modules, diff.Phases, diff.Sizes) {
				assert.Equal(t, change.Outcome(), compare.Same, "%s", change.Name)
			}
			verify, stderr := b.memprof("verify", b.path(again))
			err := verify.Run()
			assert.That(t, err == nil, "verify: %v\n%s", err, stderr)
		})
	}
}

func analyzedResults(t *testing.T, path string) []*analysis.Result {
	t.Helper()
	run, err := analyze(path, analysis.Options{})
	if err != nil {
		t.Fatal(fmt.Errorf("%s: %w", path, err))
	}
	return run.Results
}
