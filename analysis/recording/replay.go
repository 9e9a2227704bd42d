package recording

import (
	"context"
	"errors"
	"fmt"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/tune"
	"github.com/memprof/memprof/bfc"
)

// Replay sets what each process would have reserved under a policy. flags are those of `memprof record`
// for it. Processes with more than most events, with several devices, of an allocator that was only
// observed, and those that the policy could not serve are left out.
func (r *Recording) Replay(ctx context.Context, p bfc.Policy, flags string, most int64) error {
	for i, result := range r.Results {
		if len(result.Devices) != 1 || result.Events > most || result.Devices[0].Native != nil {
			continue
		}
		process := r.Run.Processes[i]
		reader, err := process.NewReader()
		if err != nil {
			return err
		}
		tuned, err := tune.Run(ctx, reader, tune.Options{Policies: []bfc.Policy{p}, Costs: tune.DefaultCosts(), Text: process.Strings().Text, Workers: 1})
		reader.Close()
		switch {
		case errors.Is(err, tune.ErrNothing):
		case err != nil:
			return fmt.Errorf("%s: replay: %w", process.Name, err)
		case tuned.Outcomes[0].Refused == 0:
			result.Devices[0].Replay = &analysis.Replay{Flags: flags, Reserved: tuned.Outcomes[0].PeakR}
		}
	}
	return nil
}
