package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/memprof/memprof/analysis/summary"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/tracetest"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// rankOf is the recording of one rank of a simulated job: five iterations of two phases. Rank 17 requests twice as much, and
// rank 40 more with every iteration.
func rankOf(rank, world int) tracetest.Process {
	const base = int64(0x7f0000000000)
	texts := []string{"", "growth=double split=classic headroom=0 fraction=0 gc=0 granularity=2097152 coalesces=1 pool=0 tag= main=1", "forward", "backward", "forward/model.layer"}
	p := tracetest.Process{Texts: texts, Meta: dataset.ProcessMeta{Name: fmt.Sprintf("rank%d", rank), PID: 1000 + rank, Rank: rank, LocalRank: rank % 8, WorldSize: world, LocalWorldSize: 8}}
	clock := int64(1_000_000)
	add := func(e trace.Event) {
		clock += 2560
		e.Seq, e.Time, e.Thread = int64(len(p.Events)), clock, int32(rank)
		p.Events = append(p.Events, e)
	}
	size := int64(16<<20 + rank%5<<12)
	if rank == 17 {
		size *= 2
	}
	add(trace.Event{Kind: trace.KindArena, Addr: base, Provided: 80 << 30, Requested: -1, Context: 1})
	add(trace.Event{Kind: trace.KindMap, Addr: base, Requested: 256 << 20, Provided: 256 << 20})
	for i := range int64(5) {
		bytes := size
		if rank == 40 {
			bytes += i * size
		}
		for _, kind := range []trace.Kind{trace.KindPhaseBegin, trace.KindAlloc, trace.KindPhaseEnd} {
			e := trace.Event{Kind: kind, Context: 2, Arena: trace.NoArena, Device: trace.NoDevice}
			if kind == trace.KindAlloc {
				e = trace.Event{Kind: kind, Addr: base, Requested: bytes, Provided: (bytes + 255) &^ 255, Context: 4}
			}
			add(e)
		}
		add(trace.Event{Kind: trace.KindPhaseBegin, Context: 3, Arena: trace.NoArena, Device: trace.NoDevice})
		add(trace.Event{Kind: trace.KindFree, Addr: base, Requested: bytes, Provided: (bytes + 255) &^ 255})
		add(trace.Event{Kind: trace.KindPhaseEnd, Context: 3, Arena: trace.NoArena, Device: trace.NoDevice})
		add(trace.Event{Kind: trace.KindIteration, Requested: i, Arena: trace.NoArena, Device: trace.NoDevice})
	}
	return p
}

// makeFleet records a job of so many ranks, eight on a node, each node a recording, without summaries.
func makeFleet(t testing.TB, ranks int) (dir string) {
	t.Helper()
	dir = t.TempDir()
	// Each part is written through to the disk, which takes minutes for 1,024 of them on a busy one.
	if memory, err := os.MkdirTemp("/dev/shm", "memprof-fleet-"); err == nil {
		t.Cleanup(func() { os.RemoveAll(memory) })
		dir = memory
	}
	for node := range ranks / 8 {
		run := filepath.Join(dir, fmt.Sprintf("node%03d", node))
		assert.NoError(t, os.Mkdir(run, 0o755))
		var processes []tracetest.Process
		info := &dataset.Info{ID: tracetest.RunID, Command: []string{"python3", "train.py"}, Host: fmt.Sprintf("host%d", node), Start: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), ExitStatus: new(int)}
		for rank := 8 * node; rank < 8*node+8; rank++ {
			processes = append(processes, rankOf(rank, ranks))
			info.Processes = append(info.Processes, fmt.Sprintf("rank%d", rank))
		}
		tracetest.WriteRun(t, run, processes...)
		assert.NoError(t, dataset.WriteInfo(run, info))
	}
	return dir
}

// Of 1,024 ranks report and check read the summaries alone: the parts may be gone.
func TestFleet(t *testing.T) {
	notShort(t)
	const ranks = 1024
	dir := makeFleet(t, ranks)
	command := func(code int, args ...string) (string, string) {
		t.Helper()
		var stdout, stderr bytes.Buffer
		got := run(&stdout, &stderr, args)
		assert.Must(t, got == code, "memprof %s: exit code %d, want %d\n%s%s", strings.Join(args, " "), got, code, stdout.String(), stderr.String())
		return stdout.String(), stderr.String()
	}
	if _, errors := command(2, "check", dir, "--gate", "requested.peak < 1GiB"); !strings.Contains(errors, "more than 64 processes are read by their summaries") || !strings.Contains(errors, "memprof record --finish") {
		t.Errorf("without summaries: %s", errors)
	}
	before, _ := command(0, "check", filepath.Join(dir, "node002"), "--without", "ranks", "--gate", "requested.peak < 1GiB", "--gate", "requested.peak{phase=forward} < 1GiB", "--gate", "iteration.steady_idle < 100%", "--gate", "imbalance.requested < 500%", "--json")
	command(0, "report", dir) // writes the summaries
	parts, err := filepath.Glob(filepath.Join(dir, "*", "rank*.parquet"))
	assert.Must(t, err == nil && len(parts) == ranks, "%d parts, %v", len(parts), err)
	for _, part := range parts {
		assert.NoError(t, os.Remove(part))
	}
	text, _ := command(0, "report", dir)
	lines := strings.Count(text, "\n")
	assert.That(t, lines <= 60, "%d lines:\n%s", lines, text)
	for _, want := range []string{"1,024 ranks", "128 hosts", "python3 train.py", "rank40 host5", "rank17 host2", "Outliers"} {
		assert.That(t, strings.Contains(text, want), "no %q in\n%s", want, text)
	}
	for _, line := range strings.Split(text, "\n") {
		n := len([]rune(line))
		assert.That(t, n <= 120, "%d columns: %s", n, line)
	}
	var doc struct {
		Ranks   int
		Metrics []struct {
			Metric                  string
			Least, Median, Greatest float64
			GreatestOf              struct{ Process, Host string } `json:"greatest_of"`
		}
	}
	out, _ := command(0, "report", "--json", dir)
	assert.NoError(t, json.Unmarshal([]byte(out), &doc))
	for _, m := range doc.Metrics {
		if m.Metric == "requested.peak" && (m.GreatestOf.Process != "rank40" || m.GreatestOf.Host != "host5" || m.Greatest != 5*(16<<20) || m.Median != 16<<20+2<<12) {
			t.Errorf("%+v", m)
		}
	}
	assert.That(t, doc.Ranks == ranks, "%d ranks", doc.Ranks)

	// The gates are judged as by the events.
	verdicts, _ := command(1, "check", dir, "--gate", "requested.peak < 60MiB", "--gate", "requested.peak{phase=forward} < 1GiB", "--gate", "iteration.steady_idle < 100%", "--gate", "imbalance.requested < 500%", "--json")
	assert.That(t, strings.Contains(verdicts, `"process": "rank40"`), "check: %s", verdicts)
	one := filepath.Join(dir, "node002")
	recordings, err := summary.Recordings([]string{one})
	assert.Must(t, err == nil && len(recordings) == 1 && len(recordings[0].Results) == 8, "%d recordings, %v", len(recordings), err)
	for _, want := range []string{`"process": "rank17"`, `"found": 33570816`} {
		assert.That(t, strings.Contains(before, want), "by events: no %s in %s", want, before)
	}
	rank17 := recordings[0].Results[1]
	if rank17.Process != "rank17" || rank17.Devices[0].Stored.Device["requested.peak"].Value != 33570816 {
		t.Errorf("by the summary: %s %v", rank17.Process, rank17.Devices[0].Stored.Device["requested.peak"])
	}
	if _, errors := command(2, "check", dir, "--gate", "kv.peak < 1GiB"); errors == "" {
		t.Error("a metric without a value passes")
	}
}
