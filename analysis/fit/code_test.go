package fit

import (
	"context"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/memprof/memprof/analysis/attribution"
	"github.com/memprof/memprof/analysis/modeltest"
	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// script makes the events of a process, with the category of each allocation.
type script struct {
	*job
	lives attribution.Lives
}

// alloc makes a block of so many MiB, of a module or a stack, and returns its address.
func (j *script) alloc(size int64, c attribution.Category, module string) int64 {
	return j.allocAt(1<<40+int64(len(j.events))<<32, size, c, module)
}

func (j *script) allocAt(addr, size int64, c attribution.Category, module string) int64 {
	if module != "" && !strings.HasPrefix(module, "stack=") {
		module = "module=" + module
	}
	j.lives.Add(int64(len(j.events)), c)
	j.add(trace.KindAlloc, trace.Event{Addr: addr, Requested: size * mib, Provided: size * mib}, module)
	return addr
}

func (j *script) free(addrs ...int64) {
	for _, addr := range addrs {
		j.add(trace.KindFree, trace.Event{Addr: addr}, "")
	}
}

// phase runs f as a phase.
func (j *script) phase(name string, f func()) {
	j.add(trace.KindPhaseBegin, trace.Event{Device: trace.NoDevice, Arena: trace.NoArena}, name)
	f()
	j.add(trace.KindPhaseEnd, trace.Event{Device: trace.NoDevice, Arena: trace.NoArena}, name)
}

func (j *script) history(t *testing.T) *History {
	t.Helper()
	h, err := ReadHistory(modeltest.Source(j.events, 512), func(context int32) string { return j.texts[context] }, &j.lives)
	assert.NoError(t, err)
	return h
}

// process is the job as package fit takes it, recorded with preset compact.
func (j *script) process() *Job {
	return &Job{
		Name: "p", Open: func() (Source, error) { return modeltest.Source(j.events, 512), nil }, Text: func(context int32) string { return j.texts[context] },
		WholeCard: true, Recorded: Allocator{Allocator: "memprof", Policy: bfc.Compact.Policy()},
	}
}

// found are the changes that are worth it: what each saves of the least card, in MiB.
func (j *script) found(t *testing.T) map[string]int64 {
	t.Helper()
	of := j.process()
	rows, err := Hold(context.Background(), of, nil)
	assert.NoError(t, err)
	recorded := slices.IndexFunc(rows, func(row Held) bool { return row.Recorded })
	savings, err := j.history(t).Find(context.Background(), of, rows[recorded].Need)
	assert.NoError(t, err)
	saved, bytes := map[string]int64{}, int64(0)
	for _, s := range savings {
		saved[s.ID] = s.LeastCard / mib
		bytes += s.Bytes
	}
	most := j.history(t).most
	assert.That(t, bytes <= most, "the changes are about %d bytes of %d", bytes, most)
	return saved
}

// layers is a job of four layers, each of which saves 100, 50 and its output of 10 MiB and has a temporary of 20; two iterations.
func layers() *script {
	j := &script{job: newJob()}
	j.alloc(64, attribution.Weights, "")
	for range 2 {
		var saved [][]int64
		j.phase("forward", func() {
			for _, name := range []string{"net.h.0", "net.h.1", "net.h.2", "net.h.3"} {
				first := j.alloc(100, attribution.Activations, name+".up")
				scratch := j.alloc(20, attribution.Temporaries, name)
				second := j.alloc(50, attribution.Activations, name+".act")
				j.free(scratch)
				saved = append(saved, []int64{first, second, j.alloc(10, attribution.Activations, name)})
			}
		})
		j.phase("backward", func() {
			for i := len(saved) - 1; i >= 0; i-- {
				j.free(saved[i]...)
			}
		})
	}
	return j
}

// TestCheckpoint: at the recorded peak are 64 MiB of weights, 630 saved and a temporary of 20. With each layer checkpointed the outputs
// stay, 40 MiB, and the layer that backward is in makes 150 anew, with its temporary of 20.
func TestCheckpoint(t *testing.T) {
	j := layers()
	h := j.history(t)
	if h.most != 714*mib {
		t.Fatalf("%d MiB requested, want 714", h.most/mib)
	}
	best := h.bestCheckpoint()
	assert.Must(t, best != nil && best.text == "checkpoint each of net.h.*: 600 MiB of saved tensors", "the best is %+v", best)
	if got := best.edit.requested() / mib; got != 274 {
		t.Errorf("%d MiB requested with it, want 274", got)
	}
	// A card is of whole pages, and compact leaves part of one free.
	assert.Diff(t, map[string]int64{"checkpoint": 720 - 276}, j.found(t), "saved of the least card")
}

// TestCheckpointOfReLU: each layer ends with batch norm, which saves statistics behind its result, and a ReLU in place. The result stays, and
// the layer is repeated before the ReLU's backward: then there are 64 MiB of weights, both results, a gradient before and behind the ReLU, and
// 101 of the layer.
func TestCheckpointOfReLU(t *testing.T) {
	j := &script{job: newJob()}
	j.alloc(64, attribution.Weights, "")
	var saved [][3]int64
	j.phase("forward", func() {
		for _, name := range []string{"net.h.0", "net.h.1"} {
			saved = append(saved, [3]int64{
				j.alloc(100, attribution.Activations, name+".conv"), j.alloc(100, attribution.Activations, name+".bn"), j.alloc(1, attribution.Activations, name+".bn"),
			})
		}
	})
	j.phase("backward", func() {
		grad := j.alloc(100, attribution.Temporaries, "")
		operator := func(operands ...int64) {
			result := j.alloc(100, attribution.Temporaries, "")
			j.free(append([]int64{grad}, operands...)...)
			grad = result
		}
		for i := len(saved) - 1; i >= 0; i-- {
			operator(saved[i][1])              // ReLU
			operator(saved[i][0], saved[i][2]) // batch norm
			operator()                         // convolution
		}
		j.free(grad)
	})
	best := j.history(t).bestCheckpoint()
	assert.Must(t, best != nil && best.text == "checkpoint each of net.h.*: 202 MiB of saved tensors", "the best is %+v", best)
	assert.Equal(t, best.edit.requested()/mib, int64(565), "requested, MiB")
}

// TestCheckpointOfResidual: each layer ends with a sum, which only the next layer's norm saves. A layer is repeated before its own first
// operator of backward, not before that norm's, which frees statistics of the next layer, too.
func TestCheckpointOfResidual(t *testing.T) {
	j := &script{job: newJob()}
	j.alloc(64, attribution.Weights, "")
	var saved [][3]int64
	j.phase("forward", func() {
		for _, name := range []string{"net.h.0", "net.h.1"} {
			saved = append(saved, [3]int64{
				j.alloc(1, attribution.Activations, name+".ln"), j.alloc(100, attribution.Activations, name+".mlp"), j.alloc(100, attribution.Activations, name),
			})
		}
	})
	j.phase("backward", func() {
		grad := j.alloc(100, attribution.Temporaries, "")
		j.alloc(5, attribution.Gradients, "") // of the head
		j.free(saved[1][2])
		for i := len(saved) - 1; i >= 0; i-- {
			mlp := j.alloc(100, attribution.Temporaries, "")
			j.free(j.alloc(30, attribution.Workspace, ""))
			j.alloc(5, attribution.Gradients, "")
			j.free(saved[i][1])
			norm := j.alloc(100, attribution.Temporaries, "")
			if j.free(mlp, grad, saved[i][0]); i > 0 {
				j.free(saved[i-1][2])
			}
			grad = norm
		}
		j.free(grad)
	})
	best := j.history(t).bestCheckpoint()
	assert.Must(t, best != nil && best.text == "checkpoint each of net.h.*: 202 MiB of saved tensors", "the best is %+v", best)
	assert.Equal(t, best.edit.requested()/mib, int64(500), "requested, MiB: 64, 101 of a layer, the result before, two gradients, a workspace, 5 of the head")
}

// TestCheckpointOfParts: what a part saves for itself is freed in forward when the next part begins. So most is requested at the head, with the
// output of the layer alone; at the end of the layer it would be 334 MiB.
func TestCheckpointOfParts(t *testing.T) {
	j := &script{job: newJob()}
	j.alloc(64, attribution.Weights, "")
	before := j.alloc(50, attribution.Other, "")
	var saved []int64
	j.phase("forward", func() {
		for _, name := range []string{"net.h.0.a", "net.h.0.b"} {
			saved = append(saved, j.alloc(100, attribution.Activations, name+".up"), j.alloc(10, attribution.Copies, name))
		}
		saved = append(saved, j.alloc(200, attribution.Activations, "net.head"))
	})
	j.free(before)
	j.phase("backward", func() {
		j.free(saved[4])
		operator := j.alloc(20, attribution.Temporaries, "")
		j.free(saved[3], saved[2], saved[1], saved[0], operator)
	})
	e := j.history(t).checkpoint(kind{name: "net.h.*", depth: 3})
	assert.Equal(t, e.requested()/mib, int64(324), "requested, MiB: at the head, 64, 50, 10 of the output, 200")
}

// TestEditedEvents: an edited history is a trace whose every block is allocated once and freed once.
func TestEditedEvents(t *testing.T) {
	j := layers()
	if live := j.liveAtEnd(t, j.history(t).bestCheckpoint().edit); live != 1 {
		t.Errorf("%d blocks live on, want the weights alone", live)
	}
}

// each calls f with each edited event.
func (j *script) each(t *testing.T, e *edit, f func(event *trace.Event)) {
	t.Helper()
	source, err := e.job(j.process()).Open()
	assert.NoError(t, err)
	for {
		batch, err := source.Next()
		if err == io.EOF {
			return
		}
		for i := range batch.Len() {
			event := batch.Event(i)
			f(&event)
		}
	}
}

// liveAtEnd is how many blocks live on behind the edited events, which it checks: each block is allocated where none is live.
func (j *script) liveAtEnd(t *testing.T, e *edit) int {
	t.Helper()
	live, seq := map[int64]bool{}, int64(-1)
	j.each(t, e, func(event *trace.Event) {
		assert.That(t, event.Seq >= seq, "event %d behind %d", event.Seq, seq)
		seq = event.Seq
		switch event.Kind {
		case trace.KindAlloc:
			if live[event.Addr] {
				t.Errorf("event %d: %#x is live", event.Seq, event.Addr)
			}
			live[event.Addr] = true
		case trace.KindFree:
			assert.That(t, live[event.Addr], "event %d: %#x is not live", event.Seq, event.Addr)
			delete(live, event.Addr)
		}
	})
	return len(live)
}

// steps is a job whose optimizer has so many temporaries of 20 MiB, and states of these names.
func (j *script) steps(temporaries int, states ...string) { j.stepsOf("", temporaries, states...) }

// stepsOf is the same where the recording has the optimizer's class.
func (j *script) stepsOf(class string, temporaries int, states ...string) {
	j.phase("forward", func() { j.alloc(10, attribution.Other, "a") })
	j.phase("backward", func() {})
	j.phase("optimizer", func() {
		for _, name := range states {
			j.add(trace.KindLabel, trace.Event{}, "category=optimizer\tname="+name+"\toptimizer="+class)
		}
		var made []int64
		for range temporaries {
			made = append(made, j.alloc(20, attribution.Temporaries, ""))
		}
		j.free(made...)
	})
}

// TestChanges: each change finds its fault, with its bytes, and nothing else.
func TestChanges(t *testing.T) {
	iteration := func(j *script, forward func() []int64, behind func(), step func()) {
		var saved []int64
		j.phase("forward", func() { saved = forward() })
		behind()
		j.phase("backward", func() {
			for _, operand := range saved {
				j.free(operand)
				j.free(j.alloc(1, attribution.Temporaries, ""))
			}
		})
		j.phase("optimizer", step)
	}
	nothing := func() {}
	tests := []struct {
		name string
		make func(j *script)
		want map[string]int64
	}{
		{"a KV cache in training", func(j *script) {
			for range 2 {
				iteration(j, func() []int64 {
					return []int64{j.alloc(40, attribution.Other, "b"), j.alloc(60, attribution.KVCache, "a.attn")}
				}, nothing, nothing)
			}
		}, map[string]int64{"use-cache": 60}},
		{"keys and values that backward needs", func(j *script) {
			var cache int64
			for range 2 {
				iteration(j, func() []int64 {
					cache = j.alloc(60, attribution.KVCache, "a.attn.key")
					return []int64{j.alloc(40, attribution.Other, "a.attn")}
				}, nothing, nothing)
				j.free(cache)
			}
		}, map[string]int64{"batch": 4}},
		{"keys and values that outlive backward", func(j *script) {
			cache := int64(0)
			for range 3 {
				var made int64
				iteration(j, func() []int64 {
					made = j.alloc(60, attribution.KVCache, "a.attn")
					return []int64{j.alloc(40, attribution.Other, "a.attn")}
				}, nothing, nothing)
				if cache != 0 {
					j.free(cache)
				}
				cache = made
			}
		}, map[string]int64{"use-cache": 60}},
		{"an engine's KV cache", func(j *script) {
			j.alloc(40, attribution.Weights, "")
			j.free(j.alloc(64, attribution.KVCache, ""))
		}, map[string]int64{"kv-cache": 8}},
		{"scores", func(j *script) {
			iteration(j, func() []int64 {
				return []int64{
					j.alloc(80, attribution.Activations, "h.0.attn"), j.alloc(80, attribution.Activations, "h.0.attn"), j.alloc(10, attribution.Inputs, "h.0.attn"),
				}
			}, nothing, nothing)
		}, map[string]int64{"attention": 160}},
		{"keys and values of a fused kernel, whose last result is small", func(j *script) {
			var saved []int64
			j.phase("forward", func() {
				for _, size := range []int64{80, 80, 80, 2} {
					saved = append(saved, j.alloc(size, attribution.Activations, "h.0.attn"))
				}
			})
			j.phase("backward", func() { j.free(saved...) })
		}, map[string]int64{"batch": 32}},
		{"scores of a module to checkpoint", func(j *script) {
			iteration(j, func() []int64 {
				saved := []int64{
					j.alloc(90, attribution.Activations, "h.0.up"), j.alloc(40, attribution.Activations, "h.0.attn"), j.alloc(40, attribution.Activations, "h.0.attn"),
					j.alloc(10, attribution.Inputs, "h.0.attn"), j.alloc(5, attribution.Activations, "h.0"),
				}
				return append([]int64{j.alloc(60, attribution.Other, "head")}, saved...)
			}, nothing, nothing)
		}, map[string]int64{"attention": 80, "checkpoint": 60}},
		{"scores by frames", func(j *script) {
			for node, frame := range []string{"forward (/srv/model.py:9)", "attend (/srv/attention.py:20)", "softmax (/srv/nn.py:1)", "attend (/srv/attention.py:30)", "attend (/srv/attention.py:9)"} {
				j.add(trace.KindStack, trace.Event{Device: trace.NoDevice, Arena: trace.NoArena, Requested: int64(node + 1), Provided: []int64{0, 1, 2, 1, 1}[node]}, frame)
			}
			j.alloc(8, attribution.Weights, "")
			iteration(j, func() []int64 {
				var saved []int64
				for range 2 { // layers
					saved = append(saved, j.alloc(8, attribution.Activations, "stack=2"), j.alloc(8, attribution.Activations, "stack=3"),
						j.alloc(9, attribution.Activations, "stack=5"), j.alloc(2, attribution.Inputs, "stack=4"), j.alloc(7, attribution.Inputs, "stack=1"), j.alloc(2, attribution.Inputs, "stack=4"))
				}
				return saved
			}, nothing, nothing)
		}, map[string]int64{"attention": 28, "batch": 4}}, // with a temporary of backward besides
		{"scores under autocast: a raw one of two bytes, a softmax of four, as large as what another module makes", func(j *script) {
			iteration(j, func() []int64 {
				saved := []int64{j.alloc(10, attribution.Activations, "h.0.attn"), j.alloc(130, attribution.Activations, "h.0.up")}
				raw := j.alloc(65, attribution.Temporaries, "h.0.attn")
				saved = append(saved, j.alloc(130, attribution.Activations, "h.0.attn"))
				j.free(raw)
				return append(saved, j.alloc(10, attribution.Inputs, "h.0.attn"))
			}, nothing, nothing)
		}, map[string]int64{"attention": 184}},
		{"a projection and its copy are three times as large as the output", func(j *script) {
			iteration(j, func() []int64 {
				packed := j.alloc(30, attribution.Temporaries, "h.0.attn")
				saved := j.alloc(30, attribution.Activations, "h.0.attn")
				j.free(packed)
				return []int64{saved, j.alloc(10, attribution.Inputs, "h.0.attn")}
			}, nothing, nothing)
		}, map[string]int64{"batch": 4}},
		{"a weight as large as scores", func(j *script) {
			iteration(j, func() []int64 {
				return []int64{
					j.alloc(8, attribution.Activations, "h.0.attn"), j.alloc(8, attribution.Activations, "h.0.attn"), j.alloc(2, attribution.Inputs, "h.0.attn"),
				}
			}, func() {
				j.phase("backward", func() { j.alloc(8, attribution.Gradients, ""); j.alloc(99, attribution.Other, "") })
			}, nothing)
		}, map[string]int64{"attention": 16}},
		{"a projection to queries, keys and values is no score", func(j *script) {
			iteration(j, func() []int64 {
				return []int64{j.alloc(30, attribution.Optimizer, "h.0.attn"), j.alloc(10, attribution.Optimizer, "h.0.attn")}
			}, nothing, nothing)
		}, map[string]int64{}},
		{"logits", func(j *script) {
			iteration(j, func() []int64 {
				return []int64{j.alloc(64, attribution.Loss, "head"), j.alloc(128, attribution.Loss, "")}
			}, nothing, nothing)
		}, map[string]int64{"chunked-loss": 192 * 7 / 8}},
		{"gradients that stay", func(j *script) {
			gradients := int64(0)
			for i := range 3 {
				var saved int64
				j.phase("forward", func() { saved = j.alloc(200, attribution.Other, "a") })
				j.free(saved)
				j.phase("backward", func() {
					if i == 0 {
						gradients = j.alloc(100, attribution.Gradients, "")
					}
				})
				j.phase("optimizer", nothing)
			}
			_ = gradients
		}, map[string]int64{"zero-grad": 100}},
		{"evaluation", func(j *script) {
			iteration(j, func() []int64 { return []int64{j.alloc(10, attribution.Other, "a")} }, nothing, nothing)
			var saved []int64
			j.phase("forward", func() {
				for range 10 {
					saved = append(saved, j.alloc(50, attribution.Other, "a"))
				}
			})
			j.free(saved...)
			iteration(j, func() []int64 { return []int64{j.alloc(10, attribution.Other, "a")} }, nothing, nothing)
		}, map[string]int64{"no-grad": 10*50 - 2*50}},
		{"workspaces of two streams, of a smaller card, and of a convolution", func(j *script) {
			j.phase("forward", func() {
				j.alloc(32, attribution.Workspace, "a")
				j.alloc(32, attribution.Workspace, "b")
				j.alloc(8, attribution.Workspace, "b")
				j.free(j.alloc(32, attribution.Workspace, "c"))
				j.alloc(32, attribution.Copies, "c")
			})
		}, map[string]int64{"workspace": 44}}, // of 47.75: pages
		{"a workspace, and cuBLAS's own for the handle", func(j *script) {
			for at, library := range []string{"libcublas.so.13", "libcudnn.so.9"} {
				j.add(trace.KindExternalAlloc, trace.Event{Arena: trace.NoArena, Addr: int64(1+at) << 40, Requested: 32 * mib, Provided: 32 * mib}, "call=cuMemAlloc\tlibrary="+library)
			}
			j.phase("forward", func() { j.alloc(32, attribution.Workspace, "a") })
		}, map[string]int64{"workspace": 44}}, // likewise, where torch's alone is 20
		{"temporaries of the optimizer", func(j *script) { j.steps(8, "0.weight.exp_avg", "0.weight.exp_avg_sq") }, map[string]int64{"fused": 8 * 20}},
		{"of SGD", func(j *script) { j.steps(8) }, map[string]int64{"fused": 8 * 20}},
		{"of an optimizer without a fused step", func(j *script) { j.steps(8, "0.weight.square_avg") }, map[string]int64{"foreach": 7 * 20}},
		{"of Adadelta, two of a parameter", func(j *script) { j.steps(8, "0.weight.square_avg", "0.weight.acc_delta") }, map[string]int64{"foreach": 6 * 20}},
		{"of NAdam, which keeps what Adam keeps", func(j *script) { j.stepsOf("NAdam", 8, "0.weight.exp_avg", "0.weight.exp_avg_sq") }, map[string]int64{"foreach": 6 * 20}},
		{"of RAdam, of whose temporaries nothing is known", func(j *script) { j.stepsOf("RAdam", 8, "0.weight.exp_avg", "0.weight.exp_avg_sq") }, map[string]int64{}},
		{"of AdamW", func(j *script) { j.stepsOf("AdamW", 8, "0.weight.exp_avg", "0.weight.exp_avg_sq") }, map[string]int64{"fused": 8 * 20}},
		{"of an optimizer that is not torch's", func(j *script) { j.steps(8, "0.weight.row") }, map[string]int64{}},
		{"of one parameter after another", func(j *script) { j.steps(3, "0.weight.exp_avg", "0.weight.exp_avg_sq") }, map[string]int64{}},
	}
	for _, test := range tests {
		j := &script{job: newJob()}
		test.make(j)
		assert.Diff(t, test.want, j.found(t), "%s: saved of the least card", test.name)
	}
}

// TestNoGradIsThere: a teacher returns a tenth of what it makes, and no advice is about that. Without no_grad it leaves most of it.
func TestNoGradIsThere(t *testing.T) {
	for _, c := range []struct{ made, lasting int64 }{{90, 10}, {10, 90}} {
		j := &script{job: newJob()}
		var saved, out int64
		j.phase("forward", func() {
			out = j.alloc(c.lasting, attribution.Activations, "teacher.0")
			made := j.alloc(c.made, attribution.Temporaries, "teacher.0")
			j.free(made, j.alloc(1, attribution.Temporaries, "teacher.1"))
		})
		j.phase("optimizer", func() {})
		j.phase("forward", func() { saved = j.alloc(10, attribution.Activations, "student.0") })
		j.phase("backward", func() { j.free(saved) })
		j.free(out)
		assert.Equal(t, withoutGrad(j.history(t)).empty(), c.lasting < c.made, "nothing to advise")
	}
}

// TestCheckpointOfCheckpoint: what backward makes again is in a checkpoint, and no kind of modules.
func TestCheckpointOfCheckpoint(t *testing.T) {
	for _, again := range []bool{false, true} {
		j := &script{job: newJob()}
		var saved int64
		j.phase("forward", func() { saved = j.alloc(40, attribution.Activations, "h.0") })
		j.phase("backward", func() {
			if again {
				j.free(j.alloc(20, attribution.Temporaries, "h.0"))
			}
			j.free(saved)
		})
		assert.Equal(t, len(j.history(t).kinds()) == 0, again, "no kinds of modules")
	}
}

// TestSmallerBatch: of what grows with a batch an eighth goes: what is saved, copies among it, KV caches, a convolution's workspace, and temporaries
// of three times that size. Weights, their copies, a temporary of another size, the workspace of cuBLAS, which stays, and temporaries of the
// optimizer do not grow.
func TestSmallerBatch(t *testing.T) {
	j := &script{job: newJob()}
	j.alloc(7, attribution.Weights, "")
	j.alloc(24, attribution.Copies, "")
	saved := []int64{j.alloc(80, attribution.Activations, ""), j.alloc(40, attribution.Copies, ""), j.alloc(48, attribution.KVCache, "")}
	j.phase("backward", func() {
		j.alloc(32, attribution.Workspace, "")
		j.free(j.alloc(160, attribution.Workspace, ""), j.alloc(136, attribution.Temporaries, ""), j.alloc(240, attribution.Temporaries, ""))
		j.free(saved...)
	})
	j.phase("optimizer", func() { j.free(j.alloc(16, attribution.Temporaries, "")) })
	e := smallerBatch(j.history(t))
	assert.Equal(t, e.requested()/mib, int64(7+24+70+35+42+32+140+136+210), "requested, MiB")
}
