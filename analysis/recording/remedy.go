package recording

import (
	"context"
	"errors"
	"fmt"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/tune"
	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/trace/dataset"
)

// unlimited is more memory than a device has, in bytes.
const unlimited = 1 << 46

// failureReadings fills in what devices had in use when requests failed, where the process did not read it
// itself, from the readings of the run.
func (r *Recording) failureReadings() {
	if r.Readings == nil {
		return
	}
	for _, result := range r.Results {
		for i := range result.Devices {
			d := &result.Devices[i]
			card := CardOf(result, d.Device, &r.Run.Info)
			for k := range d.OOMs {
				if d.OOMs[k].Used < 0 {
					d.OOMs[k].Used = r.Readings.UsedAt(card, d.OOMs[k].Time)
				}
			}
		}
	}
}

// Remedies looks for the smallest change of the policy that serves the requests that failed, and sets Remedy of
// their devices. Settings are tried in their order: flags of `memprof record`, each with its policy. Processes
// are left out as by [Recording.Replay], and so is a failure that the replay of the recorded policy does not have: of
// one while a CUDA graph was captured, say, replays know nothing.
func (r *Recording) Remedies(ctx context.Context, settings []Setting, most int64) error {
	for i, result := range r.Results {
		if len(result.Devices) != 1 || result.Events > most || result.Devices[0].OOMCount == 0 {
			continue
		}
		recorded, ok := PolicyOf(result, result.Devices[0].Device)
		if !ok {
			continue
		}
		remedy, err := findRemedy(ctx, r.Run.Processes[i], recorded, settings)
		if err != nil {
			return fmt.Errorf("%s: replay: %w", result.Process, err)
		}
		result.Devices[0].Remedy = remedy
	}
	return nil
}

// Setting is a policy with the flags of `memprof record` for it.
type Setting struct {
	Flags  string
	Policy bfc.Policy
}

func findRemedy(ctx context.Context, process *dataset.Process, recorded bfc.Policy, settings []Setting) (*analysis.Remedy, error) {
	remedy := &analysis.Remedy{}
	o := tune.Options{Text: process.Strings().Text}
	settings = append([]Setting{{Policy: recorded}}, settings...)
	for _, s := range settings {
		o.Policies = append(o.Policies, s.Policy)
		if s.Flags != "" {
			remedy.Tried = append(remedy.Tried, s.Flags)
		}
	}
	tuned, err := replayAll(ctx, process, o)
	if err != nil || tuned == nil {
		return nil, err
	}
	if control := &tuned.Outcomes[0]; control.StillRefused == 0 {
		return nil, nil
	}
	for i := range tuned.Outcomes {
		if outcome := &tuned.Outcomes[i]; outcome.Refused == 0 && outcome.StillRefused == 0 {
			remedy.Setting, remedy.Reserved = settings[i].Flags, outcome.PeakR
			return remedy, nil
		}
	}
	o.Policies, o.Limit = o.Policies[len(o.Policies)-1:], unlimited
	if tuned, err = replayAll(ctx, process, o); err != nil || tuned == nil || tuned.Outcomes[0].Refused+tuned.Outcomes[0].StillRefused > 0 {
		return nil, err
	}
	remedy.Reserved = tuned.Outcomes[0].PeakR
	return remedy, nil
}

// replayAll replays a process; without a request to replay it returns nil.
func replayAll(ctx context.Context, process *dataset.Process, o tune.Options) (*tune.Result, error) {
	reader, err := process.NewReader()
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	tuned, err := tune.Run(ctx, reader, o)
	if errors.Is(err, tune.ErrNothing) {
		return nil, nil
	}
	return tuned, err
}
