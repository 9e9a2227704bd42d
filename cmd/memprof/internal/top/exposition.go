package top

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// This file reads what vLLM and SGLang say of their KV caches in Prometheus's text format. It is another program's text: a line that is
// no sample, a number that cannot be, and all other metrics are passed over.

// Replica is what an engine says of one of its schedulers, of which it has several under data parallelism.
type Replica struct {
	Engine  string   `json:"engine"` // "vLLM" or "SGLang"
	Model   string   `json:"model"`
	Rank    string   `json:"rank"`             // of data parallelism; "" where there is none
	KVUsage *float64 `json:"kv_usage"`         // share of the KV cache that is taken, 0 to 1; null where the engine does not say
	HitRate *float64 `json:"prefix_hit_rate"`  // of prompts' tokens, from 0 to 1: vLLM's since it began, SGLang's of its latest prompts
	Recent  *float64 `json:"recent_hit_rate"`  // of the tokens that came between the last two answers that differ; vLLM's alone
	Tokens  *int64   `json:"kv_tokens"`        // that the KV cache has room for; SGLang's alone
	Running *int64   `json:"running_requests"` // in the batch
	Waiting *int64   `json:"waiting_requests"`

	queries, hits *float64 // tokens looked up in the prefix cache since the engine began, and found
}

// Bounds of what is taken of an answer.
const (
	mostReplicas  = 64
	longestSample = 4 << 10 // bytes of a line
	longestLabel  = 128     // bytes of the model's name that are kept
)

// gauges are the metrics by name, without colons. Those of the same field are older names of it, or names of other versions.
var gauges = map[string]func(*Replica) **float64{
	"vllm_kv_cache_usage_perc":       func(r *Replica) **float64 { return &r.KVUsage },
	"vllm_gpu_cache_usage_perc":      func(r *Replica) **float64 { return &r.KVUsage }, // until 0.10
	"vllm_gpu_prefix_cache_hit_rate": func(r *Replica) **float64 { return &r.HitRate }, // of V0, below 0 where there is no prefix cache
	"sglang_token_usage":             func(r *Replica) **float64 { return &r.KVUsage },
	"sglang_cache_hit_rate":          func(r *Replica) **float64 { return &r.HitRate },
	"vllm_prefix_cache_queries":      func(r *Replica) **float64 { return &r.queries },
	"vllm_prefix_cache_hits":         func(r *Replica) **float64 { return &r.hits },
	"vllm_gpu_prefix_cache_queries":  func(r *Replica) **float64 { return &r.queries }, // until 0.10
	"vllm_gpu_prefix_cache_hits":     func(r *Replica) **float64 { return &r.hits },
}

// counts are metrics that are whole numbers.
var counts = map[string]func(*Replica) **int64{
	"sglang_max_total_num_tokens": func(r *Replica) **int64 { return &r.Tokens },
	"vllm_num_requests_running":   func(r *Replica) **int64 { return &r.Running },
	"vllm_num_requests_waiting":   func(r *Replica) **int64 { return &r.Waiting },
	"sglang_num_running_reqs":     func(r *Replica) **int64 { return &r.Running },
	"sglang_num_queue_reqs":       func(r *Replica) **int64 { return &r.Waiting },
}

// readExposition finds what an answer says of each replica, by model and rank.
func readExposition(text string) []Replica {
	found := map[[3]string]*Replica{}
	for line := range strings.Lines(text) {
		name, labels, value, ok := readSample(line)
		if !ok || value < 0 || labels["priority"] != "" { // SGLang has its queue by priority, too
			continue
		}
		gauge, count := gauges[name], counts[name]
		if gauge == nil && count == nil {
			continue
		}
		key := [3]string{"vLLM", labels["model_name"], labels["engine"]}
		if strings.HasPrefix(name, "sglang") {
			key = [3]string{"SGLang", cmp.Or(labels["model_name"], labels["name"]), labels["dp_rank"]} // name: of its first version
		}
		r := found[key]
		if r == nil {
			if len(found) == mostReplicas {
				continue
			}
			r = &Replica{Engine: key[0], Model: key[1], Rank: key[2]}
			found[key] = r
		}
		// Ranks of tensor parallelism say the same of their parts of the cache. The greatest is nearest to its end.
		if gauge != nil {
			if to := gauge(r); *to == nil || value > **to {
				*to = &value
			}
			continue
		}
		whole := int64(min(value, 1<<53))
		if to := count(r); *to == nil || whole > **to {
			*to = &whole
		}
	}
	keys := slices.SortedFunc(maps.Keys(found), func(a, b [3]string) int {
		return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1]), cmp.Compare(len(a[2]), len(b[2])), cmp.Compare(a[2], b[2]))
	})
	replicas := []Replica{}
	for _, key := range keys {
		r := found[key]
		r.KVUsage = share(r.KVUsage)
		if r.HitRate = share(r.HitRate); r.queries != nil && r.hits != nil {
			r.HitRate = rate(*r.hits, *r.queries)
		}
		replicas = append(replicas, *r)
	}
	return replicas
}

// share is nil for what is none.
func share(of *float64) *float64 {
	if of == nil || *of < 0 || *of > 1 {
		return nil
	}
	return of
}

// rate is part of whole, nil where there is none.
func rate(part, whole float64) *float64 {
	if whole <= 0 {
		return nil
	}
	of := part / whole
	return share(&of)
}

// since sets the rates of the tokens that came since an earlier answer, or keeps those of the answer before if none came.
func (r *Replica) since(before []Replica) {
	for i := range before {
		b := &before[i]
		if b.Engine != r.Engine || b.Model != r.Model || b.Rank != r.Rank || b.queries == nil || b.hits == nil || r.queries == nil || r.hits == nil {
			continue
		}
		r.Recent = b.Recent
		if *r.queries != *b.queries { // where there are less, another engine began: no rate
			r.Recent = rate(*r.hits-*b.hits, *r.queries-*b.queries)
		}
	}
}

// readSample reads NAME{LABEL="VALUE",...} NUMBER [TIME]. Ray Serve and others write _ for the colons of names, and Ray a prefix.
// A counter's name is without _total.
func readSample(line string) (name string, labels map[string]string, value float64, ok bool) {
	line = strings.TrimSpace(line)
	end := strings.IndexAny(line, "{ \t")
	if end <= 0 || len(line) > longestSample || line[0] == '#' {
		return "", nil, 0, false
	}
	name = strings.TrimSuffix(strings.TrimPrefix(strings.ReplaceAll(line[:end], ":", "_"), "ray_"), "_total")
	if gauges[name] == nil && counts[name] == nil {
		return "", nil, 0, false
	}
	rest := line[end:]
	if rest[0] == '{' {
		if labels, rest, ok = readLabels(rest[1:]); !ok {
			return "", nil, 0, false
		}
	}
	words := strings.Fields(rest)
	if len(words) < 1 || len(words) > 2 {
		return "", nil, 0, false
	}
	value, err := strconv.ParseFloat(words[0], 64)
	return name, labels, value, err == nil && !math.IsNaN(value) && !math.IsInf(value, 0)
}

// readLabels reads labels up to their closing brace, and returns what is behind it.
func readLabels(text string) (labels map[string]string, rest string, ok bool) {
	labels = map[string]string{}
	for {
		text = strings.TrimLeft(text, ", \t")
		if strings.HasPrefix(text, "}") {
			return labels, text[1:], true
		}
		name, quoted, found := strings.Cut(text, `="`)
		if !found {
			return nil, "", false
		}
		var value strings.Builder
		i := 0
		for ; i < len(quoted) && quoted[i] != '"'; i++ {
			c := quoted[i]
			if c == '\\' && i+1 < len(quoted) {
				if i++; quoted[i] == 'n' {
					c = '\n'
				} else {
					c = quoted[i]
				}
			}
			if value.Len() < longestLabel {
				value.WriteByte(c)
			}
		}
		if i == len(quoted) {
			return nil, "", false
		}
		labels[strings.TrimSpace(name)] = strings.ToValidUTF8(value.String(), "\uFFFD")
		text = quoted[i+1:]
	}
}
