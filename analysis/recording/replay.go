package recording

import (
	"context"
	"errors"
	"fmt"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/caching"
	"github.com/memprof/memprof/analysis/torchalloc"
	"github.com/memprof/memprof/analysis/tune"
	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/trace"
)

// Replay sets what each process would have reserved under PyTorch's own allocator, with and without expandable
// segments, and under a policy of memprof's. flags are those of `memprof record` for it. Processes with more
// than most events, with several devices, of an allocator that was only observed, and without tensors are left
// out, and so is an allocator that could not serve all requests.
func (r *Recording) Replay(ctx context.Context, p bfc.Policy, flags string, most int64) error {
	for i, result := range r.Results {
		if len(result.Devices) != 1 || result.Events > most || result.Devices[0].Native != nil || result.Devices[0].Allocs == 0 {
			continue
		}
		d, process := &result.Devices[0], r.Run.Processes[i]
		if version, ok := torchalloc.VersionOf(r.Run.Info.Frameworks); ok {
			torch, err := replayTorch(process, d, version)
			if err != nil {
				return fmt.Errorf("%s: replay under PyTorch's allocator: %w", process.Name, err)
			}
			d.Replays = append(d.Replays, torch...)
		}
		ours, err := replayPolicy(ctx, process, p, flags)
		if err != nil {
			return fmt.Errorf("%s: replay: %w", process.Name, err)
		}
		d.Replays = append(d.Replays, ours...)
	}
	return nil
}

func replayPolicy(ctx context.Context, process *trace.Process, p bfc.Policy, flags string) ([]analysis.Replay, error) {
	reader, err := process.NewReader()
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	tuned, err := tune.Run(ctx, reader, tune.Options{Policies: []bfc.Policy{p}, Costs: tune.DefaultCosts(), Text: process.Strings().Text, Workers: 1})
	if errors.Is(err, tune.ErrNothing) {
		return nil, nil
	}
	if err != nil || tuned.Outcomes[0].Refused > 0 {
		return nil, err
	}
	return []analysis.Replay{{Allocator: "memprof", Setting: flags, Reserved: tuned.Outcomes[0].PeakR}}, nil
}

// replayTorch replays under PyTorch's allocator without PYTORCH_CUDA_ALLOC_CONF, and with expandable segments.
func replayTorch(process *trace.Process, d *analysis.DeviceResult, version caching.Version) ([]analysis.Replay, error) {
	reader, err := process.NewReader()
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	expandable := caching.DefaultSettings()
	expandable.Expandable = true
	outcomes, err := torchalloc.Run(reader, torchalloc.Options{
		Settings: []caching.Settings{caching.DefaultSettings(), expandable}, Version: version, Total: d.Total, Text: process.Strings().Text,
	})
	if err != nil {
		return nil, err
	}
	var out []analysis.Replay
	for i, setting := range []string{"native", "expandable_segments:True"} {
		if o := &outcomes[i]; o.Refused == 0 && o.Reserved[d.Device] > 0 {
			out = append(out, analysis.Replay{Allocator: "torch", Setting: setting, Reserved: o.Reserved[d.Device]})
		}
	}
	return out, nil
}
