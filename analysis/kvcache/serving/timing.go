// # How long steps take
//
// A [Timing] is a model of nine coefficients: some are known by name, and [Fit] makes one of the steps of a recording.
//
// A step that computes p tokens of prompts, with q pairs of a token and one that it attends to, generates a
// token for each of d sequences, which read c slots in b blocks, and copies s slots between device and host in n
// pieces, takes
//
//	overhead + max(weights, token·(p+d)) + sequence·d + context·c + block·b + pair·q + swap·s + piece·n
//
// Few tokens wait for the weights to be read, whatever their number; many for the arithmetic. What a sequence
// costs beyond that is the engine's own work: scheduling, sampling, preparing block tables. Small blocks cost the
// attention kernel a look-up each, and small pieces a call each of the driver. Copies are not overlapped with
// computation.
//
// [Timing.For] scales: weights and token by the number of parameters, context and swap by the bytes of a
// token's keys and values, pair by layers × heads × the size of a head, overhead, block and piece by the number of layers. A
// model of another element size has its weights scaled by it, too. With tensor parallelism each GPU has its part
// of all but overhead and sequence; what the GPUs say to each other is not in the model.
package serving

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/memprof/memprof/analysis/kvcache"
	"github.com/memprof/memprof/analysis/kvcache/models"
)

// Coefficients are ns each; all are finite and at least 0.
type Coefficients struct {
	Overhead float64 `json:"overhead_ns"` // of each step
	Weights  float64 `json:"weights_ns"`  // of reading the weights, once a step
	Token    float64 `json:"token_ns"`    // of a token of a prompt, or a generated one
	Sequence float64 `json:"sequence_ns"` // of a sequence that generates
	Context  float64 `json:"context_ns"`  // of a slot that such a sequence reads
	Pair     float64 `json:"pair_ns"`     // of a pair of a prompt's tokens
	Block    float64 `json:"block_ns"`    // of a block that it reads
	Swap     float64 `json:"swap_ns"`     // of a slot that is copied
	Piece    float64 `json:"piece_ns"`    // of a block, or a row of pages, that is copied: a call for each tensor
}

// Timing is coefficients and where they come from.
type Timing struct {
	Measured
	Coefficients
}

// Measured says which steps were timed.
type Measured struct {
	Name   string `json:"name"`
	Source string `json:"source"` // one line for people
	// Model is the name of the model that was timed, of those [models.Named] knows, on so many GPUs; ""
	// for one that is not known, whose coefficients are not scaled.
	Model string `json:"model"`
	Ranks int    `json:"ranks"`
	// Error is the mean deviation of the steps that the coefficients were fitted to, as a share of each step's time;
	// 0 where they were not fitted.
	Error float64 `json:"error"`
}

// Step implements [kvcache.Timing].
func (c Coefficients) Step(w kvcache.Work) int64 {
	ns := c.Overhead + max(c.Weights, c.Token*float64(w.Prefill+w.Decode)) + c.Sequence*float64(w.Decode) +
		c.Context*float64(w.Context) + c.Block*float64(w.Blocks) + c.Pair*w.Pairs + c.Swap*float64(w.Swapped) + c.Piece*float64(w.Pieces)
	return int64(min(ns, math.MaxInt64/2))
}

// For is the timing of another model on so many GPUs. It is the same timing for the same, and where the timed
// model is not known.
func (t Timing) For(m *models.Model, ranks int) Timing {
	from, err := models.Named(t.Model)
	if err != nil || from.Name == m.Name && t.Ranks == ranks {
		return t
	}
	parts := float64(ranks) / float64(max(1, t.Ranks))
	parameters := float64(m.Parameters) / float64(from.Parameters)
	bytes := float64(m.DtypeBytes) / float64(from.DtypeBytes)
	slot := float64(m.BytesPerToken(ranks)) / float64(from.BytesPerToken(max(1, t.Ranks)))
	heads := func(m *models.Model) float64 { return float64(m.Layers) * float64(m.Heads) * float64(m.HeadSize) }
	layers := float64(m.Layers) / float64(from.Layers)
	t.Overhead *= layers
	t.Block *= layers
	t.Piece *= layers
	t.Weights *= parameters * bytes / parts
	t.Token *= parameters / parts
	t.Context *= slot
	t.Swap *= slot
	t.Pair *= heads(m) / heads(&from) / parts
	t.Source = fmt.Sprintf("scaled from %s on %s", from.Name, gpus(max(1, t.Ranks)))
	t.Model, t.Ranks, t.Error = m.Name, ranks, 0
	return t
}

// Pipeline is a timing of a model whose layers are divided over GPUs in a row. The running requests form as many
// parts; while a stage computes one, the others compute the others. So each part has its share of the work, and a
// step of all takes as long as all stages take for one part. What GPUs say to each other is not in it, and no stage
// waits for another.
type Pipeline struct {
	kvcache.Timing
	Stages int64
}

// Step implements [kvcache.Timing].
func (p Pipeline) Step(w kvcache.Work) int64 {
	n := p.Stages
	up := func(v int64) int64 { return (v + n - 1) / n }
	return p.Timing.Step(kvcache.Work{
		Prefill: up(w.Prefill), Pairs: w.Pairs / float64(n), Decode: up(w.Decode), Context: up(w.Context), Blocks: up(w.Blocks),
		Swapped: up(w.Swapped), Pieces: up(w.Pieces),
	})
}

func gpus(n int) string {
	if n == 1 {
		return "1 GPU"
	}
	return fmt.Sprintf("%d GPUs", n)
}

// ReadTiming reads a timing from JSON, as `memprof kv calibrate` writes it.
func ReadTiming(r io.Reader) (Timing, error) {
	decoder := json.NewDecoder(io.LimitReader(r, 1<<20))
	decoder.DisallowUnknownFields()
	var t Timing
	if err := decoder.Decode(&t); err != nil {
		return t, fmt.Errorf("not a timing of `memprof kv calibrate`: %w", err)
	}
	return t, t.check()
}

// check returns an error for coefficients that no engine has.
func (t *Timing) check() error {
	if t.Ranks < 0 {
		return fmt.Errorf("ranks %d: want at least 1", t.Ranks)
	}
	sum := 0.0
	for _, c := range []struct {
		name string
		ns   float64
	}{
		{"overhead_ns", t.Overhead}, {"weights_ns", t.Weights}, {"token_ns", t.Token}, {"sequence_ns", t.Sequence},
		{"context_ns", t.Context}, {"pair_ns", t.Pair}, {"block_ns", t.Block}, {"swap_ns", t.Swap}, {"piece_ns", t.Piece},
	} {
		if !(c.ns >= 0) || math.IsInf(c.ns, 0) {
			return fmt.Errorf("%s %v: want 0 or more", c.name, c.ns)
		}
		sum += c.ns
	}
	if sum == 0 {
		return errors.New("all coefficients are 0, and a step takes time")
	}
	return nil
}
