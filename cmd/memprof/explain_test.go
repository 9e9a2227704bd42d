package main

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/memprof/memprof/trace/tracetest/assert"
)

// TestExplainedCommands: record takes the flags that explain advises, for all texts of the corpus.
func TestExplainedCommands(t *testing.T) {
	texts, err := filepath.Glob("../../analysis/oomtext/testdata/texts/*.txt")
	assert.NoError(t, err)
	command := regexp.MustCompile(`"command": "memprof (record [^"]*?) -o run -- python3 train.py`)
	var advised []string
	for _, text := range texts {
		for _, found := range command.FindAllStringSubmatch(memprofIn(t, 0, "explain", "--json", text), -1) {
			advised = append(advised, found[1])
		}
	}
	slices.Sort(advised)
	assert.Must(t, len(advised) > 40, "%d commands", len(advised))
	b := newBench(t)
	for i, flags := range slices.Compact(advised) {
		b.record(string(rune('a'+i)), append(strings.Fields(flags)[1:], "--", "true")...)
	}
}

// TestExplainStartup: a log without an error, of an engine that starts, is a table of one GPU; one with an error is about that.
func TestExplainStartup(t *testing.T) {
	t.Parallel()
	const started = `the current vLLM instance can use total_gpu_memory (80.00GiB) x gpu_memory_utilization (0.90) = 72.00GiB
model weights take 15.00GiB; non_torch_memory takes 0.25GiB; PyTorch activation peak memory takes 1.25GiB; the rest of the memory reserved for KV Cache is 55.50GiB.
GPU KV cache size: 454,656 tokens
`
	file := filepath.Join(t.TempDir(), "start.log")
	mustWrite(t, file, started)
	out := memprofIn(t, 0, "explain", file)
	for _, want := range []string{"Memory of one GPU when vLLM started", "weights", "15 GiB", "1.25 GiB", "55.5 GiB", "454,656 tokens", "the rest", "8 GiB", "80 GiB"} {
		assert.That(t, strings.Contains(out, want), "no %q in\n%s", want, out)
	}
	mustWrite(t, file, started+"CUDA graph pool memory: 0.50 GiB (actual), 2.50 GiB (estimated), difference: 2.00 GiB\n")
	out = memprofIn(t, 0, "explain", file)
	assert.That(t, strings.Contains(out, "2.50 GiB set aside: room for 16,384 tokens more"), "%s", out)
	mustWrite(t, file, started+"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 79.19 GiB of which 5.00 MiB is free.\n")
	out = memprofIn(t, 0, "explain", file)
	assert.That(t, strings.Contains(out, "20 MiB") && !strings.Contains(out, "started"), "%s", out)
}
