package kv

import (
	"io"

	"github.com/memprof/memprof/analysis/kvcache"
	"github.com/memprof/memprof/analysis/kvcache/models"
	"github.com/memprof/memprof/analysis/kvcache/serving"
	"github.com/memprof/memprof/analysis/plain"
)

// JSON writes the simulation as one indented JSON object. Shares are fractions of the capacity, from 0
// to 1; bytes, slots and counts are integers; what does not exist is null, as the mean of no step;
// lists are never null. The blocks in "sharing" are sums over the counted steps. It fails only if w
// does.
func JSON(w io.Writer, k *Simulation) error {
	return plain.WriteJSON(w, newJSON(k))
}

func newJSON(k *Simulation) jsonSimulation {
	out := jsonSimulation{
		Model: k.Model, Ranks: k.Ranks, Memory: k.Memory, BytesPerToken: k.BytesPerToken,
		Load: k.Load, Sampling: plain.NotEmpty(k.Sampling), Card: k.Card, Policies: []jsonPolicy{}, Stages: max(1, k.Stages),
	}
	if k.BytesPerToken > 0 {
		out.Slots = k.Memory / k.BytesPerToken
	}
	if t := k.Timing; t != nil {
		out.Timing = &t.Measured
	}
	for _, r := range k.Results {
		out.Policies = append(out.Policies, newJSONPolicy(r))
	}
	return out
}

type jsonSimulation struct {
	Model         string            `json:"model"`
	Load          string            `json:"load"`
	Sampling      *string           `json:"sampling"`
	Ranks         int               `json:"ranks"`
	Stages        int               `json:"stages"` // GPUs that the layers are divided over
	Memory        int64             `json:"memory"`
	BytesPerToken int64             `json:"bytes_per_token"`
	Slots         int64             `json:"slots"`
	Card          *models.Card      `json:"card"`
	Timing        *serving.Measured `json:"timing"` // of steps; null where they are of constant time
	Policies      []jsonPolicy      `json:"policies"`
}

// jsonKind is layers that keep the same; held and needed are bytes in the mean.
type jsonKind struct {
	Kind   string  `json:"kind"`
	Layers int     `json:"layers"`
	Tables int64   `json:"tables"`
	Block  int64   `json:"block"`
	Page   int64   `json:"page"`
	Held   float64 `json:"held"`
	Needed float64 `json:"needed"`
	Waste  float64 `json:"waste"`
}

// jsonLatency is in seconds a token; null where there is none.
type jsonLatency struct {
	Mean *float64 `json:"mean"`
	P90  *float64 `json:"p90"`
}

type jsonShares struct {
	Token      float64 `json:"token"`
	Reserve    float64 `json:"reserve"`
	Internal   float64 `json:"internal"`
	External   float64 `json:"external"`
	Rounding   float64 `json:"external_rounding"`
	Fragmented float64 `json:"external_fragmented"`
	Blocked    float64 `json:"blocked"`
	Idle       float64 `json:"idle"`
	Cached     float64 `json:"cached"`
	Null       float64 `json:"null"`
}

type jsonPolicy struct {
	Policy      string          `json:"policy"`
	Rate        *float64        `json:"rate"`                // requests a second that arrive; null where they come as the file or the engine has them
	Seconds     float64         `json:"seconds"`             // counted; 0 where steps have no time
	PerSecond   *float64        `json:"requests_per_second"` // finished
	Tokens      *float64        `json:"tokens_per_second"`   // generated
	Waiting     *float64        `json:"waiting"`             // mean seconds before the first admission
	Latency     jsonLatency     `json:"latency"`
	Capacity    int64           `json:"capacity"`
	Steps       int64           `json:"steps"`
	Mean        *jsonShares     `json:"mean"`
	Batch       float64         `json:"batch"`
	PeakBatch   int64           `json:"peak_batch"`
	Requests    int64           `json:"requests"`
	Finished    int64           `json:"finished"`
	Rejected    int64           `json:"rejected"`
	Preemptions int64           `json:"preemptions"`
	Recomputed  int64           `json:"recomputed_tokens"`
	SwappedOut  int64           `json:"swapped_out"`
	SwappedIn   int64           `json:"swapped_in"`
	Kinds       []jsonKind      `json:"kinds"` // of layers; empty but under hybrid and uniform
	Sharing     kvcache.Sharing `json:"sharing"`
}

func newJSONPolicy(r *kvcache.Result) jsonPolicy {
	m := r.Mean
	out := jsonPolicy{
		Policy: r.Policy, Capacity: r.Capacity, Steps: r.Steps, Batch: r.Batch, PeakBatch: r.Peak,
		Requests: r.Requests, Finished: r.Finished, Rejected: r.Rejected, Preemptions: r.Preemptions,
		Recomputed: r.Recomputed, SwappedOut: r.SwappedOut, SwappedIn: r.SwappedIn, Sharing: r.Sharing,
	}
	out.Kinds = []jsonKind{}
	for _, u := range r.Kinds {
		out.Kinds = append(out.Kinds, jsonKind{u.Kind.String(), u.Kind.Layers, u.Groups, u.Block, u.Page, u.Held, u.Needed, u.Waste()})
	}
	out.Seconds = float64(r.Time) / 1e9
	if r.Rate > 0 {
		out.Rate = &r.Rate
	}
	if v := r.Served; v != nil {
		out.PerSecond, out.Tokens, out.Waiting = plain.Finite(v.Requests), plain.Finite(v.Tokens), plain.Finite(v.Waiting)
		out.Latency = jsonLatency{plain.Finite(v.Latency.Mean), plain.Finite(v.Latency.P90)}
	}
	if r.Steps > 0 {
		out.Mean = &jsonShares{m.Token, m.Reserve, m.Internal, m.External(), m.Rounding, m.Fragmented, m.Blocked, m.Idle, m.Cached, m.Null}
	}
	return out
}
