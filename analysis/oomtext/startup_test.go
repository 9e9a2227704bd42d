package oomtext

import (
	"io"
	"math"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/memprof/memprof/trace/tracetest/assert"
)

// Logs of starts: vLLM's first engine (gateway-api-inference-extension#550), its second, and SGLang (sglang#18263).
const (
	startedV0 = `INFO 03-21 20:15:45 [worker.py:267] Memory profiling takes 34.26 seconds
INFO 03-21 20:15:45 [worker.py:267] the current vLLM instance can use total_gpu_memory (79.19GiB) x gpu_memory_utilization (0.90) = 71.27GiB
INFO 03-21 20:15:45 [worker.py:267] model weights take 12.55GiB; non_torch_memory takes 0.16GiB; PyTorch activation peak memory takes 2.38GiB; the rest of the memory reserved for KV Cache is 56.18GiB.
INFO 03-21 20:15:46 [executor_base.py:111] # cuda blocks: 7191, # CPU blocks: 512
INFO 03-21 20:16:20 [model_runner.py:1570] Graph capturing finished in 20 secs, took 0.50 GiB`
	startedV1 = `(Worker_TP0 pid=34322) INFO 05-06 20:59:57 [default_loader.py:384] Loading weights took 24.84 seconds
(Worker_TP0 pid=34322) INFO 05-06 20:59:59 [gpu_model_runner.py:4879] Model loading took 12.66 GiB memory and 31.657031 seconds
(Worker_TP1 pid=34323) INFO 05-06 20:59:59 [gpu_model_runner.py:4879] Model loading took 12.75 GiB memory and 31.657031 seconds
(Worker_TP0 pid=34322) INFO 05-06 21:00:59 [gpu_worker.py:298] Available KV cache memory: 8.25 GiB
(EngineCore pid=34300) INFO 05-06 21:00:59 [kv_cache_utils.py:1087] GPU KV cache size: 178,880 tokens
(Worker_TP0 pid=34322) INFO 05-06 21:01:20 [gpu_model_runner.py:5993] Graph capturing finished in 12 secs, took 0.75 GiB
`
	startedSGLang = `[2026-07-15 13:14:53] Load weight end. elapsed=19.09 s, type=Qwen3MoeForCausalLM, avail mem=230.20 GB, mem usage=56.98 GB.
[2026-07-15 13:14:54] KV Cache is allocated. dtype: torch.bfloat16, #tokens: 1669816, K size: 76.44 GB, V size: 76.44 GB
[2026-07-15 13:14:54] Memory pool end. avail mem=74.01 GB
[2026-07-15 13:15:20] Capture cuda graph end. Time elapsed: 11.35 s. mem usage=1.25 GB. avail mem=11.25 GB.
[2026-07-15 13:15:21] max_total_num_tokens=1669816, chunked_prefill_size=8192, max_prefill_tokens=16384, context_len=40960, available_gpu_mem=11.25 GB
`
)

// TestStartup: every figure of each log, to the byte that its decimals stand for, however the log is cut into reads.
func TestStartup(t *testing.T) {
	gib := func(hundredths int64) int64 { return (hundredths<<30 + 50) / 100 }
	type row struct{ total, weights, activations, outside, kv, tokens, graphs, free int64 }
	for _, c := range []struct {
		log, engine string
		want        row
	}{
		{startedV0, "vLLM", row{total: gib(7919), weights: gib(1255), activations: gib(238), outside: gib(16), kv: gib(5618), graphs: gib(50)}},
		{startedV1, "vLLM", row{weights: gib(1266), kv: gib(825), tokens: 178_880, graphs: gib(75)}},
		{startedSGLang, "SGLang", row{weights: gib(5698), kv: 2 * gib(7644), tokens: 1_669_816, graphs: gib(125), free: gib(1125)}},
	} {
		for _, log := range []io.Reader{strings.NewReader(c.log), iotest.OneByteReader(strings.NewReader(c.log))} {
			_, s, err := Read(log)
			assert.Must(t, err == nil && s != nil, "%.40s: %v, %v", c.log, err, s)
			or0 := func(p *int64) int64 {
				if p == nil {
					return 0
				}
				return *p
			}
			got := row{or0(s.Total), or0(s.Weights), or0(s.Activations), or0(s.Outside), or0(s.KV), or0(s.Tokens), or0(s.Graphs), or0(s.Free)}
			assert.Equal(t, got, c.want, "%.40s", c.log)
			assert.Equal(t, s.Engine, c.engine)
			if w := c.want; w.total > 0 {
				assert.Equal(t, *s.Rest(), w.total-w.weights-w.activations-w.outside-w.kv-w.graphs)
			} else {
				assert.That(t, s.Rest() == nil, "a rest of an unknown total: %v", s.Rest())
			}
		}
	}
}

// TestUnused: room that is set aside for graphs and that they do not take, in tokens. In vllm#45178 a cache of 245,840 tokens has
// 769,888 without the estimate. Neither the estimate nor the cache's bytes are reported: MiniMax M2.5 has 62 layers of 8 heads of 128
// elements for keys and for values, so 769,888 tokens are 182.1 GiB in bf16, more than a B200 has, and 91.04 GiB in fp8; 245,840 are
// 29.07 then, and the estimate is what is between.
func TestUnused(t *testing.T) {
	for _, c := range []struct {
		log                     string
		tokens, unused, without int64
	}{
		{"Available KV cache memory: 10.00 GiB\nGPU KV cache size: 1,000 tokens\nCUDA graph pool memory: -0.19 GiB (actual), 2.50 GiB (estimated), difference: 2.69 GiB\n",
			1000, 250, 1250},
		{"Estimated CUDA graph memory: 61.97 GiB total\nAvailable KV cache memory: 29.07 GiB\nGPU KV cache size: 245,840 tokens\n", 245_840, 524_069, 769_888},
		{"Estimated CUDA graph memory: 3.00 GiB total\nAvailable KV cache memory: 10.00 GiB\nGPU KV cache size: 1,000 tokens\nGraph capturing finished in 1 secs, took 2.00 GiB\n",
			1000, 100, 1100},
		{"Estimated CUDA graph memory: 1.00 GiB total\nAvailable KV cache memory: 10.00 GiB\nGPU KV cache size: 1,000 tokens\nGraph capturing finished in 1 secs, took 2.00 GiB\n",
			1000, 0, 1000},
	} {
		_, s, err := Read(strings.NewReader(c.log))
		assert.Must(t, err == nil && s != nil && *s.Tokens == c.tokens, "%v, %+v", err, s)
		assert.Equal(t, *s.Unused(), c.unused)
		off := float64(*s.Tokens+*s.Unused())/float64(c.without) - 1
		assert.That(t, math.Abs(off) < 1e-4, "%d tokens and %d unused, want %d", *s.Tokens, *s.Unused(), c.without)
	}
	for log, want := range map[string]bool{
		"Estimated CUDA graph memory: 118.65 GiB total\nGPU KV cache size: 7 tokens\nAvailable KV cache memory: 0.00 GiB\n":                            true,
		"Estimated CUDA graph memory: 118.65 GiB total\nCUDA graph memory profiling is disabled\nAvailable KV cache memory: 1.00 GiB\n":                false,
		"CUDA graph memory profiling will be enabled by default\nEstimated CUDA graph memory: 118.65 GiB total\nAvailable KV cache memory: 1.00 GiB\n": false,
	} {
		_, s, err := Read(strings.NewReader(log))
		assert.Must(t, err == nil && s != nil && s.Unused() == nil && (s.Estimated != nil) == want, "%s: %v, %+v", log, err, s)
		if want {
			assert.Equal(t, *s.Estimated, (11865<<30+50)/100)
		}
	}
}

// TestNoStartup: absurd figures and other lines are left out; a line without end takes no memory.
func TestNoStartup(t *testing.T) {
	var s Startup
	for _, line := range []string{"Model loading took 1e9 GiB\n", "Model loading took 99999999999.5 GiB\n", "GPU KV cache size: 9,999,999,999,999,999,999 tokens\n", "Model loading took . GiB\n"} {
		s.add([]byte(line))
	}
	s.add([]byte(strings.Repeat("x", 1<<20)))
	assert.That(t, len(s.line) == startupLine && cap(s.line) <= 2*startupLine, "%d bytes kept", cap(s.line))
	assert.That(t, !s.found(), "%+v", s)
}
