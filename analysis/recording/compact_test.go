package recording

import (
	"context"
	"flag"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/memprof/memprof/analysis/tune"
	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/trace"
)

// replayed is a recording under growth pages with plans. Bytes are those reserved at most.
type replayed struct {
	*tune.Outcome
	expandable int64 // PyTorch's expandable segments
}

// compactPolicy is growth pages with plans.
func compactPolicy() bfc.Policy {
	p := bfc.Classic()
	p.Growth, p.Split, p.Placement = bfc.Pages, bfc.SplitAlways, bfc.PlacementPlanned
	return p
}

// replayCompact replays a recording under growth pages with plans and PyTorch's expandable segments. Of the options it
// takes AtOnce and OldPages.
func replayCompact(t *testing.T, folder string, o tune.Options) replayed {
	t.Helper()
	compact := compactPolicy()
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
	defer reader.Close()
	o.Policies, o.Costs, o.Text = []bfc.Policy{compact}, tune.DefaultCosts(), process.Strings().Text
	result, err := tune.Run(context.Background(), reader, o)
	if err != nil {
		t.Fatal(err)
	}
	return replayed{&result.Outcomes[0], torch[0].Reserved}
}

// TestCompactOnSamples replays the jobs of samples/ that repeat themselves under growth pages with plans: no peak above
// 1.015 times that of PyTorch's expandable segments, 0.97 in the mean, and of jobs of 1 GiB and more none above
// 1.04 times what they requested at most.
func TestCompactOnSamples(t *testing.T) {
	var folders []string
	for _, pattern := range []string{"alexnet", "gpt2", "resnet50", "zoo/*"} {
		found, err := filepath.Glob("../../samples/" + pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("samples/%s: %d found, %v", pattern, len(found), err)
		}
		folders = append(folders, found...)
	}
	sum := 0.0
	for _, folder := range folders {
		o := replayCompact(t, folder, tune.Options{})
		overTorch, overRequested := float64(o.PeakR)/float64(o.expandable), float64(o.PeakR)/float64(o.PeakT)
		sum += overTorch
		t.Logf("%-14s requested %6d MiB, reserved %6d (%.3f), expandable segments %6d (%.3f)", filepath.Base(folder), o.PeakT>>20, o.PeakR>>20, overRequested, o.expandable>>20, overTorch)
		if overTorch > 1.015 || o.PeakT >= 1<<30 && overRequested > 1.04 || o.Refused > 0 {
			t.Errorf("%s: above its bounds, or %d requests refused", folder, o.Refused)
		}
	}
	if mean := sum / float64(len(folders)); mean > 0.97 {
		t.Errorf("%.4f of expandable segments in the mean, want at most 0.97", mean)
	}
}

// measuredPeaks are what irregular jobs had reserved at most, in MiB, in runs on an H200 (driver 580.159.04, torch
// 2.11.0+cu130, memprof 27939e9): under PyTorch's expandable segments, unrecorded, and under growth pages with plans.
var measuredPeaks = map[string]struct{ expandable, compact int64 }{
	"diffusion":  {3116, 2956},
	"fsdp2":      {13008, 12840},
	"graphs":     {3692, 3664},
	"grpo":       {3496, 3432},
	"loading":    {6410, 6114},
	"moe64":      {8188, 8104},
	"pipeline":   {8786, 8688},
	"prefill":    {6584, 5212},
	"qlora":      {3476, 2900},
	"ring":       {4344, 3480},
	"seq2seq":    {6844, 6720},
	"stash_comb": {99428, 81036},
	"stash_soft": {80328, 80340},
}

// TestCompactOnIrregularJobs: the peaks that were measured are at most 1.015 times those of expandable segments, 0.97 in
// the mean; so are those that replays predict of the recordings under the preset classic. What a replay by the rules of
// the measured version predicts (OldPages) is within 1 % of what was measured. In ring, blocks
// become free when the other stream is done with them, at other times in each run: what was measured is between the
// replays with these blocks free at once and at the recorded moments. No job of 1 GiB and more has more reserved than 1.04
// times what it requested at most, ring with blocks free at once, since waiting ones count as requested no more. fsdp2 was
// measured before requests took what other streams hold idle, so that the replay has to be below. By the rules since then
// at most half of the pages move, in the mean of iterations, summed over the jobs.
func TestCompactOnIrregularJobs(t *testing.T) {
	sum, predicted, moved, movedBefore := 0.0, 0.0, 0.0, 0.0
	for name, measured := range measuredPeaks {
		over := float64(measured.compact) / float64(measured.expandable)
		sum += over
		folder := filepath.Join("../../samples/irregular", name)
		o, before := replayCompact(t, folder, tune.Options{}), replayCompact(t, folder, tune.Options{OldPages: true})
		apart := float64(before.PeakR>>20)/float64(measured.compact) - 1
		t.Logf("%-10s requested %6d MiB, reserved %6d (%.3f), before %6d, measured %6d (%+.2f %%), expandable segments %6d, measured %6d; measured %.3f of them; %.1f pages move in an iteration, before %.1f",
			name, o.PeakT>>20, o.PeakR>>20, float64(o.PeakR)/float64(o.PeakT), before.PeakR>>20, measured.compact, 100*apart, o.expandable>>20, measured.expandable, over, o.Moved, before.Moved)
		least, leastBefore := o.PeakR, before.PeakR
		switch name {
		case "ring":
			least = replayCompact(t, folder, tune.Options{AtOnce: true}).PeakR
			leastBefore = replayCompact(t, folder, tune.Options{AtOnce: true, OldPages: true}).PeakR
		case "fsdp2":
			if apart > 0 {
				t.Errorf("fsdp2: predicted %d MiB, %d without takes", before.PeakR>>20, measured.compact)
			}
			measured.compact = int64(before.PeakR >> 20)
		}
		apart = max(float64(leastBefore>>20)/float64(measured.compact)-1, 1-float64(before.PeakR>>20)/float64(measured.compact))
		overTorch := float64(o.PeakR) / float64(o.expandable)
		predicted += overTorch
		moved, movedBefore = moved+o.Moved, movedBefore+before.Moved
		if over > 1.015 || overTorch > 1.015 || apart > 0.01 || o.PeakT >= 1<<30 && float64(least) > 1.04*float64(o.PeakT) || o.Refused > 0 {
			t.Errorf("%s: above its bound, predicted %d MiB of %d, or %d requests refused", name, o.PeakR>>20, measured.compact, o.Refused)
		}
	}
	n := float64(len(measuredPeaks))
	t.Logf("%.4f of expandable segments in the mean, %.4f measured; %.0f pages move in an iteration of each job, before %.0f", predicted/n, sum/n, moved, movedBefore)
	if sum/n > 0.97 || predicted/n > 0.97 {
		t.Errorf("%.4f of expandable segments in the mean, %.4f measured, want at most 0.97", predicted/n, sum/n)
	}
	if moved > movedBefore/2 {
		t.Errorf("%.0f pages move in an iteration of each job, before %.0f", moved, movedBefore)
	}
}

// TestCompactOnLeastCard replays jobs under growth pages with plans with pages of 2 MiB, stash_comb of 16 MiB, and a limit of 1.03 times what they
// requested at most: no request is refused, and driver calls lengthen a step by at most 10 %. With -bisect it takes every
// recording, and finds the least limit that serves all requests, and the least that also keeps steps within 1.10.
func TestCompactOnLeastCard(t *testing.T) {
	names := []string{"alexnet", "zoo/googlenet", "zoo/squeezenet1_1", "irregular/qlora", "irregular/graphs", "irregular/prefill", "irregular/fsdp2", "irregular/ring", "irregular/stash_comb"}
	if *bisectAll {
		names = nil
		for _, pattern := range []string{"alexnet", "gpt2", "resnet50", "zoo/*", "irregular/*"} {
			found, _ := filepath.Glob("../../samples/" + pattern)
			for _, folder := range found {
				name, _ := filepath.Rel("../../samples", folder)
				names = append(names, name)
			}
		}
	}
	compact := compactPolicy()
	for _, name := range names {
		compact.Handle = handleOf(name)
		free := onCard(t, name, compact, 0)
		limit := uint64(free.PeakT) * 103 / 100
		o := onCard(t, name, compact, limit)
		t.Logf("%-24s requested %6d MiB; on 1.03 times that: %d refused, %.0f driver calls, %.1f requests wait for the device, %.1f for an event if it is not over, %.1f %% of a step (%.1f %% without a limit)",
			name, free.PeakT>>20, o.Refused, o.Calls.Sum(), o.Waits, o.EventWaits, 100*o.Slowdown(), 100*free.Slowdown())
		if o.Refused > 0 || o.Slowdown() > 0.10 {
			t.Errorf("%s: on %d MiB %d requests are refused, and driver calls take %.1f %% of a step", name, limit>>20, o.Refused, 100*o.Slowdown())
		}
		if *bisectAll {
			serves := func(o *tune.Outcome) bool { return o.Refused == 0 }
			least := leastLimit(t, name, compact, uint64(free.PeakT), uint64(free.PeakR), serves)
			at := onCard(t, name, compact, least)
			quick := "none"
			if free.Slowdown() <= 0.10 {
				quick = fmt.Sprintf("%.4f", float64(leastLimit(t, name, compact, least-2<<20, uint64(free.PeakR), func(o *tune.Outcome) bool { return serves(o) && o.Slowdown() <= 0.10 }))/float64(free.PeakT))
			}
			t.Logf("%-24s least %6d MiB, %.4f of what it requested; driver calls %.1f %% of a step there; within 10 %%: %s", name, least>>20,
				float64(least)/float64(free.PeakT), 100*at.Slowdown(), quick)
		}
	}
}

// handleOf returns the size of a page in bytes for a job. stash_comb, of 77 GiB, replaces every other block by a larger one in
// iterations of 37 ms: some thousand pages of 2 MiB move in each, and a hundred of 16 MiB.
func handleOf(name string) uint64 {
	if name == "irregular/stash_comb" {
		return 16 << 20
	}
	return 2 << 20
}

var bisectAll = flag.Bool("bisect", false, "TestCompactOnLeastCard finds the least limit of every recording of samples/")

// onCard replays a recording of samples/ with a limit in bytes; 0: none.
func onCard(t *testing.T, name string, p bfc.Policy, limit uint64) *tune.Outcome {
	t.Helper()
	run, err := trace.Open(filepath.Join("../../samples", name))
	if err != nil {
		t.Fatal(err)
	}
	reader, err := run.Processes[0].NewReader()
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	result, err := tune.Run(context.Background(), reader, tune.Options{
		Policies: []bfc.Policy{p}, Costs: tune.DefaultCosts(), Limit: limit, Text: run.Processes[0].Strings().Text,
	})
	if err != nil {
		t.Fatal(err)
	}
	return &result.Outcomes[0]
}

// leastLimit finds the least limit at which the replay is as wanted, to a page.
func leastLimit(t *testing.T, name string, p bfc.Policy, tooSmall, enough uint64, wanted func(*tune.Outcome) bool) uint64 {
	const page = 2 << 20
	for tooSmall = tooSmall / page * page; enough-tooSmall > page; {
		if middle := (tooSmall + enough) / 2 / page * page; wanted(onCard(t, name, p, middle)) {
			enough = middle
		} else {
			tooSmall = middle
		}
	}
	return enough
}
