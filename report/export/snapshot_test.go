package export

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/report/reporttest"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/tracetest"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// python3 runs a program on a pickle and returns what it prints; without Python the test is left out.
func python3(t *testing.T, program string, pickle []byte) []byte {
	t.Helper()
	interpreter, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3 here to read pickles with")
	}
	file := filepath.Join(t.TempDir(), "snapshot.pickle")
	assert.NoError(t, os.WriteFile(file, pickle, 0o644))
	out, err := exec.Command(interpreter, program, file).CombinedOutput()
	assert.Must(t, err == nil, "%s: %v\n%s", program, err, out)
	return out
}

func snapshotOf(t *testing.T, r *Recording, process *dataset.Process) []byte {
	t.Helper()
	var out bytes.Buffer
	assert.NoError(t, TorchSnapshot(&out, r, process))
	return out.Bytes()
}

// testdata/snapshot.py reads the pickle as the viewers do, checks all they rely on, and prints
// it as JSON.
func TestTorchSnapshot(t *testing.T) {
	r := recorded(t)
	reporttest.Golden(t, "job.snapshot.json", python3(t, "testdata/snapshot.py", snapshotOf(t, r, r.Run.Processes[0])))
}

// On a real recording: what the viewers replay backwards never leaves the segments, and sums
// are those of the report.
func TestTorchSnapshotSamples(t *testing.T) {
	for _, name := range []string{"alexnet", "resnet50", "gpt2"} {
		run, err := dataset.Open(filepath.Join("../../samples", name))
		assert.NoError(t, err)
		r := &Recording{Run: run}
		result, err := r.analyze(run.Processes[0], analysis.Options{})
		assert.NoError(t, err)
		var found struct{ Greatest, Final []int64 }
		assert.NoError(t, json.Unmarshal(python3(t, "testdata/snapshot.py", snapshotOf(t, r, run.Processes[0])), &found))
		d := &result.Devices[0]
		got, want := [2]int64{found.Greatest[0], found.Final[0]}, [2]int64{d.MaxT, d.Final.T}
		assert.Equal(t, got, want, "%s: greatest and last T", name)
	}
}

// Every kind of value comes back as it was.
func TestPickle(t *testing.T) {
	numbers := []int64{0, 1, 255, 256, 65535, 65536, math.MaxInt32, math.MaxInt32 + 1, math.MaxInt64, -1, -129, math.MinInt32, math.MinInt32 - 1, math.MinInt64}
	var want []any
	var out bytes.Buffer
	p := newPickler(buffered(&out))
	item, end := p.list()
	for _, n := range numbers {
		item()
		p.integer(n)
		want = append(want, float64(n))
	}
	for i := range 3000 { // beyond a batch, and beyond the numbers of one byte
		text := fmt.Sprint("text ", i%1500, hostile)
		item()
		p.text(text)
		want = append(want, text)
	}
	item()
	p.text("no \xff UTF-8")
	want = append(want, "no \uFFFD UTF-8")
	item()
	p.boolean(false)
	want = append(want, false)
	end()
	p.ops(opStop)
	assert.NoError(t, p.out.Flush())
	program := filepath.Join(t.TempDir(), "load.py")
	text := "import json, pickle, sys\nprint(json.dumps(pickle.load(open(sys.argv[1], 'rb'))))\n"
	assert.NoError(t, os.WriteFile(program, []byte(text), 0o644))
	var got []any
	assert.NoError(t, json.Unmarshal(python3(t, program, out.Bytes()), &got))
	assert.Diff(t, want, got, "values")
}

// What a range of a graph memory sees of its store is a segment, or its blocks would lie nowhere.
func TestTorchSnapshotAlias(t *testing.T) {
	s := &script{texts: []string{""}}
	s.add(trace.Event{Kind: trace.KindArena, Arena: 0, Addr: base, Requested: -1, Provided: 1 << 30}, "coalesces=1\tgraph_memory=1\tstore=1")
	s.add(trace.Event{Kind: trace.KindArena, Arena: 1, Addr: island, Requested: -1, Provided: 1 << 30}, "coalesces=1\tgraph_memory=1\tshape=a")
	s.block(trace.KindMap, 0, base, 0, 4*mib)
	s.add(trace.Event{Kind: trace.KindAlias, Arena: 1, Addr: island, Provided: 4 * mib}, "store=0")
	s.add(trace.Event{Kind: trace.KindAlloc, Arena: 1, Addr: island, Requested: 1000, Provided: 1024}, "")
	s.add(trace.Event{Kind: trace.KindAlloc, Arena: 1, Addr: island + mib, Requested: 2000, Provided: 2048}, "")
	s.add(trace.Event{Kind: trace.KindFree, Arena: 1, Addr: island, Requested: 1000, Provided: 1024}, "")
	s.add(trace.Event{Kind: trace.KindUnalias, Arena: 1, Addr: island + 2*mib, Provided: 2 * mib}, "store=0")
	dir := t.TempDir()
	tracetest.WriteRun(t, dir, tracetest.Process{Events: s.events, Texts: s.texts})
	run, err := dataset.Open(dir)
	assert.NoError(t, err)
	var found struct {
		Greatest, Final []int64
		Snapshot        struct {
			Segments []struct {
				Total_size, Active_size int64
			}
		}
	}
	assert.NoError(t, json.Unmarshal(python3(t, "testdata/snapshot.py", snapshotOf(t, &Recording{Run: run}, run.Processes[0])), &found))
	got := fmt.Sprint(found.Greatest, found.Final, found.Snapshot.Segments)
	assert.Equal(t, got, "[3000] [2000] [{4194304 0} {2097152 2048}]", "greatest and last T, segments")
}

// What the device had free when a request failed is what its own growth read, not what a
// thread of the process read some time before.
func TestSnapshotTakesReadingsOfArenas(t *testing.T) {
	m := newMemory(1, func(int32) string { return "" })
	m.event(&trace.Event{Kind: trace.KindDeviceUsed, Device: 1, Arena: 3, Requested: 80, Provided: 30})
	m.event(&trace.Event{Kind: trace.KindDeviceUsed, Device: 1, Arena: trace.NoArena, Requested: 80, Provided: 10})
	assert.That(t, m.free == 50, "%d free, want 50", m.free)
}
