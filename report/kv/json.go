package kv

import (
	"io"

	"github.com/memprof/memprof/analysis/kvcache"
	"github.com/memprof/memprof/report/plain"
)

// KVJSON writes the simulation as one JSON object, indented. Shares are of the capacity, and 1 is
// all; bytes, slots and counts are integers; what does not exist is null, as the mean of no step;
// lists are never null. Blocks of sharing are sums over the counted steps. It fails only where w
// does.
func JSON(w io.Writer, k *Simulation) error {
	return plain.WriteJSON(w, newJSONKV(k))
}

func newJSONKV(k *Simulation) jsonKV {
	out := jsonKV{
		Model: k.Model, Ranks: k.Ranks, Memory: k.Memory, BytesPerToken: k.BytesPerToken,
		Load: k.Load, Policies: []jsonKVPolicy{},
	}
	if k.Sampling != "" {
		out.Sampling = &k.Sampling
	}
	if k.BytesPerToken > 0 {
		out.Slots = k.Memory / k.BytesPerToken
	}
	if c := k.Card; c != nil {
		out.Card = &jsonKVCard{c.Total, c.Weights, c.KV, c.Rest}
	}
	for _, r := range k.Results {
		out.Policies = append(out.Policies, newJSONKVPolicy(r))
	}
	return out
}

type jsonKV struct {
	Model         string         `json:"model"`
	Load          string         `json:"load"`
	Sampling      *string        `json:"sampling"`
	Ranks         int            `json:"ranks"`
	Memory        int64          `json:"memory"`
	BytesPerToken int64          `json:"bytes_per_token"`
	Slots         int64          `json:"slots"`
	Card          *jsonKVCard    `json:"card"`
	Policies      []jsonKVPolicy `json:"policies"`
}

type jsonKVCard struct {
	Total   int64 `json:"total"`
	Weights int64 `json:"weights"`
	KV      int64 `json:"kv"`
	Rest    int64 `json:"rest"`
}

type jsonKVShares struct {
	Token    float64 `json:"token"`
	Reserve  float64 `json:"reserve"`
	Internal float64 `json:"internal"`
	External float64 `json:"external"`
	Rounding float64 `json:"external_rounding"`
	Stranded float64 `json:"external_stranded"`
	Idle     float64 `json:"external_idle"`
	Cached   float64 `json:"cached"`
	Null     float64 `json:"null"`
}

type jsonKVSharing struct {
	LogicalBlocks float64 `json:"logical_blocks"`
	Sequences     float64 `json:"saved_by_sequences"`
	Prefixes      float64 `json:"saved_by_prefixes"`
	Equal         float64 `json:"saved_by_equal"`
	Copies        int64   `json:"copies"`
	PrefixHits    int64   `json:"prefix_hits"`
	PrefixTokens  int64   `json:"prefix_tokens"`
}

type jsonKVPolicy struct {
	Policy      string        `json:"policy"`
	Capacity    int64         `json:"capacity"`
	Steps       int64         `json:"steps"`
	Mean        *jsonKVShares `json:"mean"`
	Batch       float64       `json:"batch"`
	PeakBatch   int64         `json:"peak_batch"`
	Requests    int64         `json:"requests"`
	Finished    int64         `json:"finished"`
	Rejected    int64         `json:"rejected"`
	Preemptions int64         `json:"preemptions"`
	Recomputed  int64         `json:"recomputed_tokens"`
	SwappedOut  int64         `json:"swapped_out"`
	SwappedIn   int64         `json:"swapped_in"`
	Sharing     jsonKVSharing `json:"sharing"`
	Map         *jsonKVMap    `json:"map"`
}

type jsonKVMap struct {
	Step      int64            `json:"step"`
	BlockSize int              `json:"block_size"`
	Count     int64            `json:"block_count"`
	Sequences []jsonKVSequence `json:"sequences"`
	Blocks    []jsonKVBlock    `json:"blocks"`
}

type jsonKVSequence struct {
	Request  int64   `json:"request"`
	Sequence int64   `json:"sequence"`
	Tokens   int     `json:"tokens"`
	Table    []int32 `json:"table"`
}

type jsonKVBlock struct {
	References int32 `json:"references"`
	Filled     int32 `json:"filled"`
	Cached     bool  `json:"cached"`
	Null       bool  `json:"null"`
}

func newJSONKVPolicy(r *kvcache.Result) jsonKVPolicy {
	m := r.Mean
	out := jsonKVPolicy{
		Policy: r.Policy, Capacity: r.Capacity, Steps: r.Steps, Batch: r.Batch, PeakBatch: r.Peak,
		Requests: r.Requests, Finished: r.Finished, Rejected: r.Rejected, Preemptions: r.Preemptions,
		Recomputed: r.Recomputed, SwappedOut: r.SwappedOut, SwappedIn: r.SwappedIn,
		Sharing: jsonKVSharing{
			r.LogicalBlocks, r.SavedBySequences, r.SavedByPrefix, r.SavedByEqual, r.Copies, r.PrefixHits, r.PrefixTokens,
		},
	}
	if r.Steps > 0 {
		out.Mean = &jsonKVShares{m.Token, m.Reserve, m.Internal, kvExternal(m), m.Rounding, m.Stranded, m.Idle, m.Cached, m.Null}
	}
	if r.Map == nil {
		return out
	}
	out.Map = &jsonKVMap{Step: r.Map.Step, BlockSize: r.Map.BlockSize, Count: r.Map.Count, Sequences: []jsonKVSequence{}, Blocks: []jsonKVBlock{}}
	for _, q := range r.Map.Sequences {
		out.Map.Sequences = append(out.Map.Sequences, jsonKVSequence{q.Request, q.Sequence, q.Tokens, append([]int32{}, q.Table...)})
	}
	for _, b := range r.Map.Blocks {
		out.Map.Blocks = append(out.Map.Blocks, jsonKVBlock{b.References, b.Filled, b.Cached, b.Null})
	}
	return out
}
