package main

import (
	"errors"
	"flag"
	"io"
	"path/filepath"
	"testing"

	"github.com/memprof/memprof/analysis/accounting"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/analysis/torchalloc"
	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

var fitsAll = flag.Bool("fits-all", false, "TestFits runs all recordings of samples/ under every preset, not only the quick ones under the default")

// cardOf is what a recorded job and other libraries need of a device under torch's own allocator: as it is, and with expandable segments or 1.03 times what is requested.
func cardOf(t *testing.T, path string) (native, expands uint64) {
	t.Helper()
	run, err := dataset.Open(path)
	assert.NoError(t, err)
	process := run.Processes[0]
	reader, err := process.NewReader()
	assert.NoError(t, err)
	defer reader.Close()
	expandable := torchalloc.DefaultSettings()
	expandable.Expandable = true
	torch := torchalloc.NewReplay(torchalloc.Options{
		Settings: []torchalloc.Settings{torchalloc.DefaultSettings(), expandable}, Version: torchalloc.Torch211, Text: process.Strings().Text,
	})
	others := accounting.NewOthers(&accounting.Card{OwnOnly: true}, process.Strings().Text)
	for {
		batch, err := reader.Next()
		if errors.Is(err, io.EOF) {
			for _, o := range torch.Outcomes() {
				assert.Must(t, o.Refused <= 0, "%s: %d requests refused by the model of torch's allocator", path, o.Refused)
			}
			return native, expands
		}
		for i := 0; err == nil && i < batch.Len(); i++ {
			e := batch.Event(i)
			others.Add(&e)
			err = torch.Add(&e)
			segments, requested := torch.Stats(1, 0).Reserved.Now, torch.Stats(1, 0).Requested.Now
			libraries := uint64(others.Libraries(0)) + 2<<20 // the simulated device rounds each of their allocations
			native = max(native, torch.Stats(0, 0).Reserved.Now+libraries)
			expands = max(expands, max(segments, requested*103/100)+libraries)
		}
		assert.NoError(t, err)
	}
}

// fits reruns a recording on a simulated device of so many bytes under a preset: all requests succeed, and the
// new recording verifies.
func (b *bench) fits(path string, bytes uint64, preset string) {
	b.Helper()
	b.record("fits", "--force", "--sim-memory", plain.ExactSize(uint64(bytes)), "--preset", preset, "--", "memprof", "lab", "rerun", path)
	b.mustExit(0, "verify", b.path("fits"))
}

// TestFits reruns recordings on cards that are just large enough for torch's own allocator, with and
// without expandable segments: what fits without memprof fits with it.
func TestFits(t *testing.T) {
	names, presets := []string{"alexnet", "zoo/gpt2", "zoo/googlenet", "zoo/squeezenet1_1"}, bfc.Presets()[:1]
	if *fitsAll {
		presets = bfc.Presets()
		names = []string{"alexnet", "resnet50", "gpt2"}
		zoo, _ := filepath.Glob("../../samples/zoo/*")
		for _, path := range zoo {
			names = append(names, "zoo/"+filepath.Base(path))
		}
		assert.Must(t, len(names) == 20, "%d recordings, want 20", len(names))
	}
	b := newBench(t)
	for _, name := range names {
		path, err := filepath.Abs(filepath.Join("../../samples", name))
		assert.NoError(t, err)
		native, expands := cardOf(t, path)
		t.Run(name, func(t *testing.T) {
			t.Logf("%d MiB natively, %d with expandable segments", native>>20, expands>>20)
			own := b.part(t)
			for _, preset := range presets {
				t.Run(preset.String(), func(t *testing.T) {
					own.T = t
					own.fits(path, native, preset.String())
					own.fits(path, expands, preset.String())
				})
			}
		})
	}
}
