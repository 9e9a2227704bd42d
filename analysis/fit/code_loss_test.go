package fit

import (
	"testing"

	"github.com/memprof/memprof/analysis/attribution"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// lossJob is a language model: a layer of 160 MiB and a head of 40 MiB, whose output has 160, too. Backward makes the loss's gradient of two
// steps, sums the bias's with a scratch of 140, and frees the loss's behind the head's own results: a gradient of 40 and one of 160.
func lossJob() *script {
	j := &script{job: newJob()}
	j.alloc(40, attribution.Weights, "")
	for range 2 {
		var hidden, logits, loss int64
		j.phase("forward", func() {
			j.free(j.alloc(160, attribution.Temporaries, "net.layer"))
			hidden = j.alloc(160, attribution.Activations, "net.layer")
		})
		j.phase("forward", func() { // the head, which the job calls by itself
			made := j.alloc(160, attribution.Temporaries, "net.head")
			logits = j.alloc(160, attribution.Activations, "net.head")
			j.free(made)
		})
		loss = j.alloc(160, attribution.Loss, "")
		j.free(logits)
		kept := j.alloc(160, attribution.Inputs, "") // a variable of the job
		var gradient int64
		j.phase("backward", func() {
			first := j.alloc(160, attribution.Temporaries, "")
			second := j.alloc(160, attribution.Temporaries, "")
			j.free(first, loss)
			j.free(j.alloc(140, attribution.Temporaries, ""))
			of := j.alloc(160, attribution.Temporaries, "")
			gradient = j.alloc(40, attribution.Gradients, "")
			j.free(second, hidden)
			deeper := j.alloc(160, attribution.Temporaries, "")
			j.free(of, deeper)
		})
		j.phase("optimizer", func() { j.free(gradient) })
		j.free(kept)
		j.phase("forward", func() { // an evaluation
			j.free(j.alloc(160, attribution.Temporaries, "net.head"))
		})
	}
	return j
}

// TestChunkedLoss: logits, their copies, the loss and its two gradients are an eighth as large, 20 MiB, and the scratch. What the job keeps of it is
// gone in backward. What the layer made, its gradients, and what an evaluation makes stay, though they are as large.
func TestChunkedLoss(t *testing.T) {
	h := lossJob().history(t)
	e := chunkedLoss(h)
	resized := map[int64]int{} // MiB
	for _, bytes := range e.sizes {
		resized[bytes*2/mib]++
	}
	assert.Diff(t, map[int64]int{40: 2 * 6, 35: 2}, resized, "how many blocks have so many halves of MiB")
	// Behind a chunk: weights, the layer's result and its gradient, and three of the head's gradient: two and their sum.
	assert.Equal(t, e.requested()/mib, int64(40+160+160+3*40), "requested, MiB")
	assert.Equal(t, lossJob().liveAtEnd(t, e), 1, "blocks that live on: the weights")
}

// TestChunkedLossSums: behind the last chunk, three gradients of the head are there for a while: what sums two of them is a block of its own.
func TestChunkedLossSums(t *testing.T) {
	j := &script{job: newJob()}
	j.alloc(200, attribution.Weights, "")
	var hidden, loss int64
	j.phase("forward", func() {
		hidden = j.alloc(8, attribution.Activations, "net.layer")
		loss = j.alloc(800, attribution.Loss, "net.head")
	})
	j.phase("backward", func() {
		gradient := j.alloc(800, attribution.Temporaries, "")
		j.free(loss)
		j.alloc(200, attribution.Gradients, "")
		j.free(gradient, hidden)
	})
	e := chunkedLoss(j.history(t))
	assert.Equal(t, e.requested()/mib, int64(200+8+3*200), "requested, MiB: more than the three chunks of 100 beside the sum")
}

// TestChunkedLossOfShortRows: a copy of the logits without the last of 16 tokens is a chunk, too; one that lacks more is not of the loss.
func TestChunkedLossOfShortRows(t *testing.T) {
	j := &script{job: newJob()}
	j.alloc(40, attribution.Weights, "")
	var loss int64
	j.phase("forward", func() { loss = j.alloc(160, attribution.Loss, "net.head") })
	shifted, other := j.alloc(150, attribution.Temporaries, ""), j.alloc(149, attribution.Temporaries, "")
	j.phase("backward", func() { j.free(loss) })
	j.free(shifted, other)
	h := j.history(t)
	resized := map[int64]int64{} // MiB
	e := chunkedLoss(h)
	for i := range h.blocks {
		resized[h.blocks[i].bytes/mib] = e.size(&h.blocks[i]) * 8 / mib
	}
	assert.Diff(t, map[int64]int64{40: 8 * 40, 160: 160, 150: 150, 149: 8 * 149}, resized, "eighths of MiB")
}
