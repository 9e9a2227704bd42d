package recording

import (
	"testing"

	"github.com/memprof/memprof/analysis/torchalloc"
	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// The version of PyTorch is found among what a process reported, whether or not the recording has ended.
func TestTorchOf(t *testing.T) {
	for _, test := range []struct {
		process string
		run     []string
		want    torchalloc.Version
		ok      bool
	}{
		{"torch 2.6.0+cu124", nil, torchalloc.Torch26, true},
		{"jax 0.9; torch 2.6.0+cu124", nil, torchalloc.Torch26, true},
		{"torch's plug-in allocator; torch 2.13.0; jax 0.9", nil, torchalloc.Torch213, true},
		{"", []string{"jax 0.9", "torch 2.6.0"}, torchalloc.Torch26, true},
		{"torch", nil, torchalloc.Torch211, true}, // imported
		{"jax 0.9", nil, torchalloc.Torch211, false},
		{"", nil, torchalloc.Torch211, false},
	} {
		process := &dataset.Process{ProcessMeta: dataset.ProcessMeta{Frameworks: test.process}}
		got, ok := torchOf(process, &dataset.Info{Frameworks: test.run})
		assert.That(t, got == test.want && ok == test.ok, "%q, %q: %v, %t, want %v, %t", test.process, test.run, got, ok, test.want, test.ok)
	}
}
