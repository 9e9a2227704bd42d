package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
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
	b.mustExit(0, "kv", "calibrate", b.path("engine"), "--model", "llama-3-8b", "--name", "sleeper", "-o", b.path("engine.json"))
	text, err := os.ReadFile(b.path("engine.json"))
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Name, Source, Model string
		Error               float64
		Overhead            float64 `json:"overhead_ns"`
		Weights             float64 `json:"weights_ns"`
		Token               float64 `json:"token_ns"`
		Sequence            float64 `json:"sequence_ns"`
		Context             float64 `json:"context_ns"`
	}
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	step := func(n float64) float64 {
		return got.Overhead + max(got.Weights, got.Token*n) + got.Sequence*n + got.Context*n*(10+20)
	}
	for _, n := range []float64{1, sequences} {
		// A sleep takes longer on a busy machine, and hardly ever less.
		if want := 1e6 * (20 + 4*n); step(n) < 0.9*want || step(n) > 1.8*want {
			t.Errorf("a step of %v sequences takes %.1f ms by the fit, want %.0f or a little more: %s", n, step(n)/1e6, want/1e6, text)
		}
	}
	if got.Name != "sleeper" || got.Model != "llama-3-8b" || !strings.HasPrefix(got.Source, "fitted to 40 steps") || math.IsNaN(got.Error) {
		t.Errorf("%s", text)
	}
	cmd, _ := b.memprof("kv", "--synthetic", "alpaca", "--rate", "1,2", "--duration", "1m", "--model", "llama-3-8b", "--memory", "1GiB", "--policy", "paged:16", "--timing", b.path("engine.json"))
	if out, err := cmd.Output(); err != nil || !strings.Contains(string(out), "time of steps: sleeper, fitted to 40 steps") {
		t.Errorf("%v: %s", err, out)
	}
	if out := b.mustExit(2, "kv", "calibrate", "../../samples/resnet50"); !strings.Contains(out, "memprof.kv") {
		t.Errorf("no steps: %s", out)
	}
}

// TestTimingFlags: what cannot be said together, and names that are not known.
func TestTimingFlags(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	base := []string{"kv", "--synthetic", "alpaca", "--rate", "1", "--duration", "1s", "--model", "opt-13b", "--memory", "1GiB"}
	for _, test := range []struct {
		flags []string
		want  string
	}{
		{[]string{"--step-time", "1ms", "--chunk", "5"}, "--step-time is the same for every step"},
		{[]string{"--timing", "a100-40gb-opt-13"}, "did you mean a100-40gb-opt-13b"},
		{[]string{"--rate", "0"}, "want requests a second, above 0"},
		{[]string{"--beam-keep", "2"}, "want a chance from 0 to 1"},
		{[]string{"--timing", "kv_test.go"}, "not a timing"},
	} {
		if out := b.mustExit(2, append(base[:len(base):len(base)], test.flags...)...); !strings.Contains(out, test.want) {
			t.Errorf("%v: %s", test.flags, out)
		}
	}
}

// TestEnginesOnOneCard: two files are served at once. Under elastic both together hold less than under paged, where
// each has half of the memory for itself.
func TestEnginesOnOneCard(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	args := []string{"kv", "--requests", "../../samples/jobs/sharegpt_first_turns.csv", "--requests", "../../samples/jobs/azure_conv_2023.csv", "--longest", "2000",
		"--rate", "2", "--duration", "30s", "--model", "llama-3-8b", "--memory", "8GiB", "--policy", "elastic,vattention:2MiB,paged:16"}
	cmd, _ := b.memprof(append(args, "--format", "json")...)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	type held struct {
		Mean, Peak float64
		Floor      float64 `json:"floor_mean"`
		Mapped     int64
	}
	var got struct {
		Policies []struct {
			Policy, Engine string
			Finished       int64
			Held           *held
		}
		Together []struct {
			Policy string
			Held   held
		}
	}
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Policies) != 6 || len(got.Together) != 3 || got.Policies[1].Engine != "azure_conv_2023.csv" || got.Policies[4].Held != nil {
		t.Fatalf("%s", out)
	}
	elastic, vattention, paged := got.Together[0].Held, got.Together[1].Held, got.Together[2].Held
	if paged.Peak != 8<<30 || elastic.Peak > paged.Peak/2 || elastic.Mean < elastic.Floor || vattention.Mean < elastic.Mean || elastic.Mapped == 0 {
		t.Errorf("elastic %+v, vattention %+v, paged %+v", elastic, vattention, paged)
	}
	for _, p := range got.Policies {
		if p.Finished != got.Policies[0].Finished && p.Finished != got.Policies[1].Finished {
			t.Errorf("%s of %s finished %d", p.Engine, p.Policy, p.Finished)
		}
	}
	for _, wrong := range []struct {
		args []string
		want string
	}{
		{append(args[:7:7], "--model", "llama-3-8b", "--memory", "8GiB"), "several engines need them: give --rate"},
		{append(args[:7:7], "--model", "llama-3-8b", "--memory", "8GiB", "--saturated"), "--saturated is of one engine"},
	} {
		if out := b.mustExit(2, wrong.args...); !strings.Contains(out, wrong.want) {
			t.Errorf("%v: %s", wrong.args, out)
		}
	}
}

// kvJSON runs kv and returns what the tests here are about.
func kvJSON(t *testing.T, b *bench, stdin string, args ...string) (out struct {
	Slots         int64
	Stages        int
	BytesPerToken int64 `json:"bytes_per_token"`
	Policies      []struct {
		Policy    string
		Batch     float64
		PerSecond float64 `json:"requests_per_second"`
		Kinds     []struct {
			Kind   string
			Tables int64
			Waste  float64
		}
	}
	Prefix []struct {
		Blocks int64
		Found  float64
	} `json:"prefix_cache"`
}) {
	t.Helper()
	cmd, _ := b.memprof(append([]string{"kv", "--format", "json"}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	text, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(text, &out)
	}
	if err != nil {
		t.Fatalf("%v: %v: %s", args, err, text)
	}
	return out
}

// TestKindsOfCaches: smaller elements and divided layers make more slots; a hybrid cache wastes less than a uniform one.
func TestKindsOfCaches(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	base := []string{"--synthetic", "azure-conv", "--saturated", "--steps", "600", "--memory", "8GiB"}
	with := func(args ...string) []string { return append(base[:len(base):len(base)], args...) }
	whole := kvJSON(t, b, "", with("--model", "llama-3-8b", "--policy", "paged:16")...)
	for _, test := range []struct {
		flags  []string
		bytes  int64
		stages int
	}{
		{[]string{"--kv-dtype", "fp8"}, 65536, 1}, {[]string{"--kv-dtype", "fp32"}, 262144, 1},
		{[]string{"--pipeline-parallel", "2"}, 65536, 2}, {[]string{"--pipeline-parallel", "2", "--tensor-parallel", "2"}, 32768, 2},
		{[]string{"--pipeline-parallel", "3"}, 11 * 4096, 3}, // 11 of 32 layers
	} {
		got := kvJSON(t, b, "", with(append([]string{"--model", "llama-3-8b", "--policy", "paged:16"}, test.flags...)...)...)
		if got.BytesPerToken != test.bytes || got.Stages != test.stages || got.Slots != 8<<30/test.bytes || whole.Slots != 8<<30/131072 {
			t.Errorf("%v: %d bytes a token in %d slots, %d stages", test.flags, got.BytesPerToken, got.Slots, got.Stages)
		}
		if more := got.Slots > whole.Slots; more != (got.Policies[0].Batch > whole.Policies[0].Batch) {
			t.Errorf("%v: a batch of %v in %d slots, without %v in %d", test.flags, got.Policies[0].Batch, got.Slots, whole.Policies[0].Batch, whole.Slots)
		}
	}
	got := kvJSON(t, b, "", with("--model", "gemma-3-27b", "--policy", "uniform:16,hybrid:16", "--layers", "full:12,sliding/256:48,state/1MiB:2")...)
	uniform, hybrid := got.Policies[0], got.Policies[1]
	if len(hybrid.Kinds) != 3 || hybrid.Kinds[1].Kind != "sliding/256" || hybrid.Kinds[1].Tables != 24 || uniform.Kinds[1].Waste < 0.5 || hybrid.Kinds[1].Waste > 0.4 || hybrid.Batch < 1.5*uniform.Batch {
		t.Errorf("%+v\n%+v", uniform, hybrid)
	}
	for _, wrong := range []struct{ flags, want string }{
		{"--model llama-3-8b --layers full:x", "--layers: layers \"full:x\": want full:N"}, {"--model llama-3-8b --kv-dtype int4", "--kv-dtype"},
		{"--model llama-3-8b --pipeline-parallel 40", "cannot be divided"}, {"--bytes-per-token 1000 --policy hybrid:16", "needs --model"},
	} {
		if out := b.mustExit(2, append([]string{"kv"}, with(strings.Fields(wrong.flags)...)...)...); !strings.Contains(out, wrong.want) {
			t.Errorf("%s: %s", wrong.flags, out)
		}
	}
}

// TestPrefixCacheBySize: two conversations take turns, so a cache of one of them finds nothing and one of both all.
func TestPrefixCacheBySize(t *testing.T) {
	t.Parallel()
	var lines strings.Builder
	for i := range 200 {
		hashes := []int{}
		for j := range 4 {
			hashes = append(hashes, i%2*100+j)
		}
		text, _ := json.Marshal(map[string]any{"input_length": 4*512 + 1, "output_length": 1, "hash_ids": append(hashes, 1000+i), "timestamp": 1000 * i})
		fmt.Fprintf(&lines, "%s\n", text)
	}
	got := kvJSON(t, newBench(t), lines.String(), "--requests", "-", "--model", "llama-3-8b", "--memory", "1GiB", "--policy", "paged:512")
	if len(got.Prefix) < 5 {
		t.Fatalf("%+v", got.Prefix)
	}
	for _, p := range got.Prefix {
		found := 0.0
		if p.Blocks >= 8 {
			found = 198.0 * 2048 / (200 * 2049)
		}
		if math.Abs(p.Found-found) > 1e-9 {
			t.Errorf("%d blocks find %v, want %v", p.Blocks, p.Found, found)
		}
	}
}
