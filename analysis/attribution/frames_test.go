package attribution

import (
	"slices"
	"testing"

	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// TestClassOf: whose code a frame is of, as torch and record --stacks write frames.
func TestClassOf(t *testing.T) {
	for frame, want := range map[string]frameClass{
		"train (/home/u/train.py:12)":               userCode,
		"<module> (C:\\work\\train.py:3)":           userCode,
		"step (<ipython-input-3-5d1>:4)":            userCode,
		"clone (/home/u/model.py:7)":                userCode,
		"run_model (/home/u/torch/run.py:7)":        userCode,
		"my_op(at::Tensor) (/home/u/ext/op.cpp:33)": userCode,
		"a name":                   userCode,
		"ours::alpha (fused.so)":   userCode,
		"+0x1a2b0 (fused.so)":      userCode,
		"gemm (/opt/lib/fused.so)": underneath,
		"forward (/v/lib/python3.12/site-packages/x.py:1)":       installed,
		"forward (C:\\v\\Lib\\site-packages\\torch\\nn\\l.py:1)": installed,
		"run (/usr/lib/python3.11/threading.py:9)":               installed,
		"forward (/src/pytorch/torch/nn/modules/linear.py:1)":    installed,
		"call (/tmp/torchinductor_u/ab/cab.py:40)":               installed,
		"_call_with_frames_removed (<frozen importlib>:488)":     underneath,
		"c10::cuda::Native::allocate(unsigned long)":             underneath,
		"torch::unwind::unwind() (??:0)":                         underneath,
		"_PyEval_EvalFrameDefault (??:0)":                        underneath,
		"_start (??:0)":                                          underneath,
		"at::native::empty_cuda(c10::ArrayRef<long>) (??:0)":     underneath,
		"gather_with_cpp() (memory_snapshot.cpp:0)":              underneath,
		"at::Tensor at::native::add (/pytorch/aten/src/a.cpp:3)": installed,
		"PyObject_Call (/build/call.c:290)":                      underneath,
		"__libc_start_main (/build/csu/libc-start.c:360)":        underneath,
	} {
		assert.Equal(t, classOf(frame), want, "%s: class", frame)
	}
}

// TestShownFrames: of a stack with frames of all kinds the job's own are shown, else those of packages, else all; and stacks that
// differ in what is not shown are one.
func TestShownFrames(t *testing.T) {
	texts := []string{
		"", "_start (??:0)", "main (/j/train.py:9)", "forward (/v/site-packages/torch/nn/linear.py:1)", "at::empty (??:0)", "loss (/j/loss.py:4)",
		"at::zeros (??:0)", "run (/usr/lib/python3.11/threading.py:9)",
	}
	tracker := New(Options{Text: func(n int32) string {
		if n >= 100 {
			return "stack=" + string(rune('0'+n-100))
		}
		return texts[n]
	}, Top: 10, Groups: 10})
	// 1 _start, 2 main, 3 forward, 4 at::empty, 5 loss on main, 6 at::zeros on forward, 7 run on _start, 8 at::empty on run, 9 at::empty alone
	for number, n := range [][2]int64{{0, 1}, {1, 2}, {2, 3}, {3, 4}, {2, 5}, {3, 6}, {1, 7}, {7, 4}, {0, 4}} {
		tracker.Stack(&trace.Event{Kind: trace.KindStack, Requested: int64(number + 1), Provided: n[0], Context: int32(n[1])})
	}
	for _, c := range []struct {
		node int32
		want []string
	}{
		{4, []string{"main (/j/train.py:9)"}},
		{5, []string{"loss (/j/loss.py:4)", "main (/j/train.py:9)"}},
		{8, []string{"run (/usr/lib/python3.11/threading.py:9)"}},
		{9, []string{"at::empty (??:0)"}},
	} {
		got := tracker.Frames(tracker.StackOf(100 + c.node))
		assert.That(t, slices.Equal(got, c.want), "stack %d: %q, want %q", c.node, got, c.want)
	}
	a, b := tracker.StackOf(104), tracker.StackOf(106)
	assert.That(t, a == b, "stacks %d and %d differ in at::empty and at::zeros only", a, b)
	tracker.opt.AllFrames = true
	got := tracker.Frames(tracker.StackOf(104))
	assert.That(t, len(got) == 4, "all frames: %q", got)
}

// TestUserLineOfExtension: the line of what an extension allocates is that which calls it.
func TestUserLineOfExtension(t *testing.T) {
	frames := []string{"ours::alpha (fused.so)", "forward (/v/site-packages/fused/op.py:7)", "main (/j/train.py:9)"}
	assert.Equal(t, UserLine(frames), "/j/train.py:9")
}
