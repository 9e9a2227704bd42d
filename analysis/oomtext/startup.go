package oomtext

import (
	"bytes"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Startup is what the log of a vLLM or SGLang that starts says of one GPU's memory, in bytes: the first line about each,
// whichever rank's it is.
type Startup struct {
	Engine      string `json:"engine"` // "" while nothing was found
	Total       *int64 `json:"total"`
	Weights     *int64 `json:"weights"`
	Activations *int64 `json:"activations"` // at the peak of the profiled batch
	Outside     *int64 `json:"outside"`     // of PyTorch
	KV          *int64 `json:"kv"`
	Tokens      *int64 `json:"kv_tokens"`
	Graphs      *int64 `json:"graphs"`
	Estimated   *int64 `json:"graphs_estimated"` // what vLLM set aside for graphs before it sized the KV cache
	Free        *int64 `json:"free"`             // when all is done

	line    []byte // the beginning of one that has not ended
	ignored bool   // vLLM prints the estimate, and sets nothing aside
}

// notSetAside is what vLLM says where it ignores its estimate: by a setting, and before the estimate was the default.
var notSetAside = []string{"CUDA graph memory profiling is disabled", "CUDA graph memory profiling will be enabled by default"}

const startupLine = 4 << 10 // bytes of a line that are looked at

type startupForm struct {
	engine, has string // what a line has in it, before the expression is tried
	form        *regexp.Regexp
	into        []func(*Startup) **int64 // of each group
}

// startupForms are lines with figures: of GiB, which SGLang calls GB, or of tokens.
var startupForms = sync.OnceValue(func() []startupForm {
	return []startupForm{
		of("vLLM", "odel loading took", `odel loading took ([\d.]+) G`, weights),
		of("vLLM", "total_gpu_memory", `total_gpu_memory \(([\d.]+)GiB\)`, total),
		of("vLLM", "model weights take", `model weights take ([\d.]+)GiB; non_torch_memory takes ([\d.]+)GiB; PyTorch activation peak memory takes ([\d.]+)GiB; `+
			`the rest of the memory reserved for KV Cache is ([\d.]+)GiB`, weights, outside, activations, keysValues),
		of("vLLM", "KV cache memory", `Available KV cache memory: ([\d.]+) GiB`, keysValues),
		of("vLLM", "KV cache size", `GPU KV cache size: ([\d,]+) tokens`, tokens),
		of("vLLM", "Estimated CUDA graph memory", `Estimated CUDA graph memory: ([\d.]+) GiB`, estimated),
		of("vLLM", "CUDA graph pool memory", `CUDA graph pool memory: (-?[\d.]+) GiB \(actual\), ([\d.]+) GiB \(estimated\)`, graphs, estimated),
		of("vLLM", "raph capturing finished", `raph capturing finished in .*took ([\d.]+) GiB`, graphs),
		of("SGLang", "Load weight end", `Load weight end\..*mem usage=([\d.]+) GB`, weights),
		of("SGLang", "KV Cache is allocated", `KV Cache is allocated\..*#tokens: (\d+), K size: ([\d.]+) GB, V size: ([\d.]+) GB`, tokens, keysValues, keysValues),
		of("SGLang", "apture cuda graph end", `apture cuda graph end\..*mem usage=([\d.]+) GB`, graphs),
		of("SGLang", "max_total_num_tokens", `max_total_num_tokens=(\d+),.*available_gpu_mem=([\d.]+) GB`, tokens, free),
	}
})

func of(engine, has, text string, into ...func(*Startup) **int64) startupForm {
	return startupForm{engine, has, regexp.MustCompile(text), into}
}

func total(s *Startup) **int64       { return &s.Total }
func weights(s *Startup) **int64     { return &s.Weights }
func activations(s *Startup) **int64 { return &s.Activations }
func outside(s *Startup) **int64     { return &s.Outside }
func keysValues(s *Startup) **int64  { return &s.KV }
func tokens(s *Startup) **int64      { return &s.Tokens }
func graphs(s *Startup) **int64      { return &s.Graphs }
func estimated(s *Startup) **int64   { return &s.Estimated }
func free(s *Startup) **int64        { return &s.Free }

// add reads the next part of the log: a line, or a piece of a long one.
func (s *Startup) add(part []byte) {
	text, ended := bytes.CutSuffix(part, []byte("\n"))
	s.line = append(s.line, text[:min(len(text), startupLine-len(s.line))]...)
	if ended {
		s.read(string(s.line))
		s.line = s.line[:0]
	}
}

// found says whether the log, which has ended, tells of a start.
func (s *Startup) found() bool {
	s.read(string(s.line))
	s.line = nil
	if s.ignored {
		s.Estimated = nil
	}
	return s.Engine != ""
}

func (s *Startup) read(line string) {
	s.ignored = s.ignored || slices.ContainsFunc(notSetAside, func(said string) bool { return strings.Contains(line, said) })
	for _, f := range startupForms() {
		if s.Engine != "" && s.Engine != f.engine || !strings.Contains(line, f.has) {
			continue
		}
		sums := map[**int64]int64{} // what is given in two parts, as keys and values, is added up
		for i, group := range f.form.FindStringSubmatch(line) {
			if i == 0 {
				continue
			}
			figure, err := strconv.ParseFloat(strings.ReplaceAll(group, ",", ""), 64)
			if err != nil || figure > 1<<20 && strings.Contains(group, ".") || figure > 1<<50 {
				continue
			}
			into := f.into[i-1](s)
			if into != &s.Tokens {
				figure *= 1 << 30
			}
			sums[into] += int64(math.Round(min(max(figure, 0), 1<<60))) // a difference of two readings may be below 0
		}
		for into, sum := range sums {
			if *into == nil {
				s.Engine, *into = f.engine, &sum
			}
		}
	}
}

// Rest is what of the total is in no other part; nil where the total is not known.
func (s *Startup) Rest() *int64 {
	if s.Total == nil {
		return nil
	}
	rest := *s.Total
	for _, part := range []*int64{s.Weights, s.Activations, s.Outside, s.KV, s.Graphs} {
		if part != nil {
			rest -= *part
		}
	}
	return &rest
}

// Unused is how many tokens of KV cache would fit into what vLLM set aside for graphs and they did not take; where the log does not say
// what they took, into all that it set aside. It is nil where the estimate, the KV cache or its tokens are not known.
func (s *Startup) Unused() *int64 {
	if s.Estimated == nil || s.KV == nil || s.Tokens == nil || *s.KV <= 0 {
		return nil
	}
	room := float64(max(*s.Estimated-or(s.Graphs, 0), 0))
	return known(int64(min(room/float64(*s.KV)*float64(*s.Tokens), 1<<50)))
}
