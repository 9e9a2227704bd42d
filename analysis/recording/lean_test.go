package recording

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/memprof/memprof/analysis/tune"
	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/trace"
)

// TestLeanOnSamples replays all recordings of samples/ under the preset lean: no peak above 1.015 times that of
// PyTorch's expandable segments, 0.97 in the mean, and of jobs of 1 GiB and more none above 1.04 times what
// they requested at most.
func TestLeanOnSamples(t *testing.T) {
	var folders []string
	for _, pattern := range []string{"alexnet", "gpt2", "resnet50", "zoo/*"} {
		found, err := filepath.Glob("../../samples/" + pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("samples/%s: %d found, %v", pattern, len(found), err)
		}
		folders = append(folders, found...)
	}
	lean, err := bfc.PresetNamed("lean")
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, folder := range folders {
		run, err := trace.Open(folder)
		if err != nil {
			t.Fatal(err)
		}
		process := run.Processes[0]
		torch, err := ReplayTorch(process, &run.Info, []string{"expandable_segments:True"}, 0)
		if err != nil || len(torch) != 1 {
			t.Fatalf("%s: %d replays under PyTorch's allocator, %v", folder, len(torch), err)
		}
		reader, err := process.NewReader()
		if err != nil {
			t.Fatal(err)
		}
		result, err := tune.Run(context.Background(), reader, tune.Options{Policies: []bfc.Policy{lean}, Costs: tune.DefaultCosts(), Text: process.Strings().Text})
		reader.Close()
		if err != nil {
			t.Fatal(err)
		}
		o := &result.Outcomes[0]
		overTorch, overRequested := float64(o.PeakR)/float64(torch[0].Reserved), float64(o.PeakR)/float64(o.PeakT)
		sum += overTorch
		t.Logf("%-14s requested %6d MiB, reserved %6d (%.3f), expandable segments %6d (%.3f)", filepath.Base(folder), o.PeakT>>20, o.PeakR>>20, overRequested, torch[0].Reserved>>20, overTorch)
		if overTorch > 1.015 || o.PeakT >= 1<<30 && overRequested > 1.04 || o.Refused > 0 {
			t.Errorf("%s: above its bounds, or %d requests refused", folder, o.Refused)
		}
	}
	if mean := sum / float64(len(folders)); mean > 0.97 {
		t.Errorf("%.4f of expandable segments in the mean, want at most 0.97", mean)
	} else {
		t.Logf("%.4f of expandable segments in the mean", mean)
	}
}
