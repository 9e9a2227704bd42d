package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/memprof/memprof/trace/tracetest/assert"
)

// TestCalibrate: a job sleeps in each of its steps, 20 ms and 4 ms for each sequence. The fitted timing says so,
// and kv takes it.
func TestCalibrate(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	words := []string{"alloc", "keys", "64M", "cache", "65536", "layout=paged%tblock=16%tnull=0%tengine=test%tname=main"}
	const sequences = 8
	for i := range sequences {
		words = append(words, "kv", fmt.Sprintf("reserve:%d:%d:64:10", i, 4*i), "kv", fmt.Sprintf("append:%d:10", i))
	}
	words = append(words, "iteration")
	for i := range 40 {
		running := 1 + i%sequences
		for j := range running {
			words = append(words, "kv", fmt.Sprintf("append:%d:1", j))
		}
		words = append(words, "sleep", fmt.Sprint(20+4*running), "iteration")
	}
	b.record("engine", append([]string{"--", b.job}, words...)...)
	b.mustExit(0, "kv", "calibrate", b.path("engine"), "--model", "llama-3-8b", "-o", b.path("engine.json"))
	text, err := os.ReadFile(b.path("engine.json"))
	assert.NoError(t, err)
	var got struct {
		Name, Source, Model string
		Error               float64
		Overhead            float64 `json:"overhead_ns"`
		Weights             float64 `json:"weights_ns"`
		Token               float64 `json:"token_ns"`
		Sequence            float64 `json:"sequence_ns"`
		Context             float64 `json:"context_ns"`
	}
	assert.NoError(t, json.Unmarshal(text, &got))
	step := func(n float64) float64 {
		return got.Overhead + max(got.Weights, got.Token*n) + got.Sequence*n + got.Context*n*(10+20)
	}
	for _, n := range []float64{1, sequences} {
		// A sleep takes longer on a busy machine, and hardly ever less.
		if want := 1e6 * (20 + 4*n); step(n) < 0.9*want || step(n) > 1.8*want {
			t.Errorf("a step of %v sequences takes %.1f ms by the fit, want %.0f or a little more: %s", n, step(n)/1e6, want/1e6, text)
		}
	}
	assert.That(t, got.Name == "engine" && got.Model == "llama-3-8b" && strings.HasPrefix(got.Source, "fitted to 40 steps") && !math.IsNaN(got.Error),
		"%s", text)
	cmd, _ := b.memprof("kv", "--synthetic", "alpaca", "--rate", "1,2", "--duration", "1m", "--model", "llama-3-8b", "--memory", "1GiB", "--policy", "paged:16", "--timing", b.path("engine.json"))
	if out, err := cmd.Output(); err != nil || !strings.Contains(string(out), "time of steps: engine, fitted to 40 steps") {
		t.Errorf("%v: %s", err, out)
	}
	out := b.mustExit(2, "kv", "calibrate", "../../samples/resnet50")
	assert.That(t, strings.Contains(out, "memprof.kv"), "no steps: %s", out)
}

const kvConfigs = "../../analysis/kvcache/models/testdata/"

// TestKVOfConfig: a config.json stands for a model, with requests and without. Of Llama 3 8B's 131,072 bytes a token, 1 GiB
// holds 512 blocks of 16.
func TestKVOfConfig(t *testing.T) {
	t.Parallel()
	config := kvConfigs + "llama-3-8b.json"
	out := memprofIn(t, 0, "kv", "--model", config, "--memory", "1GiB")
	for _, want := range []string{"KV cache of llama-3-8b", "131,072 bytes a token", "1 GiB: 512 pages", "8,192"} {
		assert.That(t, strings.Contains(out, want), "no %q in\n%s", want, out)
	}
	assert.That(t, !strings.Contains(out, "weights"), "no weights are there:\n%s", out)
	out = memprofIn(t, 0, "kv", "--model", config, "--memory", "1GiB", "--kv-dtype", "fp8", "--tensor-parallel", "8", "--policy", "hybrid:32")
	assert.That(t, strings.Contains(out, "8,192 bytes a token") && strings.Contains(out, "4,096 pages · on each of 8 GPUs"), "%s", out)
	simulated := []string{"kv", "--synthetic", "alpaca", "--rate", "2", "--duration", "1m", "--memory", "1GiB", "--policy", "paged:16", "--json", "--timing", "20ms", "--model"}
	var got, want struct {
		Slots    int64
		Policies json.RawMessage
	}
	assert.NoError(t, json.Unmarshal([]byte(memprofIn(t, 0, append(simulated, config)...)), &got))
	assert.NoError(t, json.Unmarshal([]byte(memprofIn(t, 0, append(simulated, "llama-3-8b")...)), &want))
	assert.That(t, got.Slots == 8192 && string(got.Policies) == string(want.Policies), "%d slots, and\n%s\nwant\n%s", got.Slots, got.Policies, want.Policies)
	for _, c := range []struct{ want, model, flag, value string }{
		{"no *.safetensors are beside", config, "--card", "80GiB"}, {"want from 1 to 134217728", config, "--max-length", "1000000000"},
		{"blocks of 2000000 tokens", config, "--policy", "paged:2000000"}, {"llama-3-8b has 32 heads", config, "--tensor-parallel", "3"},
		{"kv_test.go: at byte", "kv_test.go", "--memory", "1GiB"}, {"config.json: no such file", ".", "--memory", "1GiB"},
		{"unknown model", "gone.json", "--memory", "1GiB"}, {"either --requests or --synthetic", config, "--rate=2", "--memory=1GiB"},
	} {
		out := memprofIn(t, 2, "kv", "--model", c.model, c.flag, c.value)
		assert.That(t, strings.Contains(out, c.want), "%s %s: %q, want %q", c.flag, c.value, out, c.want)
	}
}
