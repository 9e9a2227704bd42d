package export

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/pprof/driver"
	"github.com/google/pprof/profile"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/ledger"
	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

func pprofOf(t *testing.T, r *Recording, opt PprofOptions) (*profile.Profile, []byte) {
	t.Helper()
	var out bytes.Buffer
	assert.NoError(t, Pprof(&out, r, opt))
	raw := bytes.Clone(out.Bytes())
	p, err := profile.Parse(&out)
	assert.NoError(t, err)
	return p, raw
}

// samples are the samples as lines: values, frames innermost first, labels.
func samples(p *profile.Profile) (lines []string) {
	for _, s := range p.Sample {
		var frames []string
		for _, l := range s.Location {
			f := l.Line[0]
			text := f.Function.Name
			if f.Function.Filename != "" {
				text += fmt.Sprintf("@%s:%d", f.Function.Filename, f.Line)
			}
			frames = append(frames, text)
		}
		var labels []string
		for key, values := range s.Label {
			labels = append(labels, key+"="+strings.Join(values, "+"))
		}
		slices.Sort(labels)
		lines = append(lines, fmt.Sprintf("%v %s [%s]", s.Value, strings.Join(frames, " < "), strings.Join(labels, " ")))
	}
	return lines
}

func TestPprof(t *testing.T) {
	r := recorded(t)
	tests := []struct {
		opt  PprofOptions
		want []string
	}{
		{PprofOptions{At: AtPeak}, []string{
			"[1 5000000 5000192] step@/src/a b.py:5 < main@train.py:9 [category=copies device=0 module=net.conv.0 phase=forward process=rank0 tag=kv]",
			"[1 4000000 4000000] main@train.py:9 [category=temporaries device=0 phase=" + hostile + " process=rank0 tag=kv]",
			"[1 1000 1024] (no stack) [category=weights device=0 module=net.fc phase=other process=rank0 tag=kv]",
			"[1 1000 1024] (no stack) [category=inputs device=0 module=" + hostile + " phase=" + hostile + " process=rank0 tag=kv]",
			"[1 600 768] (no stack) [category=copies device=1 phase=" + hostile + " process=rank0]",
			"[1 100 256] (no stack) [category=other device=0 module=net.fc phase=other process=rank1]",
		}},
		{PprofOptions{At: AtOOM, By: ByStack}, []string{
			"[1 600 768] (no stack) [category=other device=1 phase=" + hostile + " process=rank0]",
		}},
		{PprofOptions{At: AtEnd, By: ByModule}, []string{
			"[1 5000000 5000192] net.conv.0 < net.conv < net [category=copies device=0 module=net.conv.0 phase=forward process=rank0 tag=kv]",
			"[1 1000 1024] net.fc < net [category=weights device=0 module=net.fc phase=other process=rank0 tag=kv]",
			"[1 100 256] net.fc < net [category=other device=0 module=net.fc phase=other process=rank1]",
		}},
	}
	for _, test := range tests {
		p, _ := pprofOf(t, r, test.opt)
		assert.Diff(t, test.want, samples(p), "%+v", test.opt)
	}
}

// Of a recording in which no request failed there is no profile of one.
func TestPprofNoOOM(t *testing.T) {
	r := recorded(t)
	r.Run.Processes = r.Run.Processes[1:]
	if err := Pprof(io.Discard, r, PprofOptions{At: AtOOM}); !errors.Is(err, ErrNoOOM) {
		t.Error(err)
	}
}

// TestMain runs pprof instead of the tests in the processes that top starts. `go tool pprof` is the same code, but takes a minute to compile.
func TestMain(m *testing.M) {
	if os.Getenv("MEMPROF_TEST_PPROF") == "" {
		os.Exit(m.Run())
	}
	if err := driver.PProf(&driver.Options{}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}

// top is what `pprof -top` prints of a profile, in plain bytes.
func top(t *testing.T, raw []byte, flags ...string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "profile.pb.gz")
	assert.NoError(t, os.WriteFile(file, raw, 0o644))
	pprof := exec.Command(os.Args[0], append(append([]string{"-top", "-unit=B"}, flags...), file)...)
	pprof.Env = append(os.Environ(), "MEMPROF_TEST_PPROF=1")
	out, err := pprof.CombinedOutput()
	assert.Must(t, err == nil, "pprof: %v\n%s", err, out)
	return string(out)
}

// The tool itself must come to the sums of the report.
func TestPprofTool(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	_, raw := pprofOf(t, recorded(t), PprofOptions{At: AtPeak})
	for flag, want := range map[string]string{
		"-sample_index=inuse_space":    "9002700B total",
		"-sample_index=provided_space": "9003264B total",
		"-sample_index=inuse_objects":  "6B total",
		"-tagfocus=device=^1$":         "600B",
	} {
		out := top(t, raw, flag)
		assert.That(t, strings.Contains(out, want), "pprof -top %s: no %q in\n%s", flag, want, out)
	}
	out := top(t, raw)
	assert.That(t, strings.Contains(out, "5000000B 55.54%") && strings.Contains(out, "step"), "the largest group of allocations is missing:\n%s", out)
}

func TestPprofToolSamples(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	for _, name := range []string{"alexnet", "gpt2"} {
		run, err := dataset.Open(filepath.Join("../../samples", name))
		assert.NoError(t, err)
		r := &Recording{Run: run}
		result, err := r.analyze(run.Processes[0], analysis.Options{})
		assert.NoError(t, err)
		d := &result.Devices[0]
		for at, instant := range map[string]ledger.Instant{AtPeak: d.Peak, AtEnd: d.Final} {
			_, raw := pprofOf(t, r, PprofOptions{At: at})
			for index, want := range map[string]int64{"inuse_space": instant.T, "provided_space": instant.C, "inuse_objects": instant.Live} {
				out := top(t, raw, "-sample_index="+index)
				assert.That(t, strings.Contains(out, fmt.Sprintf(" of %dB total", want)), "%s at the %s: %s is not %d:\n%s", name, at, index, want, out)
			}
		}
	}
}
