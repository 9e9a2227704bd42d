package pause

import "strings"

// Engine is what an inference engine has besides its KV cache, in bytes.
type Engine struct {
	Weights int64
	Graphs  int64
	Other   int64 // buffers and whatever else the stage needs
}

// Engine returns the memory of the engine that has the KV cache: the tags of the stage that needs a KV cache and
// has most memory. Engines do not say what a tag is for, so its name decides: "weights", "cuda_graph". It is
// not ok if no stage needs a KV cache.
func (c *Cycle) Engine() (engine Engine, ok bool) {
	most := int64(-1)
	for s, stage := range c.Stages {
		var found Engine
		kv := false
		for t := range c.Tags {
			if stage.Needs[t] {
				kv = kv || c.Tags[t].KV
				found.add(&c.Tags[t], max(c.size(s, t), 0))
			}
		}
		if sum := found.Weights + found.Graphs + found.Other; kv && sum > most {
			engine, most = found, sum
		}
	}
	return engine, most >= 0
}

func (e *Engine) add(tag *Tag, bytes int64) {
	switch name := strings.ToLower(tag.Name); {
	case tag.KV:
	case strings.Contains(name, "weight"):
		e.Weights += bytes
	case strings.Contains(name, "graph"):
		e.Graphs += bytes
	default:
		e.Other += bytes
	}
}

// Settings are the options of two engines that give them a KV cache of a size.
type Settings struct {
	// MemFractionStatic is SGLang's: the weights and the KV cache, of what is free before they are allocated.
	MemFractionStatic float64
	// GPUMemoryUtilization is vLLM's: the weights, what a forward pass needs, the graphs and the KV cache, of the whole
	// card. The graphs are in it since vLLM 0.21; VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=0 leaves them out.
	GPUMemoryUtilization float64
}

// Settings returns the options with which the engine takes kv bytes on a card, of which outside bytes are used
// outside of arenas. They are rounded down to three decimals.
func (e *Engine) Settings(kv, card, outside int64) Settings {
	return Settings{thousandths(e.Weights+kv, card-outside), thousandths(e.Weights+e.Graphs+e.Other+kv, card)}
}

func thousandths(part, whole int64) float64 {
	if whole <= 0 {
		return 0
	}
	// 1000 times a card's bytes fits into 64 bits.
	return float64(part*1000/whole) / 1000
}
