package fit

import (
	"slices"
	"testing"

	"github.com/memprof/memprof/analysis/attribution"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// requestedWith is the most that a job requests with each module of a kind checkpointed, in MiB.
func (j *script) requestedWith(t *testing.T, name string, depth int) int64 {
	t.Helper()
	return j.history(t).checkpoint(kind{name: name, depth: depth}).requested() / mib
}

// TestCheckpointOfUnsavedOutput: a layer ends with a concatenation that the head copies, so that no backward has a use for it. The layer keeps
// none of its two branches: at the head are 64 MiB of weights, 30 of the concatenation and 200.
func TestCheckpointOfUnsavedOutput(t *testing.T) {
	j := &script{job: newJob()}
	j.alloc(64, attribution.Weights, "")
	var saved []int64
	j.phase("forward", func() {
		saved = append(saved, j.alloc(15, attribution.Activations, "net.h.0.a"), j.alloc(15, attribution.Activations, "net.h.0.b"))
		joined := j.alloc(30, attribution.Temporaries, "net.h.0")
		saved = append(saved, j.alloc(200, attribution.Activations, "net.head"))
		j.free(joined)
	})
	j.phase("backward", func() { j.free(saved[2], saved[1], saved[0]) })
	assert.Equal(t, j.requestedWith(t, "net.h.*", 3), int64(294), "requested, MiB")
}

// TestRepeatStops: torch.utils.checkpoint ends the repeated forward when the last block that was saved is there, so that the projection behind it,
// 300 MiB and its result, is not made again. At most requested is the forward of the second layer, 64 MiB of weights, 10 of the first layer's
// result, 100, and the projection with its result, and not the backward of it with 100 more of a gradient.
func TestRepeatStops(t *testing.T) {
	j := &script{job: newJob()}
	j.alloc(64, attribution.Weights, "")
	var saved [][2]int64
	j.phase("forward", func() {
		for _, name := range []string{"net.h.0", "net.h.1"} {
			wide := j.alloc(100, attribution.Activations, name+".wide")
			narrow := j.alloc(300, attribution.Temporaries, name+".narrow")
			saved = append(saved, [2]int64{wide, j.alloc(10, attribution.Activations, name)})
			j.free(narrow)
		}
	})
	j.phase("backward", func() {
		grad := j.alloc(100, attribution.Temporaries, "")
		j.alloc(1, attribution.Gradients, "") // of the head
		j.free(saved[1][1])
		for i := len(saved) - 1; i >= 0; i-- {
			next := j.alloc(100, attribution.Temporaries, "")
			j.free(grad, saved[i][0])
			if grad = next; i > 0 {
				next = j.alloc(100, attribution.Temporaries, "")
				j.alloc(1, attribution.Gradients, "") // of a norm, which saved the result of the layer before
				j.free(grad, saved[i-1][1])
				grad = next
			}
		}
		j.free(grad)
	})
	assert.Equal(t, j.requestedWith(t, "net.h.*", 3), int64(64+10+100+300+10), "requested, MiB")
}

// TestRepeatOfPooling: max pooling saves indices behind its result. It is repeated with its result, which nobody has a use for: at most requested
// are 64 MiB of weights, the pooled 100, which the layer before it made, then 50 again and 80 of indices.
func TestRepeatOfPooling(t *testing.T) {
	j := &script{job: newJob()}
	j.alloc(64, attribution.Weights, "")
	var pooled, result, indices int64
	j.phase("forward", func() {
		pooled = j.alloc(100, attribution.Activations, "features.0")
		result, indices = j.alloc(50, attribution.Activations, "features.1"), j.alloc(80, attribution.Activations, "features.1")
	})
	j.phase("backward", func() {
		grad := j.alloc(1, attribution.Temporaries, "")
		j.alloc(1, attribution.Gradients, "")
		j.free(result)
		next := j.alloc(1, attribution.Temporaries, "")
		j.free(grad, pooled, indices, next)
	})
	e := j.history(t).checkpoint(kind{name: "features.*", depth: 2})
	assert.Diff(t, []int64{50, 80, -50}, made(e), "what comes in behind forward, MiB")
}

// TestCheckpointKeepsInput: a block of dense layers copies its input of 40 MiB and saves the copy alone, so that the caller frees the input when
// the block returns. With a checkpoint it stays until the block's backward is over: at most requested are 64 MiB of weights, 40, 10 of the
// block's result and 300 of the head, which is at the input's recorded address.
func TestCheckpointKeepsInput(t *testing.T) {
	j := &script{job: newJob()}
	j.alloc(64, attribution.Weights, "")
	var saved []int64
	j.phase("forward", func() {
		input := j.alloc(40, attribution.Temporaries, "pool")
		saved = append(saved, j.alloc(100, attribution.Activations, "dense.0.norm"), j.alloc(10, attribution.Activations, "dense.0"))
		j.free(input)
		saved = append(saved, j.allocAt(input, 300, attribution.Activations, "head"))
	})
	j.phase("backward", func() {
		j.free(saved[2])
		grad := j.alloc(10, attribution.Temporaries, "")
		j.alloc(5, attribution.Gradients, "")
		j.free(saved[1])
		next := j.alloc(10, attribution.Temporaries, "")
		j.free(grad, saved[0])
		j.free(next)
	})
	e := j.history(t).checkpoint(kind{name: "dense.*", depth: 2})
	assert.Equal(t, j.liveAtEnd(t, e), 2, "live at the end: weights and a gradient")
	assert.Equal(t, e.requested()/mib, int64(64+40+10+300), "requested, MiB")
	assert.Equal(t, e.bytesAtPeak()/mib, int64(100), "saved by the block at the peak, MiB")
}

// TestCheckpointOfStatistics: a layer ends with a norm, which saves statistics of 1 MiB behind its result of 50, and nothing saves the result. The
// statistics are not kept, and are made again with the result, which is then freed.
func TestCheckpointOfStatistics(t *testing.T) {
	j := &script{job: newJob()}
	var saved []int64
	j.phase("forward", func() {
		saved = append(saved, j.alloc(100, attribution.Activations, "h.0"))
		result := j.alloc(50, attribution.Activations, "h.0.norm")
		saved = append(saved, j.alloc(1, attribution.Activations, "h.0.norm"), j.alloc(20, attribution.Activations, "head"))
		j.free(result)
	})
	j.phase("backward", func() { j.free(saved[2], saved[1], saved[0]) })
	e := j.history(t).checkpoint(kind{name: "h.*", depth: 2})
	assert.Equal(t, len(e.claims), 2, "blocks that are saved no longer")
	assert.Diff(t, []int64{100, 50, 1, -50}, made(e), "what is made again, MiB")
}

// TestCheckpointKeepsInputOfModel: the job's code calls a model with the result of another, and forgets it then. The model's checkpoint keeps those
// 40 MiB until its backward is over.
func TestCheckpointKeepsInputOfModel(t *testing.T) {
	j := &script{job: newJob()}
	j.alloc(64, attribution.Weights, "")
	var saved []int64
	var input int64
	j.phase("forward", func() { input = j.alloc(40, attribution.Activations, "enter") })
	j.phase("forward", func() {
		saved = append(saved, j.alloc(100, attribution.Activations, "Messages.up"), j.alloc(10, attribution.Activations, "Messages"))
	})
	j.free(input)
	j.phase("forward", func() { saved = append(saved, j.alloc(300, attribution.Activations, "Head")) })
	j.phase("backward", func() {
		j.free(saved[2])
		j.alloc(5, attribution.Gradients, "")
		j.free(saved[1])
		j.free(saved[0])
	})
	e := j.history(t).checkpoint(kind{name: "Messages", depth: 1})
	assert.Equal(t, e.requested()/mib, int64(64+40+10+300), "requested, MiB")
	assert.Equal(t, j.liveAtEnd(t, e), 2, "live at the end: weights and a gradient")
}

// made is what a change allocates and, below 0, frees in backward beyond the recorded events, in MiB and in the order of events.
func made(e *edit) (sizes []int64) {
	e.sorted()
	for i := range e.ops {
		if o := &e.ops[i]; o.addr != 0 && o.frees {
			sizes = append(sizes, -e.sizeOf(o)/mib)
		} else if o.addr != 0 {
			sizes = append(sizes, e.sizeOf(o)/mib)
		}
	}
	return sizes
}

// TestRepeatOfSoftmax: the backward of softmax has a use for its result, so that a repeat runs until that is made. It stays, and the copy of 30 MiB
// before it is made again.
func TestRepeatOfSoftmax(t *testing.T) {
	j := &script{job: newJob()}
	var saved []int64
	j.phase("forward", func() {
		for _, name := range []string{"h.0", "h.1"} {
			saved = append(saved, j.alloc(100, attribution.Activations, name))
			scratch := j.alloc(30, attribution.Temporaries, name)
			saved = append(saved, j.alloc(50, attribution.Activations, name))
			j.free(scratch)
		}
	})
	j.phase("backward", func() {
		for i := len(saved) - 1; i >= 0; i-- {
			grad := j.alloc(1, attribution.Temporaries, "")
			j.free(saved[i])
			j.free(grad)
		}
	})
	assert.Diff(t, []int64{100, 30, -30, 100, 30, -30}, made(j.history(t).checkpoint(kind{name: "h.*", depth: 2})), "what is made again, MiB")
}

// TestCheckpointOfList: other modules are at work between the parts of "down", which so is a list. Each part is checkpointed by itself and keeps
// its result, and the advice names the parts.
func TestCheckpointOfList(t *testing.T) {
	j := &script{job: newJob()}
	j.alloc(64, attribution.Weights, "")
	var saved []int64
	j.phase("forward", func() {
		for _, i := range []string{"0", "1"} {
			for _, name := range []string{"down." + i + ".body", "down." + i + ".body", "down." + i, "shrink." + i} {
				saved = append(saved, j.alloc(100, attribution.Activations, name))
			}
		}
	})
	j.phase("backward", func() {
		for i := len(saved) - 1; i >= 0; i-- {
			j.free(saved[i])
		}
	})
	assert.That(t, j.history(t).checkpoint(kind{name: "down", depth: 1}).empty(), "the list itself is checkpointed")
	best := j.history(t).bestCheckpoint()
	assert.Must(t, best != nil && best.text == "checkpoint each of down.*: 400 MiB of saved tensors", "the best is %+v", best)
}

// TestCheckpointOfModels: only the first model that is called has plain names; names of another one begin with its class. A checkpoint of "h.*" is
// of the modules of both.
func TestCheckpointOfModels(t *testing.T) {
	j := &script{job: newJob()}
	j.alloc(64, attribution.Weights, "")
	var saved []int64
	for _, name := range []string{"h.0", "Decoder.h.0"} {
		j.phase("forward", func() {
			saved = append(saved, j.alloc(100, attribution.Activations, name+".up"), j.alloc(10, attribution.Activations, name))
		})
	}
	j.phase("backward", func() {
		j.alloc(5, attribution.Gradients, "")
		for i := len(saved) - 1; i >= 0; i-- {
			j.free(saved[i])
		}
	})
	assert.Diff(t, []int64{100, 100}, made(j.history(t).checkpoint(kind{name: "h.*", depth: 2})), "what is made again, MiB")
}

// TestRepeatOfGathered: parameters of 40 and 20 MiB are gathered before each layer's forward and freed behind it, and gathered anew before its
// backward. The repeat finds them there: it makes 100 alone, behind them.
func TestRepeatOfGathered(t *testing.T) {
	j := &script{job: newJob()}
	j.alloc(64, attribution.Weights, "")
	var saved, results []int64
	var behind []int32 // of the gathered parameters, in the order of backward
	j.phase("forward", func() {
		for _, name := range []string{"net.h.0", "net.h.1"} {
			gathered := []int64{j.alloc(40, attribution.Temporaries, name), j.alloc(20, attribution.Temporaries, name)}
			saved = append(saved, j.alloc(100, attribution.Activations, name+".up"))
			results = append(results, j.alloc(10, attribution.Activations, name))
			j.free(gathered...)
		}
	})
	j.phase("backward", func() {
		grad := j.alloc(1, attribution.Temporaries, "")
		j.alloc(1, attribution.Gradients, "")
		j.free(results[1])
		for i := len(saved) - 1; i >= 0; i-- {
			gathered := []int64{j.alloc(40, attribution.Temporaries, ""), j.alloc(20, attribution.Temporaries, "")}
			behind = append(behind, int32(len(j.events)))
			next := j.alloc(1, attribution.Temporaries, "")
			j.free(grad, saved[i])
			j.free(gathered...)
			if grad = next; i > 0 {
				next = j.alloc(1, attribution.Temporaries, "")
				j.alloc(1, attribution.Gradients, "")
				j.free(grad, results[i-1])
				grad = next
			}
		}
		j.free(grad)
	})
	e := j.history(t).checkpoint(kind{name: "net.h.*", depth: 3})
	assert.Diff(t, []int64{100, 100}, made(e), "what is made again, MiB")
	again := slices.DeleteFunc(slices.Clone(e.ops), func(o op) bool { return o.frees })
	assert.Diff(t, behind, []int32{again[0].before, again[1].before}, "the events before which it is")
	assert.Equal(t, e.requested()/mib, int64(64+10+40+20+100+10), "requested, MiB")
}
