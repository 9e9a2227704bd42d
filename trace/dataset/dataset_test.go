package dataset_test

import (
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/tracetest"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// TestRoundTrip: whatever is written is read, whole and in any split into parts, with the
// checksums that the events themselves give.
func TestRoundTrip(t *testing.T) {
	texts := []string{"", "a", "model.layers.0.attn", strings.Repeat("π", 900), "not \xff UTF-8"}
	rapid.Check(t, func(rt *rapid.T) {
		number := rapid.OneOf(rapid.Int64(), rapid.Int64Range(-1, 3), rapid.Just(int64(0x7f2c00000000)))
		start := rapid.Int64Range(math.MinInt64/2, math.MaxInt64/2).Draw(rt, "start")
		events := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) trace.Event {
			return trace.Event{
				Time: start + rapid.Int64Range(0, int64(dataset.TimeStep)).Draw(t, "time"), Kind: rapid.SampledFrom(trace.Kinds()).Draw(t, "kind").Kind,
				Device: rapid.Int32().Draw(t, "device"), Arena: rapid.Int32().Draw(t, "arena"),
				Thread: rapid.Int32().Draw(t, "thread"), Stream: number.Draw(t, "stream"),
				Addr:      rapid.Int64Range(0, 1<<47).Draw(t, "addr"),
				Requested: rapid.Int64Range(-1, 1<<40).Draw(t, "requested"),
				Provided:  rapid.Int64Range(0, 1<<40).Draw(t, "provided"),
				Context:   rapid.Int32Range(0, int32(len(texts)-1)).Draw(t, "context"),
			}
		}), 0, 60).Draw(rt, "events")
		dir, err := os.MkdirTemp(t.TempDir(), "run")
		assert.NoError(rt, err)
		opt := dataset.WriterOptions{
			PartEvents: rapid.IntRange(1, 70).Draw(rt, "part"),
			RowGroup:   rapid.IntRange(1, 70).Draw(rt, "group"),
		}
		tracetest.WriteRun(t, dir, tracetest.Process{Events: events, Texts: texts, Options: opt})
		p := tracetest.One(t, dir)
		for i := range events {
			events[i].Seq = int64(i)
		}
		tracetest.Same(rt, p, events, texts)
		if p.Events != int64(len(events)) || !p.Whole {
			rt.Fatalf("Events = %d, Whole = %v, want %d, true", p.Events, p.Whole, len(events))
		}
		sums := dataset.NewRolling()
		for i := range events {
			sums.Add(&events[i], texts[events[i].Context])
		}
		if diff := cmp.Diff(sums.Finish(), p.Checksums()); diff != "" {
			rt.Fatalf("checksums differ (-want +got):\n%s", diff)
		}
	})
}

// TestBatches: long traces cross batches, row groups and parts.
func TestBatches(t *testing.T) {
	const n = 150_000
	events, texts := tracetest.Training(n)
	dir := t.TempDir()
	tracetest.WriteRun(t, dir, tracetest.Process{Events: events, Texts: texts,
		Options: dataset.WriterOptions{PartEvents: 70_000, RowGroup: 40_000}})
	p := tracetest.One(t, dir)
	assert.Must(t, len(p.Parts) == 3, "%d parts, want 3", len(p.Parts))
	tracetest.Same(t, p, events, texts)
	assert.Equal(t, len(p.Checksums()), 37, "checksums") // 36 blocks of 4,096 and the rest
	// A part alone brings its own checksum seed.
	alone := tracetest.One(t, p.Parts[1].Path)
	sums := tracetest.Rolling(t, alone)
	assert.That(t, slices.Equal(sums, alone.Checksums()), "checksums of the second part alone differ: %x, want %x", sums, alone.Checksums())
}

// TestSize is the budget of the format on a training-like trace.
func TestSize(t *testing.T) {
	const n = 300_000
	events, texts := tracetest.Training(n)
	dir := t.TempDir()
	tracetest.WriteRun(t, dir, tracetest.Process{Events: events, Texts: texts})
	if got := float64(tracetest.One(t, dir).Bytes()) / n; got > 4 {
		t.Errorf("%.2f bytes an event, want at most 4", got)
	} else {
		t.Logf("%.2f bytes an event", got)
	}
}

// TestReadDoesNotAllocatePerEvent: what reading allocates is for row groups, not rows.
func TestReadDoesNotAllocatePerEvent(t *testing.T) {
	const n = 200_000
	events, texts := tracetest.Training(n)
	dir := t.TempDir()
	tracetest.WriteRun(t, dir, tracetest.Process{Events: events, Texts: texts})
	p := tracetest.One(t, dir)
	allocs := testing.AllocsPerRun(3, func() {
		r, err := p.NewReader()
		assert.NoError(t, err)
		for {
			if _, err := r.Next(); err != nil {
				break
			}
		}
		r.Close()
	})
	assert.That(t, allocs <= n/20, "%.0f allocations for %d events", allocs, n)
}

func TestMetadataGolden(t *testing.T) {
	dir := t.TempDir()
	events, texts := tracetest.Training(5000)
	tracetest.WriteRun(t, dir, tracetest.Process{
		Meta: dataset.ProcessMeta{Name: "rank3", Spool: "p4711.88123456789", PID: 4711, Rank: 3, LocalRank: 1, WorldSize: 8,
			Command: "python3 train.py", Frameworks: "torch 2.11.0+cu130"},
		Events: events, Texts: texts, Options: dataset.WriterOptions{PartEvents: 4500},
		Ending: dataset.Ending{State: dataset.StateStopped, Reason: "disk full", Lost: 2, Problems: []string{"one", "two"}},
	})
	var out strings.Builder
	for _, part := range tracetest.One(t, dir).Parts {
		fmt.Fprintf(&out, "%s\n", filepath.Base(part.Path))
		for _, kv := range part.KeyValues() {
			fmt.Fprintf(&out, "  %s = %q\n", kv[0], kv[1])
		}
	}
	golden(t, "metadata.golden", out.String())
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		assert.NoError(t, os.MkdirAll("testdata", 0o755))
		assert.NoError(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	assert.NoError(t, err)
	assert.Diff(t, string(want), got, "%s differs", path)
}

// TestOpeningState: the second part alone starts from what the first one left in force.
func TestOpeningState(t *testing.T) {
	const mib = 1 << 20
	first := []trace.Event{
		{Kind: trace.KindArena, Addr: 0x1000000, Provided: 1 << 30},
		{Kind: trace.KindMap, Addr: 0x1000000, Requested: 8 * mib, Provided: 8 * mib},
		{Kind: trace.KindPhaseBegin, Thread: 7, Context: 1},
		{Kind: trace.KindPhaseBegin, Thread: 7, Context: 2},
		{Kind: trace.KindAlloc, Addr: 0x1000000, Requested: 1000, Provided: 1024, Context: 3},
		{Kind: trace.KindAlloc, Addr: 0x1000400, Requested: 500, Provided: 512}, // freed: gone
		{Kind: trace.KindAlloc, Addr: 0x1000600, Requested: 700, Provided: 768}, // used elsewhere, freed: pending
		{Kind: trace.KindAlloc, Addr: 0x1000900, Requested: 10, Provided: 256},  // used elsewhere, freed, done: gone
		{Kind: trace.KindAlloc, Addr: 0x1000a00, Requested: 20, Provided: 256},  // used on its own stream, freed: gone
		{Kind: trace.KindStreamUse, Addr: 0x1000600, Stream: 9},
		{Kind: trace.KindStreamUse, Addr: 0x1000900, Stream: 9},
		{Kind: trace.KindStreamUse, Addr: 0x1000a00, Stream: 0},
		{Kind: trace.KindFree, Addr: 0x1000400, Requested: 500, Provided: 512},
		{Kind: trace.KindFree, Addr: 0x1000600, Requested: 700, Provided: 768},
		{Kind: trace.KindFree, Addr: 0x1000900, Requested: 10, Provided: 256},
		{Kind: trace.KindFree, Addr: 0x1000a00, Requested: 20, Provided: 256},
		{Kind: trace.KindFreeDone, Addr: 0x1000900, Requested: 10, Provided: 256},
		{Kind: trace.KindUnmap, Addr: 0x1000000 + 2*mib, Provided: 2 * mib},
		{Kind: trace.KindPhaseEnd, Thread: 7, Context: 2},
		{Kind: trace.KindExternalAlloc, Addr: 0x99, Requested: 4096, Provided: 4096},
		{Kind: trace.KindIteration, Requested: 0},
	}
	second := []trace.Event{{Kind: trace.KindFree, Addr: 0x1000000, Requested: 1000, Provided: 1024}}
	for i := range first {
		first[i].Time = int64(i) * 100
	}
	dir := t.TempDir()
	tracetest.WriteRun(t, dir, tracetest.Process{
		Events: append(slices.Clone(first), second...), Texts: []string{"", "outer", "inner", "fc1"},
		Options: dataset.WriterOptions{PartEvents: len(first), RowGroup: 4},
	})
	p := tracetest.One(t, filepath.Join(dir, "rank0-0001.parquet"))
	want := []string{
		"0 arena 0x1000000+1073741824", "1 map 0x1000000+2097152", "1 free 0x1000000+2816", "1 map 0x1400000+4194304", `2 phase_begin 0x0+0 outer`,
		"4 alloc 0x1000000+1024 fc1", "6 alloc 0x1000600+768", "9 stream_use 0x1000600+0", "13 free 0x1000600+768",
		"19 external_alloc 0x99+4096", "21 free 0x1000000+1024",
	}
	var got []string
	for _, e := range tracetest.Events(t, p) {
		line := fmt.Sprintf("%d %v %#x+%d %s", e.Seq, e.Kind, e.Addr, e.Provided, p.Strings().Text(e.Context))
		got = append(got, strings.TrimSpace(line))
	}
	assert.Diff(t, want, got, "rows of the second part")
	assert.That(t, p.Parts[0].OpeningRows == 10 && p.Events == 1 && !p.Whole,
		"opening rows %d, events %d, whole %v; want 10, 1, false", p.Parts[0].OpeningRows, p.Events, p.Whole)
	whole := tracetest.Events(t, tracetest.One(t, dir))
	assert.That(t, len(whole) == len(first)+1, "the whole process has %d events, want %d: opening rows must not repeat", len(whole), len(first)+1)
}

// A block that is labelled and used in every iteration has one label and one use to restate.
func TestOpeningStateOfLabels(t *testing.T) {
	first := []trace.Event{
		{Kind: trace.KindArena, Addr: 0x1000000, Provided: 1 << 30},
		{Kind: trace.KindMap, Addr: 0x1000000, Requested: 1 << 21, Provided: 1 << 21},
		{Kind: trace.KindStack, Requested: 1, Context: 1},
		{Kind: trace.KindAlloc, Addr: 0x1000000, Requested: 1000, Provided: 1024},
	}
	for i := range 100 {
		first = append(first,
			trace.Event{Kind: trace.KindLabel, Addr: 0x1000000, Context: int32(2 + i%2)},
			trace.Event{Kind: trace.KindStreamUse, Addr: 0x1000000, Stream: int64(8 + i%2)})
	}
	dir := t.TempDir()
	tracetest.WriteRun(t, dir, tracetest.Process{
		Events: append(slices.Clone(first), trace.Event{Kind: trace.KindIteration}), Texts: []string{"", "main", "weights", "inputs"},
		Options: dataset.WriterOptions{PartEvents: len(first)},
	})
	p := tracetest.One(t, filepath.Join(dir, "rank0-0001.parquet"))
	want := []string{"0 arena 0", "1 map 0", "1 free 0", "2 stack main 0", "3 alloc 0", "201 stream_use 8", "202 label inputs 0", "203 stream_use 9", "204 iteration 0"}
	var got []string
	for _, e := range tracetest.Events(t, p) {
		got = append(got, strings.Join(strings.Fields(fmt.Sprintf("%d %v %s %d", e.Seq, e.Kind, p.Strings().Text(e.Context), e.Stream)), " "))
	}
	assert.Diff(t, want, got, "rows of the second part")
}

func TestTotals(t *testing.T) {
	w := dataset.NewWriter(t.TempDir(), dataset.ProcessMeta{Name: "rank0"}, dataset.WriterOptions{})
	steps := []struct {
		event trace.Event
		want  trace.Totals
	}{
		{trace.Event{Kind: trace.KindMap, Addr: 0, Provided: 4 << 20}, trace.Totals{Events: 1, Reserved: 4 << 20, PeakReserved: 4 << 20}},
		{trace.Event{Kind: trace.KindAlloc, Addr: 0, Requested: 100, Provided: 256},
			trace.Totals{Events: 2, Requested: 100, Provided: 256, Reserved: 4 << 20, PeakReserved: 4 << 20}},
		{trace.Event{Kind: trace.KindUnmap, Addr: 1 << 20, Provided: 1 << 20},
			trace.Totals{Events: 3, Requested: 100, Provided: 256, Reserved: 3 << 20, PeakReserved: 4 << 20}},
		{trace.Event{Kind: trace.KindFree, Addr: 0}, trace.Totals{Events: 4, Reserved: 3 << 20, PeakReserved: 4 << 20}},
		{trace.Event{Kind: trace.KindOOM}, trace.Totals{Events: 5, Reserved: 3 << 20, PeakReserved: 4 << 20, OOMs: 1}},
	}
	for i, s := range steps {
		s.event.Seq = int64(i)
		assert.NoError(t, w.Append(&s.event))
		assert.Diff(t, s.want, w.Totals(), "after %v", s.event.Kind)
	}
}

// Process.Advance is called for each batch and at the end of a Reader.
func TestReaderAdvance(t *testing.T) {
	dir := t.TempDir()
	events, texts := tracetest.Training(70_000)
	tracetest.WriteRun(t, dir, tracetest.Process{Events: events, Texts: texts})
	p := tracetest.One(t, dir)
	read, closed := 0, 0
	p.Advance = func(n int) {
		read += n
		if n == 0 {
			closed++
		}
	}
	if _, err := p.ReadAll(); err != nil {
		t.Fatal(err)
	}
	assert.That(t, read == 70_000 && closed == 1, "reported %d events and %d ends, want 70,000 and 1", read, closed)
}
