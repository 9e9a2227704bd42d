package snapshot

import (
	"strings"
	"testing"

	"github.com/memprof/memprof/trace/tracetest/assert"
)

// framesOf are the frames of a stack as torch writes them: the innermost first.
func framesOf(stack []string) (frames []any) {
	for _, frame := range stack {
		function, place, _ := strings.Cut(frame, " (")
		file, _, _ := strings.Cut(place, ":")
		frames = append([]any{pairs{"name", function, "filename", file, "line", 9}}, frames...)
	}
	return frames
}

// slotEntry is an alloc of so many MiB in a slot, or with "free" both entries of a free.
type slotEntry struct {
	action    string
	slot, mib int
	stack     []string
}

// partial is a snapshot whose history begins in the middle of the job: blocks of so many MiB each, in the first slots, without frames and
// alive to the end, and the entries of the trace.
func partial(t *testing.T, older []int, trace []slotEntry) string {
	t.Helper()
	const slot = 64 * testMiB
	entries := []any{ // says that frees have stacks of their own
		act("alloc", testAddr+63*slot, 512, "frames", framesOf([]string{script})),
		act("free_requested", testAddr+63*slot, 512, "frames", framesOf([]string{script, wrapper})), act("free_completed", testAddr+63*slot, 512),
	}
	var blocks []any
	for at, mib := range older {
		blocks = append(blocks, pairs{"address", testAddr + at*slot, "size", mib * testMiB, "requested_size", mib * testMiB, "state", "active_allocated"})
	}
	for _, e := range trace {
		frames, action := framesOf(e.stack), e.action
		if action == "free" {
			entries = append(entries, act("free_requested", testAddr+e.slot*slot, e.mib*testMiB, "frames", frames))
			action = "free_completed"
		}
		entries = append(entries, act(action, testAddr+e.slot*slot, e.mib*testMiB, "frames", frames))
	}
	return written(t, pairs{"segments", []any{testSegment(0, testAddr, 64*slot, blocks)}, "device_traces", []any{entries}})
}

// What a block from before the history is shows in where the job frees it, and in its size: gradients are as large as the weights, and so are
// the two tensors that an optimizer has for each.
func TestOlderBlocks(t *testing.T) {
	inBackward, inStep := []string{script, backward}, []string{script, wrapper}
	inModule := []string{script, call, attention}
	zeroed := []string{script, "zero_grad (/v/site-packages/torch/optim/optimizer.py:1)"}
	made := []slotEntry{{"alloc", 20, 2, inBackward}, {"alloc", 22, 5, inBackward}, {"alloc", 21, 3, inBackward}, {"free", 22, 5, inBackward}, {"alloc", 23, 2, inStep}}
	for name, c := range map[string]struct {
		older []int
		trace []slotEntry
		want  map[string]int64 // MiB at the peak
	}{
		"an optimizer in place":             {[]int{2, 3, 2, 3, 2, 3}, made, map[string]int64{"weights": 5, "optimizer": 10, "gradients": 5, "temporaries": 5}},
		"its average, and frozen weights":   {[]int{2, 3, 2, 3, 2, 3, 2, 7}, made, map[string]int64{"weights": 12, "optimizer": 10, "copies": 2, "gradients": 5, "temporaries": 5}},
		"weights of 16 bits":                {[]int{2, 3, 4, 4, 4, 6, 6, 6}, made, map[string]int64{"weights": 5, "optimizer": 30, "gradients": 5, "temporaries": 5}},
		"an optimizer that makes new state": {[]int{2, 3}, append(made[:4:4], slotEntry{"alloc", 24, 9, inStep}, slotEntry{"free", 25, 2, inStep}), map[string]int64{"weights": 5, "optimizer": 11, "gradients": 5}},
		"what the first iteration frees": {[]int{2, 2, 2}, []slotEntry{
			{"free", 25, 9, zeroed}, {"free", 26, 3, inBackward}, {"free", 27, 5, []string{script}}, {"alloc", 28, 2, inBackward},
		}, map[string]int64{"weights": 2, "optimizer": 4, "gradients": 9, "activations": 3, "other": 5}},
		"gradients that stay": {[]int{2, 2, 2, 2}, []slotEntry{{"alloc", 20, 3, inBackward}, {"alloc", 21, 1, inBackward}, {"free", 20, 3, inBackward}, {"free", 21, 1, inBackward}}, map[string]int64{"other": 8, "temporaries": 4}},
		"inference":           {[]int{2, 2, 32}, []slotEntry{{"alloc", 20, 5, inModule}, {"alloc", 21, 3, inModule}, {"free", 20, 5, inModule}, {"free", 21, 3, inModule}}, map[string]int64{"weights": 4, "temporaries": 8, "workspace": 32}},
		"projections of 32 MiB": {[]int{32, 32, 32, 32, 32}, []slotEntry{
			{"alloc", 20, 5, []string{script, "update (/srv/cache_utils_v2.py:9)", "quantize (/srv/quant.py:1)"}},
		}, map[string]int64{"weights": 160, "kv_cache": 5}},
		"casts of autocast": {nil, []slotEntry{
			{"alloc", 20, 5, inModule}, {"free", 20, 5, []string{script, "__exit__ (/v/site-packages/torch/amp/autocast_mode.py:390)"}},
		}, map[string]int64{"copies": 5}},
	} {
		got := map[string]int64{}
		for _, g := range analyzed(t, partial(t, c.older, c.trace)).Held.Categories.Groups {
			if got[g.Name] = g.Requested / testMiB; got[g.Name] == 0 {
				delete(got, g.Name) // less than a MiB
			}
		}
		assert.Diff(t, c.want, got, "%s", name)
	}
}

// Most of what backward makes has no line: its threads have no frames of Python. The line of the least of it is no place for all.
func TestNoLineOfBackward(t *testing.T) {
	use := analyzed(t, partial(t, nil, []slotEntry{{"alloc", 20, 5, nil}, {"alloc", 21, 2, []string{script, backward}}})).Held.Uses[0]
	assert.That(t, use.Requested == 7*testMiB && use.Line == "" && use.LineBytes == 0 && use.Phase == "backward", "%+v", use)
}

// The layers of a forward are no iterations, and what they save is no leak.
func TestLayersAreNoIterations(t *testing.T) {
	var forward []slotEntry
	for at := range 40 {
		forward = append(forward, slotEntry{"alloc", at, 1 + at%8, []string{script, call, attention}})
	}
	d := analyzed(t, partial(t, nil, forward))
	assert.That(t, len(d.Iterations) == 0 && d.Period == 0, "%d iterations of %d requests", len(d.Iterations), d.Period)
}

// A block that only the segments have keeps its frames. In a job that trains, a block of a forward is saved for backward. The job's own
// code names none, also where nothing trains and a block without frames would be of weights.
func TestOlderBlocksWithFrames(t *testing.T) {
	for _, c := range []struct {
		stacks [][]string
		want   map[string]int64 // MiB; the blocks have 2, 3 and 4
	}{
		{[][]string{{script}, {script, call, attention}, {script, wrapper}}, map[string]int64{"other": 2, "activations": 3, "optimizer": 4}},
		{[][]string{{script}, nil}, map[string]int64{"other": 2, "weights": 3}},
	} {
		var blocks []any
		for at, stack := range c.stacks {
			blocks = append(blocks, pairs{"address", testAddr + at*64*testMiB, "size", (at + 2) * testMiB, "state", "active_allocated", "frames", framesOf(stack)})
		}
		path := written(t, pairs{"segments", []any{testSegment(0, testAddr, 256*testMiB, blocks)}, "device_traces", []any{[]any{act("snapshot", 0, 0)}}})
		held := analyzed(t, path).Held.Categories
		for category, want := range c.want {
			assert.Equal(t, held.Of(category).Requested, want*testMiB, "%s of %v", category, c.stacks)
		}
	}
}
