package torchalloc

import (
	"path/filepath"
	"testing"

	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// settings are those without PYTORCH_CUDA_ALLOC_CONF, and expandable segments.
func settings() []Settings {
	expandable := DefaultSettings()
	expandable.Expandable = true
	return []Settings{DefaultSettings(), expandable}
}

// TestZoo: the recordings of 17 models, made under memprof's allocator, give the memory that PyTorch's own
// reserved in other runs of the same jobs, to the MiB. The numbers are PyTorch's, of the table "Peaks of the 17 models"
// in samples/results/torch-model.md (H200, torch 2.11.0).
func TestZoo(t *testing.T) {
	for name, want := range map[string][2]int64{
		"alexnet": {1262, 1050}, "vgg11": {8996, 5410}, "vgg16": {11436, 7132}, "vgg19": {9824, 8012},
		"googlenet": {4088, 3228}, "inception_v3": {8376, 6552}, "resnet50": {6706, 5716}, "resnet101": {5044, 4518},
		"resnet152": {6836, 6210}, "densenet121": {9278, 8164}, "mobilenet_v2": {5522, 4942}, "squeezenet1_1": {2192, 1550},
		"vit_b_16": {6580, 6448}, "bert": {6448, 6306}, "gpt2": {17750, 17646}, "llama": {12932, 12472}, "moe": {13084, 12348},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run, err := dataset.Open(filepath.Join("../../samples/zoo", name))
			assert.NoError(t, err)
			process := run.Processes[0]
			reader, err := process.NewReader()
			assert.NoError(t, err)
			defer reader.Close()
			out, err := Run(reader, Options{Settings: settings(), Version: Torch211, Text: process.Strings().Text})
			assert.NoError(t, err)
			got := [2]int64{out[0].Reserved[0] / mib, out[1].Reserved[0] / mib}
			assert.That(t, got == want && out[0].Refused == 0 && out[1].Refused == 0,
				"%d MiB native and expandable, %d and %d refused; PyTorch reserved %d", got, out[0].Refused, out[1].Refused, want)
		})
	}
}
