package recording

import (
	"bufio"
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/memprof/memprof/analysis/torchalloc"
	"github.com/memprof/memprof/analysis/tune"
	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// readPeaks reads testdata/peaks.txt: names of recordings and bytes.
func readPeaks(t *testing.T) (names []string, peaks map[string]int64) {
	file, err := os.Open("testdata/peaks.txt")
	assert.NoError(t, err)
	defer file.Close()
	peaks = map[string]int64{}
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "#") {
			continue
		}
		var name string
		var bytes int64
		_, err := fmt.Sscanf(lines.Text(), "%s %d", &name, &bytes)
		assert.Must(t, err == nil, "%q: %v", lines.Text(), err)
		names, peaks[name] = append(names, name), bytes
	}
	return names, peaks
}

// peaksOf replays a recording of samples/ under policies of memprof's, with a limit in bytes or 0 for none.
func peaksOf(t *testing.T, name string, limit uint64, policies ...bfc.Policy) []tune.Outcome {
	t.Helper()
	run, err := dataset.Open(filepath.Join("../../samples", name))
	assert.NoError(t, err)
	reader, err := run.Processes[0].NewReader()
	assert.NoError(t, err)
	defer reader.Close()
	result, err := tune.Run(context.Background(), reader, tune.Options{Policies: policies, Limit: limit, Text: run.Processes[0].Strings().Text})
	assert.NoError(t, err)
	return result.Outcomes
}

// torchPeaks replays a recording under PyTorch's own allocator, as it is and with expandable segments.
func torchPeaks(t *testing.T, name string) (native, expandable int64) {
	t.Helper()
	run, err := dataset.Open(filepath.Join("../../samples", name))
	if err != nil {
		t.Fatal(err)
	}
	version, ok := torchOf(run.Processes[0], &run.Info)
	assert.Must(t, ok, "%s: no PyTorch", name)
	reader, err := run.Processes[0].NewReader()
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	torch, err := torchalloc.Run(reader, torchalloc.Options{
		Settings: []torchalloc.Settings{torchSettings(t, "", version), torchSettings(t, "expandable_segments:True", version)},
		Version:  version, Text: run.Processes[0].Strings().Text,
	})
	assert.Must(t, err == nil && len(torch) == 2, "%s: %d replays under PyTorch's allocator, %v", name, len(torch), err)
	return torch[0].Reserved[0], torch[1].Reserved[0]
}

func torchSettings(t *testing.T, text string, version torchalloc.Version) torchalloc.Settings {
	t.Helper()
	s, err := torchalloc.ParseSettings(text, version)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestPeaks prints, for each recording of samples/, what it requested at most and what allocators reserve for it. Preset
// compact reserves at most 1.02 times what it did when testdata/peaks.txt was written, 1.003 in the geometric mean, and at
// most 1.015 times PyTorch's expandable segments, 0.97 in the mean.
func TestPeaks(t *testing.T) {
	names, before := readPeaks(t)
	fmt.Printf("%-20s %10s %10s %10s %10s %10s  MiB\n", "recording", "requested", "native", "expandable", "classic", "compact")
	logs, overTorch := 0.0, 0.0
	for _, name := range names {
		ours := peaksOf(t, name, 0, bfc.Classic.Policy(), bfc.Compact.Policy())
		native, expandable := torchPeaks(t, name)
		compact := ours[1].PeakR
		over := float64(compact) / float64(before[name])
		logs, overTorch = logs+math.Log(over), overTorch+float64(compact)/float64(expandable)
		fmt.Printf("%-20s %10d %10d %10d %10d %10d  %.4f of before\n", name, ours[0].PeakT>>20, native>>20, expandable>>20, ours[0].PeakR>>20, compact>>20, over)
		if over > 1.02 || ours[1].Refused > 0 || float64(compact) > 1.015*float64(expandable) {
			t.Errorf("%s: compact reserves %d bytes at most, %d before, %d with expandable segments; %d requests refused", name, compact, before[name], expandable, ours[1].Refused)
		}
	}
	n := float64(len(names))
	mean := math.Exp(logs / n)
	fmt.Printf("compact reserves %.4f of before in the geometric mean, %.4f of expandable segments in the mean\n", mean, overTorch/n)
	assert.That(t, len(names) == 33 && mean <= 1.003 && overTorch/n <= 0.97,
		"%d recordings: compact reserves %.4f of before, %.4f of expandable segments", len(names), mean, overTorch/n)
}

// TestCompactOnLeastCard replays jobs under preset compact with handles of 2 MiB, stash_comb of 16 MiB, and a limit of 1.03
// times what they requested at most: no request is refused, and driver calls lengthen a step by at most 11 %. stash_comb, of
// 77 GiB, replaces every other block by a larger one in iterations of 37 ms: some thousand pages of 2 MiB move in each, and a
// hundred of 16 MiB.
func TestCompactOnLeastCard(t *testing.T) {
	for _, name := range []string{"alexnet", "zoo/googlenet", "zoo/squeezenet1_1", "irregular/qlora", "irregular/graphs", "irregular/prefill", "irregular/fsdp2", "irregular/ring", "irregular/stash_comb"} {
		compact := bfc.Compact.Policy()
		if compact.Handle = 2 << 20; name == "irregular/stash_comb" {
			compact.Handle = 16 << 20
		}
		free := &peaksOf(t, name, 0, compact)[0]
		limit := uint64(free.PeakT) * 103 / 100
		o := &peaksOf(t, name, limit, compact)[0]
		slow := float64(o.Cost) / float64(o.Duration)
		t.Logf("%-24s requested %6d MiB; on 1.03 times that: %d refused, %.0f driver calls, %.1f %% of a step (%.1f %% without a limit)",
			name, free.PeakT>>20, o.Refused, o.Calls, 100*slow, 100*float64(free.Cost)/float64(free.Duration))
		assert.That(t, o.Refused == 0 && slow <= 0.11,
			"%s: on %d MiB %d requests are refused, and driver calls take %.1f %% of a step", name, limit>>20, o.Refused, 100*slow)
	}
}
