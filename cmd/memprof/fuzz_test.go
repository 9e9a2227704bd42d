package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"runtime/metrics"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/spool"
	"github.com/memprof/memprof/trace/tracetest"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// The campaign: whatever a file says that memprof reads, every verb ends in two minutes and 2 GiB,
// with 0, 1 or 2, and prints nothing that steers a terminal or a CI. `make fuzz` goes on from what is
// kept in testdata/fuzz, which `go test` runs.
const (
	fuzzTime  = 2 * time.Minute
	fuzzBytes = 2 << 30
)

// bounded runs memprof in this process, which it ends with all stacks where a bound is passed: that
// is how a fuzzing worker learns of it.
func bounded(t *testing.T, args []string) (code int, stdout, stderr []byte) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		ticker := time.NewTicker(20 * time.Millisecond)
		defer ticker.Stop()
		sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
		for began := time.Now(); ; {
			select {
			case <-done:
				return
			case <-ticker.C:
			}
			if metrics.Read(sample); sample[0].Value.Uint64() > fuzzBytes {
				panic(fmt.Sprintf("memprof %q takes more than %d bytes", args, fuzzBytes))
			}
			if time.Since(began) > fuzzTime {
				panic(fmt.Sprintf("memprof %q takes longer than %v", args, fuzzTime))
			}
		}
	}()
	defer close(done)
	var out, errs bytes.Buffer
	code = run(&out, &errs, args)
	return code, out.Bytes(), errs.Bytes()
}

// demandEnd runs memprof and fails where it ends, or prints, as it never may.
func demandEnd(t *testing.T, args ...string) {
	t.Helper()
	code, stdout, stderr := bounded(t, args)
	assert.That(t, code >= exit.Fine && code <= exit.Usage, "memprof %.60q exits %d\n%.2000s", args, code, stderr)
	what := fmt.Sprintf("memprof %.60q", args)
	demandPlain(t, what+": stderr", stderr)
	demandPlain(t, what+": stdout", stdout)
}

// fuzzVerbs are the command lines over a recording; out is a directory to write into.
func fuzzVerbs(dir, out string) [][]string {
	file := func(name string) string { return filepath.Join(out, name) }
	return [][]string{
		{"report", dir},
		{"verify", dir},
		{"check", dir, "--gate", "reserved.peak < 1", "--gate", "requested.peak{phase=forward} < 1GiB", "--annotations",
			"--junit", file("junit"), "--markdown", file("markdown")},
		{"fit", "--card", "1GiB", dir},
		{"fit", "--engine", dir},
		{"export", "torch-snapshot", "-o", file("snapshot"), dir},
		{"export", "pprof", "-o", file("pprof"), dir},
		{"export", "pprof", "--at", "end", "--by", "module", "-o", file("pprof"), dir},
		{"export", "csv", "-o", file("csv"), dir},
		{"report", "--html", "-o", file("page.html"), dir},
		{"report", "--json", dir},
		{"report", "--markdown", dir},
		{"report", "--plots", out, dir},
		{"report", "--at", "40", dir},
		{"report", "--table", "paper", "--plots", out, dir},
		{"diff", dir, dir},
		{"diff", "--html", dir, dir},
		{"top", "--once", dir},
		{"record", "--finish", dir},
		{"lab", "rerun", dir}, // exits 2 at once where no CUDA driver is found
	}
}

// verb runs the one of that number, and report, which reads all.
func verb(t *testing.T, number byte, dir string) {
	t.Helper()
	verbs := fuzzVerbs(dir, t.TempDir())
	demandEnd(t, verbs[int(number)%len(verbs)]...)
}

// eachVerb adds a seed for every verb.
func eachVerb(add func(number byte)) {
	for i := range fuzzVerbs("", "") {
		add(byte(i))
	}
}

// numbers takes numbers off fuzzed bytes; zeros where there are no more.
type numbers struct{ left []byte }

func (n *numbers) byte() byte {
	if len(n.left) == 0 {
		return 0
	}
	b := n.left[0]
	n.left = n.left[1:]
	return b
}

// below is from 0 to limit-1.
func (n *numbers) below(limit int) int {
	return int(uint(n.byte())|uint(n.byte())<<8) % max(limit, 1)
}

// value is one that tends to be trouble, or one near old.
func (n *numbers) value(old int64) int64 {
	values := []int64{0, 1, -1, 2, 255, 256, 1 << 20, 1 << 21, 1 << 31, 1<<31 - 1, 1 << 32, 1 << 40, 1 << 62, 1<<63 - 1, -1 << 63}
	kind := int(n.byte())
	switch {
	case kind < len(values):
		return values[kind]
	case kind < 64:
		return old + int64(int8(n.byte()))
	case kind < 96:
		return old ^ 1<<(n.byte()%64)
	case kind < 128:
		return old + int64(int8(n.byte()))<<20
	}
	return int64(binary.LittleEndian.Uint64(append(n.left[:min(8, len(n.left)):min(8, len(n.left))], make([]byte, 8)...)))
}

// changeEvents changes some events as data say; others come, go, or come twice.
func changeEvents(events []trace.Event, texts int, data []byte) []trace.Event {
	n := &numbers{data}
	for range 16 {
		if len(n.left) == 0 || len(events) == 0 {
			break
		}
		at := n.below(len(events))
		e := &events[at]
		switch n.byte() % 12 {
		case 0:
			events = slices.Delete(events, at, at+1)
		case 1:
			events = slices.Insert(events, n.below(len(events)), *e)
		case 2:
			e.Kind = trace.Kind(n.byte())
			if !e.Kind.Valid() {
				e.Kind = trace.KindAlloc
			}
		case 3:
			e.Device = int32(n.value(int64(e.Device)))
		case 4:
			e.Arena = int32(n.value(int64(e.Arena)))
		case 5:
			e.Stream = n.value(e.Stream)
		case 6:
			e.Addr = n.value(e.Addr)
		case 7:
			e.Requested = n.value(e.Requested)
		case 8:
			e.Provided = n.value(e.Provided)
		case 9:
			e.Context = int32(n.below(texts))
		case 10:
			e.Time = n.value(e.Time)
		case 11:
			other := n.below(len(events))
			events[at], events[other] = events[other], events[at]
		}
	}
	return events
}

// FuzzEvents: events that no hook would write, with checksums that are right.
func FuzzEvents(f *testing.F) {
	notShort(f)
	eachVerb(func(number byte) {
		f.Add([]byte{}, "NAME", number)
		f.Add([]byte{40, 0, 0, 7, 0, 3, 13}, nasty, number)
	})
	f.Fuzz(tryEvents)
}

func tryEvents(t *testing.T, data []byte, name string, number byte) {
	process := tracetest.Mixed()
	for i, text := range process.Texts {
		process.Texts[i] = strings.ReplaceAll(text, "NAME", name[:min(len(name), 4096)])
	}
	process.Events = changeEvents(process.Events, len(process.Texts), data)
	process.Options.PartEvents = 1 + int(number)*2
	dir := t.TempDir()
	tracetest.WriteRun(t, dir, process)
	verb(t, number, dir)
}

// FuzzPart: parts with bytes, numbers of the footer and numbers of page headers changed.
func FuzzPart(f *testing.F) {
	eachVerb(func(number byte) {
		f.Add([]byte{0, 1, 1, 3}, number)
		f.Add([]byte{1, 7, 0, 9}, number)
		f.Add([]byte{2, 3, 0, 5, 0, 11}, number)
	})
	f.Fuzz(tryPart)
}

func tryPart(t *testing.T, data []byte, number byte) {
	dir := t.TempDir()
	tracetest.WriteRun(t, dir, tracetest.Mixed())
	part := filepath.Join(dir, "rank0-0000.parquet")
	whole, err := os.ReadFile(part)
	assert.NoError(t, err)
	assert.NoError(t, os.WriteFile(part, changePart(whole, data), 0o644))
	verb(t, number, dir)
}

func changePart(part, data []byte) []byte {
	n := &numbers{data}
	for range 8 {
		if len(n.left) == 0 {
			break
		}
		before, footer, err := tracetest.Footer(part)
		if err != nil {
			return part
		}
		switch n.byte() % 4 {
		case 0:
			part[n.below(len(part))] ^= 1 << (n.byte() % 8)
		case 1:
			found, _, err := tracetest.Numbers(footer)
			if err != nil || len(found) == 0 {
				continue
			}
			part = tracetest.Sealed(before, found[n.below(len(found))].With(footer, n.value(1)))
		case 2:
			headers, err := tracetest.PageHeaders(before)
			if err != nil || len(headers) == 0 {
				continue
			}
			at := headers[n.below(len(headers))]
			found, size, err := tracetest.Numbers(before[at:])
			if err != nil || len(found) == 0 {
				continue
			}
			changed := found[n.below(len(found))].With(before[at:at+size], n.value(1))
			before = slices.Clone(before)
			copy(before[at:], changed)
			part = tracetest.Sealed(before, footer)
		case 3:
			part[n.below(len(part))] = n.byte()
		}
	}
	return part
}

// FuzzInfo: any run.json.
func FuzzInfo(f *testing.F) {
	notShort(f)
	dir := f.TempDir()
	tracetest.WriteRun(f, dir, tracetest.Mixed())
	text, err := os.ReadFile(filepath.Join(dir, dataset.InfoName))
	assert.NoError(f, err)
	eachVerb(func(number byte) { f.Add(text, number) })
	f.Add([]byte(`{"schema_version":1,"id":"0123456789abcdef","gpus":[{"index":-1,"memory":-1},{"memory":9223372036854775807}],"options":{"readings":"nvml"},"duration_ns":-1}`), byte(0))
	f.Fuzz(func(t *testing.T, text []byte, number byte) {
		dir := t.TempDir()
		tracetest.WriteRun(t, dir, tracetest.Mixed(), tracetest.Process{
			Meta:   dataset.ProcessMeta{Name: dataset.ReadingsName, Rank: -1, LocalRank: -1, WorldSize: -1},
			Events: []trace.Event{{Kind: trace.KindDeviceUsed, Time: 512_000, Requested: 80 << 30, Provided: 20 << 20, Arena: trace.NoArena, Context: 1}},
			Texts:  []string{"", "all=1"},
		})
		assert.NoError(t, os.WriteFile(filepath.Join(dir, dataset.InfoName), text, 0o644))
		verb(t, number, dir)
	})
}

// FuzzRecover: a spool whose bytes are changed, recovered and then read.
func FuzzRecover(f *testing.F) {
	notShort(f)
	eachVerb(func(number byte) { f.Add([]byte{1, 9, 0, 7}, number) })
	f.Fuzz(tryRecover)
}

func tryRecover(t *testing.T, data []byte, number byte) {
	dir := t.TempDir()
	assert.NoError(t, dataset.WriteInfo(dir, &dataset.Info{ID: tracetest.RunID, Command: []string{"job"}}))
	hook := tracetest.NewSpool(t, filepath.Join(dir, spool.Name), 4711, 0)
	mixed := tracetest.Mixed()
	for _, e := range mixed.Events {
		hook.Append(e, mixed.Texts[e.Context])
	}
	hook.Close()
	n := &numbers{data}
	files, err := filepath.Glob(filepath.Join(hook.Dir, "*"))
	assert.Must(t, err == nil && len(files) != 0, "no files in the spool, error %v", err)
	for range 8 {
		if len(n.left) == 0 {
			break
		}
		changeByte(t, files[n.below(len(files))], n)
	}
	demandEnd(t, "top", "--once", dir)
	demandEnd(t, "record", "--finish", dir)
	verb(t, number, dir)
}

// changeByte changes one of the first 16 KiB of a file.
func changeByte(t *testing.T, file string, n *numbers) {
	t.Helper()
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	assert.NoError(t, err)
	defer f.Close()
	at := int64(n.below(16 << 10))
	if _, err := f.WriteAt([]byte{n.byte()}, at); err != nil {
		t.Fatal(err)
	}
}

// recordedOnce is a recording for the targets that change another file.
func recordedOnce(f *testing.F) string {
	dir := f.TempDir()
	tracetest.WriteRun(f, dir, tracetest.Mixed())
	return dir
}

// FuzzCheck: any gate, file of gates and baseline. What these packages take is fuzzed in analysis/gate;
// here is what check makes of it.
func FuzzCheck(f *testing.F) {
	dir := recordedOnce(f)
	f.Add("reserved.peak{tag=kv} < 10GiB", "gates:\n  - waste.external < 25%\n  - gate: reserved.peak < baseline + 2%\n    rank: all\nbaseline: b.json\n", `{"version": 2, "values": []}`)
	f.Add("oom.count == 0", "&a [*a, *a]", `{"version": 2, "values": [{"metric": "reserved.peak", "value": 1e308}, null, {}]}`)
	f.Fuzz(func(t *testing.T, gate, config, baseline string) {
		if strings.ContainsRune(gate, 0) {
			t.Skip("no command line has a NUL")
		}
		out := t.TempDir()
		file := func(name, text string) string {
			path := filepath.Join(out, name)
			assert.NoError(t, os.WriteFile(path, []byte(text), 0o644))
			return path
		}
		demandEnd(t, "check", dir, "--annotations", "--gate="+gate)
		demandEnd(t, "check", dir, "--config", file("memprof.yaml", config))
		relative := []string{"check", dir, "--gate", "reserved.peak < baseline + 2%", "--gate", "waste.external < baseline + 1%", "--baseline", file("baseline.json", baseline)}
		demandEnd(t, append(relative, "--annotations")...)
		demandEnd(t, append(relative, "--update-baseline")...)
	})
}

// FuzzOperations: any operations for replay, any load for kv.
func FuzzOperations(f *testing.F) {
	f.Add("alloc a 3M\nfree a\nalloc b 18446744073709551615\ngc\niteration\n", true)
	f.Add("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n", false)
	f.Add("alloc a 1\n", false)
	f.Fuzz(func(t *testing.T, text string, compact bool) {
		file := filepath.Join(t.TempDir(), "text")
		assert.NoError(t, os.WriteFile(file, []byte(text), 0o644))
		args := []string{"lab", "replay", "--ops", file, "--limit", "1GiB"}
		if compact {
			args = append(args, "--preset", "compact", "--trim", "iteration", "--gc", "--json")
		}
		demandEnd(t, args...)
		demandEnd(t, "kv", "--bytes-per-token", "1KiB", "--memory", "1MiB", "--max-length", "1024", "--policy", "paged:16", "--steps", "100", "--requests", file)
	})
}
