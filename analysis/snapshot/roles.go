package snapshot

import (
	"slices"
	"strings"

	"github.com/memprof/memprof/trace"
)

// role is what a request was for, as the frames of its stack say.
type role uint8

const (
	noRole role = iota // the job's own code alone
	inData
	inForward
	inBackward
	inOptimizer
	forWeights
	forLoss
	forCommunication
	forKVCache
	forWorkspace
	forGradients // zero_grad, which frees them
	forCasts     // the end of autocast, which frees the weights that it cast
)

// phases are the passes of training that requests of a role are made in.
var phases = [...]string{inData: "data", inForward: "forward", inBackward: "backward", inOptimizer: "optimizer", forCasts: ""}

// categories are what blocks of a role are, whenever they end; see [attribution.Category].
var categories = [...]string{forWeights: "weights", forLoss: "loss", forCommunication: "communication", forKVCache: "kv_cache", forWorkspace: "workspace", forCasts: ""}

// olderCategories are those of blocks that existed before the first entry: the phases that they outlived are not known.
var olderCategories = [...]string{inBackward: "gradients", inOptimizer: "optimizer", forCasts: ""}

// frameRoles tell the role of a frame by a part of its file's path and the beginning of its function's name, the first that fits.
// They are of PyTorch 2.0 to 2.11 and transformers 4 and 5.
var frameRoles = []struct {
	file, function string
	role           role
}{
	{"", "torch::autograd::Engine::", inBackward},
	{"", "torch::autograd::python::PythonEngine::", inBackward},
	{"", "at::cuda::getCurrentCUDABlas", forWorkspace},
	{"", "at::native::(anonymous namespace)::Workspace", forWorkspace}, // of cuDNN
	{"", "c10d::", forCommunication},
	{"/torch/autograd/", "backward", inBackward},
	{"/torch/autograd/", "_engine_run_backward", inBackward},
	{"/torch/_tensor.py", "backward", inBackward},
	{"/torch/optim/", "zero_grad", forGradients},
	{"/torch/nn/modules/module.py", "zero_grad", forGradients},
	{"/torch/amp/autocast_mode.py", "__exit__", forCasts},
	{"/torch/optim/", "", inOptimizer},
	{"/optim", "step", inOptimizer}, // bitsandbytes/optim, apex/optimizers
	{"/torch/nn/modules/module.py", "_call_impl", inForward},
	{"/torch/nn/modules/module.py", "_apply", forWeights},
	{"/torch/nn/modules/loss.py", "", forLoss},
	{"/torch/nn/modules/", "__init__", forWeights},
	{"/torch/nn/functional.py", "cross_entropy", forLoss},
	{"/torch/nn/functional.py", "log_softmax", forLoss},
	{"/torch/nn/functional.py", "binary_cross_entropy", forLoss},
	{"/torch/nn/functional.py", "nll_loss", forLoss},
	{"/torch/nn/functional.py", "mse_loss", forLoss},
	{"/torch/nn/functional.py", "l1_loss", forLoss},
	{"/torch/nn/functional.py", "kl_div", forLoss},
	{"/torch/nn/parallel/distributed.py", "_ddp_init_helper", forCommunication},
	{"/torch/distributed/fsdp/", "_init_sharded_param", forWeights},
	{"/torch/distributed/fsdp/", "", forCommunication},
	{"/torch/distributed/distributed_c10d.py", "", forCommunication},
	{"/torch/utils/data/", "", inData},
	{"torchinductor_", "call", inForward},
	{"/cache_utils", "", forKVCache}, // of transformers, and of those who write their own
	{"/transformers/loss/", "", forLoss},
	{"/transformers/", "from_pretrained", forWeights},
	{".py", "forward", inForward}, // called without the module
	{".py", "init_weight", forWeights},
	{".py", "load_weights", forWeights},
	{".py", "load_state_dict", forWeights},
}

// roleOf is that of a frame, which is written "function (file:line)".
func roleOf(frame string) role {
	function, place := frame, ""
	if open := strings.LastIndex(frame, " ("); open >= 0 && strings.HasSuffix(frame, ")") {
		function, place = frame[:open], strings.ReplaceAll(frame[open:], `\`, "/")
	}
	for _, r := range frameRoles {
		if strings.HasPrefix(function, r.function) && strings.Contains(place, r.file) {
			return r.role
		}
	}
	return noRole
}

// within is the role of a frame in a call of another role. What backward calls belongs to backward: a forward that is computed again,
// a hook.
func (of role) within(caller role) role {
	if of == noRole || caller == inBackward && (of == inForward || of == forLoss || of == inOptimizer) {
		return caller
	}
	return of
}

// role is the role of a stack: that of its innermost frame that has one. Where other requests have frames, a request without any belongs
// to backward: the threads on which PyTorch runs it have no frames of Python.
func (s *stacks) role(number int64) role {
	if number == 0 {
		if len(s.texts) > 0 {
			return inBackward
		}
		return noRole
	}
	for len(s.roles) < len(s.nodes.nodes) { // a caller has a lesser number
		node, caller := s.nodes.nodes[len(s.roles)], noRole
		if node.parent > 0 {
			caller = s.roles[node.parent-1]
		}
		s.roles = append(s.roles, s.own[node.frame-1].within(caller))
	}
	return s.roles[number-1]
}

// enter ends the phase of the request before and begins that of this request, unless both are one or the job has marked this one itself. A
// request that any phase may make changes nothing.
func (l *layout) enter(r role) error {
	if r >= forWeights || phases[r] == l.phase {
		return nil
	}
	if err := l.leave(); err != nil || r == noRole || slices.Contains(l.marks.open, phases[r]) {
		return err
	}
	l.phase = phases[r]
	return l.mark(trace.Event{Kind: trace.KindPhaseBegin, Context: l.w.Intern(l.phase)})
}

// leave ends the phase that a request began.
func (l *layout) leave() error {
	name := l.phase
	if name == "" {
		return nil
	}
	if l.phase = ""; name == phases[inBackward] {
		l.grads.backwardEnded()
	}
	return l.mark(trace.Event{Kind: trace.KindPhaseEnd, Context: l.w.Intern(name)})
}

// label says what the block at an address is, where its role tells.
func (l *layout) label(addr uint64, r role) error {
	category := categories[r]
	if category == "" && l.older {
		category = olderCategories[r]
	}
	return l.labelAs(addr, category)
}

// labelAs labels a block with a category; "" is none.
func (l *layout) labelAs(addr uint64, category string) error {
	if category == "" {
		return nil
	}
	return l.write(trace.Event{Kind: trace.KindLabel, Arena: trace.NoArena, Addr: int64(addr), Context: l.w.Intern("category=" + category)})
}
