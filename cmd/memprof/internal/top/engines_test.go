package top

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/memprof/memprof/trace/tracetest/assert"
)

// Answers in the form of several versions, of which the numbers and most other metrics are made up.
const (
	vllm06 = `# HELP vllm:num_requests_running Number of requests currently running on GPU.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{model_name="meta-llama/Llama-3.1-8B"} 3.0
vllm:num_requests_waiting{model_name="meta-llama/Llama-3.1-8B"} 1.0
vllm:gpu_cache_usage_perc{model_name="meta-llama/Llama-3.1-8B"} 0.25
vllm:cpu_cache_usage_perc{model_name="meta-llama/Llama-3.1-8B"} 0.75
vllm:gpu_prefix_cache_hit_rate{model_name="meta-llama/Llama-3.1-8B"} -1.0
`
	vllm08 = `# TYPE vllm:gpu_cache_usage_perc gauge
vllm:gpu_cache_usage_perc{model_name="m"} 0.4125
# HELP vllm:gpu_prefix_cache_queries_total GPU prefix cache queries, in terms of number of queried blocks.
# TYPE vllm:gpu_prefix_cache_queries_total counter
vllm:gpu_prefix_cache_queries_total{model_name="m"} 1000.0
# TYPE vllm:gpu_prefix_cache_queries_created gauge
vllm:gpu_prefix_cache_queries_created{model_name="m"} 1.745e+09
vllm:gpu_prefix_cache_hits_total{model_name="m"} 250.0
`
	vllm11 = `# HELP python_info Python platform information
python_info{implementation="CPython",version="3.12.11"} 1.0
vllm:num_requests_running{engine="0",model_name="Qwen/Qwen3-32B"} 12.0
vllm:num_requests_running{engine="1",model_name="Qwen/Qwen3-32B"} 9.0
vllm:num_requests_waiting{engine="0",model_name="Qwen/Qwen3-32B"} 2.0
vllm:num_requests_waiting{engine="1",model_name="Qwen/Qwen3-32B"} 0.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="Qwen/Qwen3-32B",reason="capacity"} 99.0
vllm:kv_cache_usage_perc{engine="0",model_name="Qwen/Qwen3-32B"} 0.625
vllm:kv_cache_usage_perc{engine="1",model_name="Qwen/Qwen3-32B"} 0.5
vllm:prefix_cache_queries_total{engine="0",model_name="Qwen/Qwen3-32B"} %d
vllm:prefix_cache_hits_total{engine="0",model_name="Qwen/Qwen3-32B"} %d
vllm:external_prefix_cache_hits_total{engine="0",model_name="Qwen/Qwen3-32B"} 77.0
vllm:request_params_n_bucket{engine="0",le="1.0",model_name="Qwen/Qwen3-32B"} 34.0
`
	sglang04 = `# HELP sglang:token_usage The token usage
# TYPE sglang:token_usage gauge
sglang:token_usage{model_name="meta-llama/Llama-3.1-8B-Instruct"} 0.28
# TYPE sglang:cache_hit_rate gauge
sglang:cache_hit_rate{model_name="meta-llama/Llama-3.1-8B-Instruct"} 0.007507552643049313
sglang:num_running_reqs{model_name="meta-llama/Llama-3.1-8B-Instruct"} 162.0
sglang:num_queue_reqs{model_name="meta-llama/Llama-3.1-8B-Instruct"} 2826.0
sglang:num_used_tokens{model_name="meta-llama/Llama-3.1-8B-Instruct"} 123859.0
`
	sglang05 = `sglang:max_total_num_tokens{dp_rank="0",engine_type="unified",model_name="m",moe_ep_rank="0",pp_rank="0",tp_rank="0"} 262144.0
sglang:max_total_num_tokens{dp_rank="0",engine_type="unified",model_name="m",moe_ep_rank="0",pp_rank="0",tp_rank="1"} 262144.0
sglang:token_usage{dp_rank="0",engine_type="unified",model_name="m",moe_ep_rank="0",pp_rank="0",tp_rank="0"} 0.915 1790347303000
sglang:token_usage{dp_rank="1",engine_type="unified",model_name="m",moe_ep_rank="0",pp_rank="0",tp_rank="1"} 0.5
sglang:full_token_usage{dp_rank="0",engine_type="unified",model_name="m",moe_ep_rank="0",pp_rank="0",tp_rank="0"} 0.1
sglang:cache_hit_rate{dp_rank="0",engine_type="unified",model_name="m",moe_ep_rank="0",pp_rank="0",tp_rank="0"} 0.5
sglang:num_queue_reqs{dp_rank="0",engine_type="unified",model_name="m",priority=""} 7.0
sglang:num_queue_reqs{dp_rank="0",engine_type="unified",model_name="m",priority="3"} 70.0
`
	ray = `ray_vllm_kv_cache_usage_perc{model_name="m",engine="0",WorkerId="ab"} 1.0
ray_vllm_prefix_cache_queries{model_name="m",engine="0",WorkerId="ab"} 8
ray_vllm_prefix_cache_hits{model_name="m",engine="0",WorkerId="ab"} 8
`
)

// TestExposition: what each version says, as the screen has it.
func TestExposition(t *testing.T) {
	for text, want := range map[string][]string{
		vllm06: {"vLLM h meta-llama/Llama-3.1-8B: KV cache 25.0%, 3 running, 1 waiting"},
		vllm08: {"vLLM h m: KV cache 41.2%, prefix hits 25.0%"},
		fmt.Sprintf(vllm11, 200, 50): {
			"vLLM h Qwen/Qwen3-32B: KV cache 62.5%, prefix hits 25.0%, 12 running, 2 waiting",
			"vLLM h Qwen/Qwen3-32B rank 1: KV cache 50.0%, 9 running, 0 waiting",
		},
		sglang04: {"SGLang h meta-llama/Llama-3.1-8B-Instruct: KV cache 28.0%, prefix hits 0.8%, 162 running, 2,826 waiting"},
		sglang05: {"SGLang h m: KV cache 91.5%, of 262,144 tokens, prefix hits 50.0%, 7 waiting", "SGLang h m rank 1: KV cache 50.0%"},
		ray:      {"vLLM h m: KV cache 100.0%, prefix hits 100.0%"},
	} {
		e := Engine{URL: "http://h/metrics", Replicas: readExposition(text)}
		assert.Diff(t, want, e.lines(), "of %s", text)
	}
}

// TestExpositionOfOthers: lines of running engines that their users have published.
func TestExpositionOfOthers(t *testing.T) {
	for text, want := range map[string]string{
		// vLLM 0.10, vllm-project/production-stack#617
		`# TYPE vllm:gpu_prefix_cache_queries_created gauge
vllm:gpu_prefix_cache_queries_created{engine="0",model_name="zai-org/GLM-4.5"} 1.7537953269352946e+09
vllm:gpu_prefix_cache_hits_total{engine="0",model_name="zai-org/GLM-4.5"} 0.0
vllm:gpu_prefix_cache_hits_created{engine="0",model_name="zai-org/GLM-4.5"} 1.7537953269353123e+09
# HELP vllm:kv_cache_usage_perc KV-cache usage. 1 means 100 percent usage.
vllm:kv_cache_usage_perc{engine="0",model_name="zai-org/GLM-4.5"} 9.75010481363281e-06
vllm:prefix_cache_queries_total{engine="0",model_name="zai-org/GLM-4.5"} 32.0
`: "vLLM h zai-org/GLM-4.5: KV cache <0.1%, prefix hits 0.0%",
		// vLLM 0.8, vllm-project/production-stack#318
		`process_max_fds 1.048576e+06
vllm:num_requests_running{model_name="Qwen/Qwen2.5-Coder-32B-Instruct"} 0.0
vllm:num_requests_waiting{model_name="Qwen/Qwen2.5-Coder-32B-Instruct"} 0.0
vllm:gpu_cache_usage_perc{model_name="Qwen/Qwen2.5-Coder-32B-Instruct"} 0.0
`: "vLLM h Qwen/Qwen2.5-Coder-32B-Instruct: KV cache 0.0%, 0 running, 0 waiting",
		// SGLang behind a gateway, smg-project/smg#813
		`sglang_cuda_graph_passes_total{engine_type="unified",mode="decode_cuda_graph",model_name="meta-llama/Llama-3.1-8B-Instruct",tp_rank="0",worker_addr="grpc://127.0.0.1:8001"} 311
sglang_cache_hit_rate{engine_type="unified",model_name="meta-llama/Llama-3.1-8B-Instruct",moe_ep_rank="0",pp_rank="0",tp_rank="0",worker_addr="grpc://127.0.0.1:8001"} 0
`: "SGLang h meta-llama/Llama-3.1-8B-Instruct: prefix hits 0.0%",
		// SGLang's first metrics, sgl-project/sglang#1853
		`sglang:max_total_num_tokens{name="meta-llama/Llama-3.2-3B"} 570979.0
sglang:max_prefill_tokens{name="meta-llama/Llama-3.2-3B"} 16384.0
`: "SGLang h meta-llama/Llama-3.2-3B: of 570,979 tokens",
	} {
		e := Engine{URL: "http://h/metrics", Replicas: readExposition(text)}
		assert.Diff(t, []string{want}, e.lines(), "of %s", text)
	}
}

// TestExpositionHostile: what is no number, no share or no end of a label is passed over, and what is taken is bounded.
func TestExpositionHostile(t *testing.T) {
	for _, text := range []string{
		"", "\x00\xff\n\n{} 1\n", "vllm:kv_cache_usage_perc", "vllm:kv_cache_usage_perc{", "vllm:kv_cache_usage_perc{a=\"b",
		"vllm:kv_cache_usage_perc{a} 0.5", "vllm:kv_cache_usage_perc{a=\"b\\", "vllm:kv_cache_usage_perc NaN", "vllm:kv_cache_usage_perc +Inf",
		"vllm:kv_cache_usage_perc 0.5 1 2", "# vllm:kv_cache_usage_perc 0.5",
		"vllm:kv_cache_usage_perc{model_name=\"" + strings.Repeat("x", longestSample) + "\"} 0.5",
	} {
		assert.Diff(t, []Replica{}, readExposition(text), "of %.60q", text)
	}
	r := readExposition("vllm:kv_cache_usage_perc 1.5\nvllm:prefix_cache_queries_total 4\nvllm:prefix_cache_hits_total 5\n" +
		"vllm:num_requests_running 1e300\nvllm:num_requests_waiting -4\n")
	assert.That(t, len(r) == 1 && r[0].KVUsage == nil && r[0].HitRate == nil && *r[0].Running == 1<<53 && r[0].Waiting == nil, "%+v", r)
	r = readExposition(`vllm:kv_cache_usage_perc{model_name="a\"b\\c\nd,}` + "\xff" + strings.Repeat("x", 200) + `", engine="1",} 0.5 7` + "\n")
	assert.Must(t, len(r) == 1, "%+v", r)
	assert.Equal(t, r[0].Model[:11], "a\"b\\c\nd,}\uFFFD"[:11])
	assert.That(t, len(r[0].Model) <= longestLabel+2 && r[0].Rank == "1" && *r[0].KVUsage == 0.5, "%d bytes: %+v", len(r[0].Model), r)
	var many strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&many, "vllm:kv_cache_usage_perc{engine=\"%d\"} 0.5\n", i)
	}
	e := Engine{URL: "http://u:xxxxx@h/metrics", Replicas: readExposition(many.String())}
	assert.That(t, len(e.Replicas) == mostReplicas && e.Replicas[10].Rank == "10", "%d", len(e.Replicas))
	assert.Equal(t, e.lines()[shownReplicas], fmt.Sprintf("engine h: %d more in --json", mostReplicas-shownReplicas))
}

func engineURL(t *testing.T, text string) *url.URL {
	t.Helper()
	u, err := EngineURL(text)
	assert.NoError(t, err)
	return u
}

// TestEngineWatch: an engine's numbers, what of them is recent, another engine in its place, and why one says nothing.
func TestEngineWatch(t *testing.T) {
	var answer atomic.Value
	answer.Store(fmt.Sprintf(vllm11, 200, 50))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/metrics": // FastAPI's mounts do so
			http.Redirect(w, r, "/metrics/", http.StatusTemporaryRedirect)
		case "/metrics/":
			fmt.Fprint(w, answer.Load())
		case "/long":
			for range mostOfAnswer/(1<<16) + 1 {
				fmt.Fprint(w, strings.Repeat("x\n", 1<<15))
			}
		case "/slow":
			fmt.Fprint(w, "vllm:kv_cache_usage_perc 0.5\n")
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		case "/away":
			http.Redirect(w, r, "http://localhost:1/metrics", http.StatusFound)
		case "/other":
			fmt.Fprint(w, "go_goroutines 7\n")
		default:
			http.NotFound(w, r)
		}
	}))
	defer server.Close()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	gone := httptest.NewServer(nil)
	gone.Close()
	urls := []*url.URL{engineURL(t, server.URL)}
	for _, path := range []string{"/long", "/slow", "/away", "/other", "/v1"} {
		urls = append(urls, engineURL(t, server.URL+path))
	}
	urls = append(urls, engineURL(t, strings.Replace(gone.URL, "http://", "http://user:secret@", 1)))
	begun := time.Now()
	w := newEngineWatch(ctx, urls, time.Hour)
	assert.That(t, time.Since(begun) < engineAnswersIn+5*time.Second, "asked for %v", time.Since(begun))
	said := w.now()
	assert.Must(t, said[0].Problem == "" && len(said[0].Replicas) == 2, "%+v", said[0])
	assert.That(t, *said[0].Replicas[0].HitRate == 0.25 && said[0].Replicas[0].Recent == nil, "%+v", said[0])
	for _, e := range said {
		assert.That(t, !strings.Contains(fmt.Sprint(e), "secret"), "%+v", e)
	}
	for i, want := range []string{
		"longer than 16 MiB", "within 3s", "it answers 302 Found", "no metrics of vLLM or SGLang", "404 Not Found: no metrics", "connection refused",
	} {
		e := said[i+1]
		assert.That(t, strings.Contains(e.Problem, want) && len(e.Replicas) == 0, "%s: %q, want %q", e.URL, e.Problem, want)
		assert.That(t, strings.HasPrefix(e.lines()[0], "engine 127.0.0.1:") && !strings.Contains(e.Problem, "http://"), "%q", e.lines())
	}
	for _, step := range []struct {
		queries, hits int
		recent        string
	}{{300, 140, ", 90.0% lately,"}, {300, 140, ", 90.0% lately,"}, {100, 50, "prefix hits 50.0%, 12 running"}, {200, 60, ", 10.0% lately,"}} {
		answer.Store(fmt.Sprintf(vllm11, step.queries, step.hits))
		w.ask(ctx, 0, urls[0])
		line := w.now()[0].lines()[0]
		assert.That(t, strings.Contains(line, step.recent), "%q, want %q", line, step.recent)
	}
	server.CloseClientConnections()
	server.Close()
	w.ask(ctx, 0, urls[0])
	assert.That(t, len(w.now()[0].Replicas) == 0 && w.now()[0].Problem != "", "%+v", w.now()[0])
}

// TestEngineURL: /metrics where no path is given, and no password where the address is shown.
func TestEngineURL(t *testing.T) {
	for text, want := range map[string]string{
		"http://h:1": "http://h:1/metrics", "https://h/": "https://h/metrics", "http://h/x/metrics?a=b": "http://h/x/metrics?a=b",
		"http://u:secret@h": "http://u:xxxxx@h/metrics",
	} {
		assert.Equal(t, engineURL(t, text).Redacted(), want)
	}
	for _, wrong := range []string{"run", "127.0.0.1:8000", "ftp://h", "http://", "http://%zz", "file:///etc/passwd"} {
		_, err := EngineURL(wrong)
		assert.That(t, err != nil && strings.Contains(err.Error(), "want the address"), "%s: %v", wrong, err)
	}
	e := Engine{URL: "http://u:xxxxx@h:1/metrics"}
	assert.Equal(t, e.host(), "h:1")
}

// TestEnginesShown: lines of the screen, of output that is no terminal, and OpenMetrics.
func TestEnginesShown(t *testing.T) {
	look := &View{Engines: []Engine{
		{URL: "http://h:1/metrics", Replicas: readExposition(vllm08)}, {URL: "http://g/metrics", Problem: "gone\x1b[2J"},
	}}
	want := []string{"vLLM h:1 m: KV cache 41.2%, prefix hits 25.0%", `engine g: gone\x1b[2J`}
	assert.Diff(t, want, table(look, 80, 0)[1:3], "table")
	plain := plainLines(look)
	assert.That(t, strings.Contains(plain, want[0]) && strings.Contains(plain, want[1]), "%s", plain)
	text := string(openMetrics(look))
	for _, want := range []string{
		"# TYPE memprof_engine_kv_usage gauge\n# HELP memprof_engine_kv_usage ", "memprof_engine_kv_usage{engine=\"vLLM\",host=\"h:1\",model=\"m\",rank=\"\"} 0.412500\n",
		"memprof_engine_prefix_hit_rate{engine=\"vLLM\",host=\"h:1\",model=\"m\",rank=\"\"} 0.250000\n",
	} {
		assert.That(t, strings.Contains(text, want), "no %q in\n%s", want, text)
	}
}
