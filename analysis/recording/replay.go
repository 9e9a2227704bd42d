package recording

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/torchalloc"
	"github.com/memprof/memprof/analysis/tune"
	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/trace/dataset"
)

// Replay sets what each process would have reserved under PyTorch's own allocator, with and without expandable
// segments, and under a policy of memprof's. flags are those of `memprof record` for it. Processes with more
// than most events, with several devices, of an allocator that was only observed, and without tensors are left
// out, and so is an allocator that could not serve all requests.
func (r *Recording) Replay(ctx context.Context, p bfc.Policy, flags string, most int64) error {
	for i, result := range r.Results {
		if len(result.Devices) != 1 || result.Events > most || result.Devices[0].Chunks == nil || result.Devices[0].Allocs == 0 {
			continue
		}
		d, process := &result.Devices[0], r.Run.Processes[i]
		var torch, ours []analysis.Replay
		var torchErr, oursErr error
		var replays sync.WaitGroup // side by side: each takes longer than the pass
		replays.Go(func() { torch, torchErr = replaySettings(process, &r.Run.Info) })
		replays.Go(func() { ours, oursErr = replayPolicy(ctx, process, p, flags) })
		replays.Wait()
		if err := cmp.Or(torchErr, oursErr); err != nil {
			return err
		}
		d.Replays = slices.Concat(d.Replays, torch, ours)
	}
	return nil
}

// replaySettings replays a process under PyTorch's own allocator, with and without expandable segments.
func replaySettings(process *dataset.Process, info *dataset.Info) (replays []analysis.Replay, err error) {
	outcomes, err := ReplayTorch(process, info, []string{"", "expandable_segments:True"}, 0)
	for _, o := range outcomes {
		if o.Refused == 0 && o.Reserved > 0 {
			replays = append(replays, analysis.Replay{Allocator: "torch", Setting: cmp.Or(o.Setting, "native"), Reserved: o.Reserved})
		}
	}
	return replays, err
}

func replayPolicy(ctx context.Context, process *dataset.Process, p bfc.Policy, flags string) ([]analysis.Replay, error) {
	reader, err := process.NewReader()
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	tuned, err := tune.Run(ctx, reader, tune.Options{Policies: []bfc.Policy{p}, Text: process.Strings().Text, Workers: 1})
	if errors.Is(err, tune.ErrNothing) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: replay: %w", process.Name, err)
	}
	if tuned.Outcomes[0].Refused > 0 {
		return nil, nil
	}
	return []analysis.Replay{{Allocator: "memprof", Setting: flags, Reserved: tuned.Outcomes[0].PeakR}}, nil
}

// TorchOutcome is what PyTorch's own allocator would reserve on the one device of a process.
type TorchOutcome struct {
	Setting         string // text of PYTORCH_CUDA_ALLOC_CONF; "" for none
	Reserved        int64  // the greatest, in bytes
	Least, Greatest int64  // of Reserved over all placements of segments that were tried
	Refused         int64  // requests
	// Maps and Unmaps are driver calls in a steady iteration, for segments or pages.
	Maps, Unmaps float64
	Total        uint64 // bytes of the device
}

// GarbageSettings are texts of PYTORCH_CUDA_ALLOC_CONF with some garbage_collection_threshold. It has no effect without a
// limit, which is set to what the job reserves natively, as a share of the device.
func GarbageSettings(native TorchOutcome, thresholds ...string) (settings []string) {
	if native.Total == 0 || native.Refused > 0 {
		return nil
	}
	share := math.Ceil(float64(native.Reserved)/float64(native.Total)*10000) / 10000
	for _, threshold := range thresholds {
		if share <= 1 {
			settings = append(settings, fmt.Sprintf("garbage_collection_threshold:%s,per_process_memory_fraction:%.4f", threshold, share))
		}
	}
	return settings
}

// ReplayTorch replays a process under PyTorch's own allocator with each of some settings, which are texts of
// PYTORCH_CUDA_ALLOC_CONF, and with so many further placements of segments. Nothing is returned for a job
// without PyTorch and for a process of several devices.
func ReplayTorch(process *dataset.Process, info *dataset.Info, settings []string, placements int) ([]TorchOutcome, error) {
	version, ok := torchOf(process, info)
	if !ok {
		return nil, nil
	}
	o := torchalloc.Options{Version: version, Placements: placements, Text: process.Strings().Text}
	for _, text := range settings {
		parsed, err := torchalloc.ParseSettings(text, version)
		if err != nil {
			return nil, err
		}
		o.Settings = append(o.Settings, parsed)
	}
	reader, err := process.NewReader()
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	outcomes, err := torchalloc.Run(reader, o)
	if err != nil {
		return nil, fmt.Errorf("%s: replay under PyTorch's allocator: %w", process.Name, err)
	}
	var out []TorchOutcome
	for i := range outcomes {
		found := &outcomes[i]
		if len(found.Reserved) != 1 {
			return nil, nil
		}
		for device, reserved := range found.Reserved {
			out = append(out, TorchOutcome{settings[i], reserved, found.Least[device], found.Greatest[device], found.Refused, found.Maps, found.Unmaps, found.Totals[device]})
		}
	}
	return out, nil
}
