package report

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/memprof/memprof/analysis/oomtext"
	"github.com/memprof/memprof/report/reporttest"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// explained are the findings of the texts that package oomtext is tested with, by name.
func explained(t *testing.T) map[string]*oomtext.Finding {
	t.Helper()
	files, err := filepath.Glob("../analysis/oomtext/testdata/texts/*.txt")
	assert.Must(t, err == nil && len(files) >= 60, "%d texts, want 60 or more: %v", len(files), err)
	all := map[string]*oomtext.Finding{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		assert.NoError(t, err)
		_, text, _ := strings.Cut(string(data), "\n---\n")
		f, _, err := oomtext.Read(strings.NewReader(text))
		assert.Must(t, err == nil && f != nil, "%s: %v, %v", file, f, err)
		all[strings.TrimSuffix(filepath.Base(file), ".txt")] = f
	}
	return all
}

// contradictions are words that advice on a finding must not have.
func contradictions(f *oomtext.Finding) (words []string) {
	if f.Settings.Expandable || f.Settings.NotHere || f.Settings.SplitSize || f.Framework != oomtext.Torch {
		words = append(words, "expandable_segments")
	}
	switch f.Verdict {
	case oomtext.OtherProcess:
		words = append(words, "batch", "ALLOC_CONF", "checkpointing")
	case oomtext.NotGPU:
		words = append(words, "ALLOC_CONF", "nvidia-smi", "record", "gpu-memory")
	case oomtext.Unknown:
		words = append(words, "batch", "ALLOC_CONF")
	case oomtext.Limit, oomtext.BugSize:
		words = append(words, "ALLOC_CONF")
	case oomtext.Capacity:
		words = append(words, "nvidia-smi")
	}
	if f.Settings.Utilization >= 0.95 {
		words = append(words, "let vLLM use more", "Let vLLM use more")
	}
	return words
}

// TestExplainAdvice: all texts get advice, with a command, and none that they contradict.
func TestExplainAdvice(t *testing.T) {
	for name, f := range explained(t) {
		advice := ExplainAdvice(f)
		assert.That(t, len(advice) != 0, "%s: no advice", name)
		for _, a := range advice {
			assert.That(t, a.Text != "" && a.Command != "", "%s: advice without text or command: %+v", name, a)
			for _, word := range contradictions(f) {
				assert.That(t, !strings.Contains(a.Text+a.Command, word), "%s, %s: advice has %q: %+v", name, f.Verdict, word, a)
			}
		}
	}
}

// TestExplainEstimate: what vLLM sets aside for CUDA graphs is advised against where the KV cache lacks no more than that (vllm#53013).
func TestExplainEstimate(t *testing.T) {
	const (
		noBlocks = "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`.\n"
		needed   = "ValueError: To serve at least one request with the models's max seq len (131072), (16.00 GiB KV cache is needed, which is larger than the available KV cache memory (0.71 GiB)."
	)
	estimated := func(gib string) string {
		return "INFO 08-19 [gpu_model_runner.py:6936] Estimated CUDA graph memory: " + gib + " GiB total\n"
	}
	for _, c := range []struct {
		log     string
		advised string // "" if the estimate is not the cause
	}{
		{estimated("118.65") + noBlocks, "119 GiB"}, {estimated("1.00") + noBlocks, "1 GiB"}, {estimated("0.99") + noBlocks, ""}, {noBlocks, ""},
		{estimated("15.30") + needed, "15.3 GiB"}, {estimated("15.28") + needed, ""},
		{estimated("118.65") + "CUDA graph memory profiling is disabled (VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=0).\n" + noBlocks, ""},
	} {
		f, _, err := oomtext.Read(strings.NewReader(c.log))
		assert.Must(t, err == nil && f != nil, "%s: %v, %v", c.log, f, err)
		first := ExplainAdvice(f)[0]
		advised := strings.HasPrefix(first.Command, "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=0 vllm serve MODEL --gpu-memory-utilization 0.85")
		assert.That(t, advised == (c.advised != "") && (!advised || strings.Contains(first.Text, "sets "+c.advised+" aside")), "%s: %+v", c.log, first)
	}
}

// TestExplainExpandable: what is set is not advised, wherever the log says that it is set.
func TestExplainExpandable(t *testing.T) {
	data, err := os.ReadFile("../analysis/oomtext/testdata/texts/torch23-fragmentation-almost-full.txt")
	assert.NoError(t, err)
	_, text, _ := strings.Cut(string(data), "\n---\n")
	for _, c := range []struct {
		before, after string
		advised       bool
	}{
		{"", "", true},
		{"export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n", "", false},
		{"os.environ[\"PYTORCH_CUDA_ALLOC_CONF\"] = \"expandable_segments:True\"\n", "", false},
		{"", "I have set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True before.\n", false},
		{"PYTORCH_CUDA_ALLOC_CONF: backend:native,expandable_segments:True\n", "", false},
		{"UserWarning: expandable_segments not supported on this platform\n", "", false},
		{"  File \"D:\\work\\train.py\", line 3\n", "", false},
	} {
		f, _, err := oomtext.Read(strings.NewReader(c.before + text + c.after))
		assert.NoError(t, err)
		advised := slices.ContainsFunc(ExplainAdvice(f), func(a Advice) bool { return strings.Contains(a.Command, "expandable_segments:True") })
		assert.That(t, f.Verdict == oomtext.Fragmentation && advised == c.advised,
			"%q, %q: %s, advised %v, want fragmentation, %v", c.before, c.after, f.Verdict, advised, c.advised)
	}
}

// TestExplainText: no text takes more than 15 lines, and the golden ones say what they should.
func TestExplainText(t *testing.T) {
	all := explained(t)
	for name, f := range all {
		var out bytes.Buffer
		assert.NoError(t, ExplainText(&out, f))
		n := strings.Count(out.String(), "\n")
		assert.That(t, n <= ExplainLines, "%s: %d lines, want at most %d\n%s", name, n, ExplainLines, out.String())
		for _, line := range strings.Split(out.String(), "\n") {
			assert.That(t, len([]rune(line)) <= 130, "%s: a line of %d columns: %s", name, len([]rune(line)), line)
		}
	}
	var out bytes.Buffer
	for _, name := range []string{
		"torch-reserved-fragmentation", "torch-full-of-others", "torch25-capacity-large-request", "torch-allowed-shared-card", "vllm-no-blocks-profiled",
		"tensorflow-dump-whole", "jax-bytes", "nccl-calloc", "host-worker-killed",
	} {
		out.WriteString("# " + name + "\n")
		assert.NoError(t, ExplainText(&out, all[name]))
		out.WriteByte('\n')
	}
	reporttest.Golden(t, "explain.txt", out.Bytes())
}

// TestExplainJSON: figures that a text does not tell are null, and advice is a list of texts and commands.
func TestExplainJSON(t *testing.T) {
	for name, f := range explained(t) {
		var out bytes.Buffer
		assert.NoError(t, ExplainJSON(&out, f))
		var document map[string]any
		err := json.Unmarshal(out.Bytes(), &document)
		assert.Must(t, err == nil, "%s: %v", name, err)
		want := []string{"advice", "allocated", "framework", "free", "other_processes", "requested", "reserved_unallocated", "this_process", "total", "verdict"}
		var names []string
		for key := range document {
			names = append(names, key)
		}
		if slices.Sort(names); !slices.Equal(names, want) {
			t.Errorf("%s: keys %v, want %v", name, names, want)
		}
		assert.That(t, (document["requested"] == nil) == (f.Requested == nil), "%s: requested is %v, of %v", name, document["requested"], f.Requested)
	}
}
