package attribution

import (
	"strconv"
	"strings"
)

// frameClass is whose code a frame is of.
type frameClass uint8

const (
	userCode   frameClass = iota
	installed             // packages, PyTorch's Python and Python's own library
	underneath            // C and C++ of PyTorch, the interpreter, the C library: nobody's line
)

// classOf tells whose code a frame is of. A frame is written "function (file:line)", an extension's "function (module.so)"; one without a
// file is a name that somebody chose.
func classOf(frame string) frameClass {
	open := strings.LastIndex(frame, " (")
	if open < 0 || !strings.HasSuffix(frame, ")") {
		if frame != "" && isUnderneath(frame) {
			return underneath // a symbol without a file
		}
		return userCode
	}
	function, place := frame[:open], frame[open+2:len(frame)-1]
	file, number := place, ""
	if colon := strings.LastIndexByte(place, ':'); colon >= 0 {
		file, number = place[:colon], place[colon+1:]
	}
	if isModule(place) {
		return userCode
	}
	line, _ := strconv.Atoi(number)
	file = strings.ReplaceAll(file, `\`, "/")
	switch {
	case strings.HasPrefix(file, "<frozen"):
		return underneath
	case isPackage(file):
		return installed
	case isPython(file):
		return userCode
	case line == 0 || isUnderneath(function) || strings.HasPrefix(file, "/usr/"): // line 0: a symbol of a library without debug information
		return underneath
	}
	return userCode
}

// isModule says whether the place of a frame is an extension of torch, whose function the hook names where it is the innermost.
func isModule(place string) bool { return strings.HasSuffix(place, ".so") && !strings.Contains(place, "/") }

// isPython says whether a file is Python's, a notebook's cell ("<ipython-input-3>", "<stdin>") included.
func isPython(file string) bool {
	return strings.HasSuffix(file, ".py") || strings.HasSuffix(file, ".pyx") || strings.HasPrefix(file, "<")
}

// packageFolders are parts of the paths of installed packages, of PyTorch built from its sources, and of what it generates.
var packageFolders = []string{
	"site-packages/", "dist-packages/", "/lib/python", "/lib64/python", "/Lib/", "torchinductor_", "aten/src/", "/c10/", "/torch/csrc/",
	"/torch/nn/", "/torch/optim/", "/torch/autograd/", "/torch/utils/", "/torch/_dynamo/", "/torch/_inductor/", "/torch/distributed/", "/torch/cuda/",
	"/torch/_tensor.py", "/torch/_ops.py", "/torch/functional.py",
}

func isPackage(file string) bool {
	for _, folder := range packageFolders {
		if strings.Contains(file, folder) {
			return true
		}
	}
	return false
}

// underneathPrefixes begin the names of C and C++ functions below a job's own code.
var underneathPrefixes = []string{
	"torch::", "at::", "c10::", "caffe2::", "std::", "pybind11::", "THP", "_Py", "__libc_", "__clone", "_start", "clone", "start_thread", "??",
	"pyrun_", "run_mod", "run_eval", "cfunction_", "method_vectorcall", "object_", "slot_tp_", "type_call", "builtin_", "vectorcall_", "execute_native_thread",
}

// isUnderneath says whether a C or C++ function is PyTorch's, the interpreter's or the C library's.
func isUnderneath(function string) bool {
	if space := strings.LastIndexByte(function[:max(strings.IndexByte(function, ':'), 0)], ' '); space >= 0 {
		function = function[space+1:] // behind the type that it returns
	}
	for _, prefix := range underneathPrefixes {
		if strings.HasPrefix(function, prefix) {
			return true
		}
	}
	return function == "" || strings.HasPrefix(function, "Py") && strings.Contains(function, "_")
}

// shown returns the node of what is shown of a stack: the frames of the job's own code, else those of packages, else all.
func (s *stacks) shown(node int64, text func(int32) string) int64 {
	if node == 0 {
		return 0
	}
	if found, known := s.shorter[node]; known {
		return found
	}
	if s.shorter == nil {
		s.shorter, s.classes = map[int64]int64{}, map[int32]frameClass{}
	}
	var frames []stackNode // innermost first
	least := underneath
	for at := node; len(frames) < MaxFrames; {
		n, known := s.nodes[at]
		if !known {
			break
		}
		class, known := s.classes[n.context]
		if !known {
			class = classOf(text(n.context))
			s.classes[n.context] = class
		}
		least = min(least, class)
		frames = append(frames, n)
		at = n.parent
	}
	parent := int64(0)
	for i := len(frames) - 1; i >= 0; i-- {
		if s.classes[frames[i].context] <= least {
			parent = s.intern(stackNode{parent, frames[i].context})
		}
	}
	s.shorter[node] = parent
	return parent
}

// intern returns the first node with a caller and a frame. What no event has gets a number below 0.
func (s *stacks) intern(n stackNode) int64 {
	number, known := s.index[n]
	if !known {
		s.made--
		number = s.made
		s.nodes[number], s.index[n] = n, number
	}
	return number
}
