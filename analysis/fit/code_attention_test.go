package fit

import (
	"testing"

	"github.com/memprof/memprof/analysis/attribution"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// TestScoresOfBackward: gradients of scores are left out, the softmax's and the raw scores', and a gradient as large of what another module made
// stays.
func TestScoresOfBackward(t *testing.T) {
	j := &script{job: newJob()}
	var up, softmax int64
	j.phase("forward", func() {
		raw := j.alloc(80, attribution.Temporaries, "h.0.attn")
		softmax = j.alloc(80, attribution.Activations, "h.0.attn")
		j.free(raw)
		j.alloc(10, attribution.Inputs, "h.0.attn")
		up = j.alloc(80, attribution.Activations, "h.0.up")
	})
	j.phase("backward", func() {
		ofUp := j.alloc(80, attribution.Temporaries, "")
		j.free(up)
		ofOutput := j.alloc(10, attribution.Temporaries, "")
		j.free(ofUp)
		ofSoftmax := j.alloc(80, attribution.Temporaries, "")
		j.free(ofOutput)
		ofRaw := j.alloc(80, attribution.Temporaries, "")
		j.free(softmax, ofSoftmax)
		weight := j.alloc(80, attribution.Gradients, "")
		j.free(ofRaw)
		ofLower := j.alloc(80, attribution.Temporaries, "")
		j.free(ofLower, weight)
	})
	h := j.history(t)
	e := withoutScores(h)
	var dropped []int32
	for i := range h.blocks {
		if e.claims[int32(i)] {
			dropped = append(dropped, int32(i))
		}
	}
	assert.Diff(t, []int32{0, 1, 6, 7}, dropped, "blocks that are left out")
	assert.Equal(t, e.requested()/mib, int64(10+80+80), "requested, MiB")
}
