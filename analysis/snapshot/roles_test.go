package snapshot

import (
	"testing"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/recording"
	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// Frames as torch 2.11 writes them, the outermost first.
const (
	script     = "<module> (/srv/train.py:9)"
	call       = "_call_impl (/v/site-packages/torch/nn/modules/module.py:1790)"
	linear     = "forward (/v/site-packages/torch/nn/modules/linear.py:134)"
	attention  = "attention (/srv/model.py:40)"
	backward   = "backward (/v/site-packages/torch/autograd/__init__.py:374)"
	engine     = "torch::autograd::Engine::thread_main(std::shared_ptr<torch::autograd::GraphTask> const&) (??:0)"
	checkpoint = "backward (/v/site-packages/torch/utils/checkpoint.py:313)"
	wrapper    = "wrapper (/v/site-packages/torch/optim/optimizer.py:533)"
	closure    = "closure (/srv/train.py:20)"
	gather     = "all_gather (/v/site-packages/torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py:300)"
)

func TestRoles(t *testing.T) {
	for _, c := range []struct {
		frames []string
		want   role
	}{
		{[]string{script}, noRole},
		{[]string{script, call, linear}, inForward},
		{[]string{script, call, attention}, inForward},
		{[]string{script, backward}, inBackward},
		{[]string{engine, "at::empty (??:0)"}, inBackward},
		{[]string{engine, checkpoint, call, linear}, inBackward}, // computed again
		{[]string{script, wrapper, "_init_group (/v/site-packages/torch/optim/adam.py:178)"}, inOptimizer},
		{[]string{script, wrapper, closure, call, linear}, inForward},
		{[]string{script, wrapper, closure, backward}, inBackward},
		{[]string{script, "zero_grad (/v/site-packages/torch/optim/optimizer.py:1)"}, forGradients},
		{[]string{script, "step (/v/site-packages/bitsandbytes/optim/optimizer.py:271)"}, inOptimizer},
		{[]string{script, "_apply (/v/site-packages/torch/nn/modules/module.py:965)"}, forWeights},
		{[]string{script, "__init__ (C:\\v\\site-packages\\torch\\nn\\modules\\linear.py:105)"}, forWeights},
		{[]string{script, "cross_entropy (/v/site-packages/torch/nn/functional.py:3494)"}, forLoss},
		{[]string{script, call, "cross_entropy (/v/site-packages/torch/nn/functional.py:3494)"}, forLoss},
		{[]string{script, call, gather}, forCommunication},
		{[]string{script, gather, call, linear}, inForward}, // a wrapper's
		{[]string{script, call, "update (/v/site-packages/transformers/cache_utils.py:120)"}, forKVCache},
		{[]string{script, call, linear, "at::cuda::getCurrentCUDABlasHandle() (??:0)"}, forWorkspace},
		{[]string{script, "__next__ (/v/site-packages/torch/utils/data/dataloader.py:700)"}, inData},
		{nil, inBackward}, // on a thread of backward
	} {
		s := newStacks()
		s.texts, s.own = []string{"another stack has it"}, []role{noRole}
		node := int64(0)
		for _, frame := range c.frames {
			s.texts, s.own = append(s.texts, frame), append(s.own, roleOf(frame))
			key := stackNode{node, int32(len(s.texts))}
			_, slot := s.nodes.find(key)
			node = s.nodes.add(key, slot)
		}
		assert.Equal(t, s.role(node), c.want, "%q", c.frames)
	}
}

// What the frames of a snapshot say, without the job's annotations, adds up to what its job is known to hold: two weights of 3000 x 512
// floats, their gradients, and twice as much of AdamW.
func TestCategoriesByFrames(t *testing.T) {
	const weight = 2 * 3000 * 512 * 4
	for _, name := range []string{"pools-native", "pools-expandable-cut"} {
		held := analyzed(t, pathOf(name)).Held.Categories
		for category, want := range map[string]int64{"weights": weight, "gradients": weight, "optimizer": 2 * weight, "other": 0} {
			assert.Equal(t, held.Of(category).Requested, want, "%s: %s", name, category)
		}
	}
}

// analyzed is the device of a snapshot without its annotations.
func analyzed(t *testing.T, path string) *analysis.DeviceResult {
	t.Helper()
	i := newTestImporter(t.TempDir(), path, 0)
	assert.NoError(t, i.survey())
	i.annotations = nil
	_, err := i.write()
	assert.NoError(t, err)
	assert.NoError(t, dataset.WriteInfo(i.dir, i.info))
	run, err := dataset.Open(i.dir)
	assert.NoError(t, err)
	reader, err := run.Processes[0].NewReader()
	assert.NoError(t, err)
	defer reader.Close()
	opt := recording.OptionsOf(run.Processes[0])
	opt.Opening = run.Info.Imported[0].Opening
	result, err := analysis.Run(reader, opt)
	assert.NoError(t, err)
	return &result.Devices[0]
}
