package oomtext

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/memprof/memprof/analysis/modeltest"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// labeled is a text of testdata, and what somebody who read it says of it.
type labeled struct {
	name   string
	labels map[string]string
	text   string
}

// texts are those of testdata. Each file has lines "name: value", "---", and the text.
func texts(tb testing.TB) []labeled {
	tb.Helper()
	files, err := filepath.Glob("testdata/texts/*.txt")
	assert.Must(tb, err == nil && len(files) >= 60, "%d texts, want 60 or more: %v", len(files), err)
	var all []labeled
	for _, file := range files {
		data, err := os.ReadFile(file)
		assert.NoError(tb, err)
		head, text, found := strings.Cut(string(data), "\n---\n")
		assert.Must(tb, found, "%s has no line ---", file)
		l := labeled{strings.TrimSuffix(filepath.Base(file), ".txt"), map[string]string{}, text}
		for _, line := range strings.Split(head, "\n") {
			name, value, _ := strings.Cut(line, ": ")
			l.labels[name] = value
		}
		all = append(all, l)
	}
	return all
}

// figures are the labels that are bytes.
var figures = []struct {
	name string
	of   func(*Finding) *int64
}{
	{"requested", func(f *Finding) *int64 { return f.Requested }},
	{"total", func(f *Finding) *int64 { return f.Total }},
	{"free", func(f *Finding) *int64 { return f.Free }},
	{"allocated", func(f *Finding) *int64 { return f.Allocated }},
	{"reserved_unallocated", func(f *Finding) *int64 { return f.ReservedUnallocated }},
	{"this_process", func(f *Finding) *int64 { return f.ThisProcess }},
	{"other_processes", func(f *Finding) *int64 { return f.OtherProcesses }},
}

// compare lists where a finding differs from the labels.
func (l labeled) compare(f *Finding) []string {
	if f == nil {
		return []string{"nothing found"}
	}
	var wrong []string
	if want := l.labels["framework"]; string(f.Framework) != want {
		wrong = append(wrong, fmt.Sprintf("framework %s, want %s", f.Framework, want))
	}
	if want := l.labels["verdict"]; string(f.Verdict) != want {
		wrong = append(wrong, fmt.Sprintf("verdict %s, want %s", f.Verdict, want))
	}
	for _, figure := range figures {
		got, want := "", l.labels[figure.name]
		if n := figure.of(f); n != nil {
			got = fmt.Sprint(*n)
		}
		if got != want {
			wrong = append(wrong, fmt.Sprintf("%s %s, want %s", figure.name, got, want))
		}
	}
	return wrong
}

// TestTexts: every text is read as it is labeled. The labels were written before the reader.
func TestTexts(t *testing.T) {
	right := 0
	all := texts(t)
	for _, l := range all {
		f, _, err := Read(strings.NewReader(l.text))
		if err != nil {
			t.Errorf("%s: %v", l.name, err)
			continue
		}
		wrong := l.compare(f)
		if len(wrong) == 0 {
			right++
			continue
		}
		t.Errorf("%s: %s", l.name, strings.Join(wrong, "; "))
	}
	t.Logf("%d of %d texts are right", right, len(all))
}

// disguises change how a log shows a text, and nothing that it says.
var disguises = []struct {
	name string
	of   func(string) string
}{
	{"ranks", everyLine("[rank3]: ")},
	{"torchrun", everyLine("[default3]:")},
	{"srun", everyLine("3: ")},
	{"logger", everyLine("2026-03-03 19:38:29,123 ERROR ")},
	{"vllm", everyLine("(EngineCore_DP0 pid=39535) ERROR 03-03 19:38:29 [core.py:708] ")},
	{"docker", everyLine("trainer-1  | ")},
	{"quoted", everyLine("> ")},
	{"crlf", func(s string) string { return strings.ReplaceAll(s, "\n", "\r\n") }},
	{"colors", func(s string) string {
		return "\x1b[1m\x1b[31m" + strings.ReplaceAll(s, " of ", "\x1b[0m of\x1b[36m ") + "\x1b[0m"
	}},
	{"frame", everyLine("│ ")},
	{"wrapped", func(s string) string { return wrapped(s, 60) }},
	{"behind a long log", func(s string) string { return strings.Repeat("step 100 loss 0.25 mem 12.5 GiB\n", 4000) + s }},
	{"before a long log", func(s string) string {
		return s + "\n" + strings.Repeat("Process group was destroyed, rank 7\n", 20000)
	}},
	{"behind a line of 100 KB", func(s string) string { return strings.Repeat("x", 100<<10) + "\n" + s }},
}

func everyLine(prefix string) func(string) string {
	return func(s string) string {
		return prefix + strings.ReplaceAll(strings.TrimSuffix(s, "\n"), "\n", "\n"+prefix) + "\n"
	}
}

// wrapped breaks lines at a width, within words too, as a terminal does.
func wrapped(s string, width int) string {
	var out []string
	for _, line := range strings.Split(s, "\n") {
		for len(line) > width {
			out, line = append(out, line[:width]), line[width:]
		}
		out = append(out, line)
	}
	return strings.Join(out, "\n")
}

// TestDisguises: prefixes, colours, frames, wrapping and other text around an error change nothing.
func TestDisguises(t *testing.T) {
	for _, d := range disguises {
		for i, l := range texts(t) {
			if strings.HasSuffix(d.name, "a long log") && i%5 > 0 {
				continue // which takes a tenth of a second each
			}
			if strings.Contains(l.name, "dump") && d.name == "wrapped" {
				continue // a dump is read by its lines
			}
			f, _, err := Read(strings.NewReader(d.of(l.text)))
			assert.NoError(t, err)
			wrong := l.compare(f)
			assert.That(t, len(wrong) <= 0, "%s, %s: %s", d.name, l.name, strings.Join(wrong, "; "))
		}
	}
}

// TestNothing: logs that are not of memory running out have no finding.
func TestNothing(t *testing.T) {
	for _, text := range []string{
		"", "\n\n", "Epoch 1 loss 0.3\n", "CUDA error: device-side assert triggered",
		"NCCL WARN Cuda failure 'invalid argument'", "step 3: 12.5 GiB allocated, 3 GiB free",
		"Allocator (GPU_0_bfc) ran out of memory trying to allocate 1.25GiB with freed_by_count=0. The caller indicates that this is not a failure, but may mean that there could be performance gains if more memory were available.",
	} {
		f, _, err := Read(strings.NewReader(text))
		assert.That(t, err == nil && f == nil, "%.60q: found %+v, %v", text, f, err)
	}
}

// TestLine: the finding has the line where its error begins, and how many errors the log has.
func TestLine(t *testing.T) {
	const oom = "CUDA out of memory. Tried to allocate 20.00 MiB (GPU 1; 7.79 GiB total capacity; 7.00 GiB already allocated; 1.00 MiB free; 7.10 GiB reserved in total by PyTorch)\n"
	f, _, err := Read(strings.NewReader(strings.Repeat("loss 0.1\n", 40000) + "RuntimeError: " + oom + "again: " + oom))
	assert.Must(t, err == nil && f != nil, "found %v, %v", f, err)
	assert.That(t, f.Line == 40001 && f.Errors == 2 && f.Device == "1",
		"line %d, %d errors, device %q, want line 40001, 2 errors, device 1", f.Line, f.Errors, f.Device)
}

// TestDump: the dump of a Tesla K40c is read whole, bins, chunks and statistics.
func TestDump(t *testing.T) {
	all := texts(t)
	i := slices.IndexFunc(all, func(l labeled) bool { return l.name == "tensorflow-dump-whole" })
	f, _, err := Read(strings.NewReader(all[i].text))
	assert.Must(t, err == nil && f != nil && f.Dump != nil, "no dump: %+v, %v", f, err)
	d := f.Dump
	assert.That(t, d.Chunks == 24 && d.FreeChunks == 4 && d.FreeListed == 77070336 && d.LargestFree == 69648384, "chunks: %+v", d)
	assert.That(t, d.Limit == 285474816 && d.InUse == 208404480 && d.Free() == d.FreeListed && d.LiveBySize == d.InUse, "statistics: %+v", d)
	want := []Bin{
		{256, 4, 1024}, {512, 2, 1536}, {1024, 7, 8704}, {65536, 1, 92979},
		{1048576, 2, 1226834}, {2097152, 5, 8556380}, {67108864, 3, 198516408},
	}
	assert.That(t, slices.Equal(d.Bins, want), "bins %+v, want %+v", d.Bins, want)
	got := d.Internal()
	assert.That(t, got == 208404480-189586488 || got >= 18_000_000 && got <= 19_000_000, "%d bytes inside chunks, want 17.8 MiB", got)
}

// TestHostile: a log of nothing but beginnings of errors is read in time that grows with its length.
func TestHostile(t *testing.T) {
	for _, piece := range []string{"out of memory. Tried to allocate 1 GiB ", "Bin (256): Total Chunks: 1,", "\x1b[", "[", "(pid=", "0:", "Process 1 has 1.00 GiB memory in use."} {
		begun := modeltest.ProcessorTime(t)
		if _, _, err := Read(strings.NewReader(strings.Repeat(piece, 4<<20/len(piece)))); err != nil {
			t.Fatal(err)
		}
		took := modeltest.ProcessorTime(t) - begun
		assert.That(t, took <= modeltest.Limit(30*time.Second), "4 MiB of %q take %v", piece, took)
	}
}

// FuzzRead: no text makes the reader fail, or its window grow.
func FuzzRead(f *testing.F) {
	for _, l := range texts(f) {
		f.Add(l.text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		found, _, err := Read(strings.NewReader(text))
		assert.NoError(t, err)
		assert.Must(t, found == nil || found.Verdict != "" && found.Framework != "", "%+v has no verdict", found)
	})
}
