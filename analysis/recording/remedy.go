package recording

import (
	"context"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/fit"
)

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

// findRemedy sets Remedy of a device on which requests failed. It replays the recording on the recorded card, with the requests that
// failed, under the other allocators, those of the recorded kind first. The first one that serves all requests is the remedy. A device
// has no remedy where the size of its card is not known, or where a replay of the recorded allocator serves all: replays do not know
// why a request failed while a CUDA graph was captured.
func findRemedy(ctx context.Context, j *fit.Job, d *analysis.DeviceResult, rows []fit.Held, recorded int) error {
	if d.OOMCount == 0 || d.Total == 0 {
		return nil
	}
	card := d.Total
	if d.Account != nil {
		card -= d.Account.UsedBeforeJob
	}
	survey, err := fit.Look(j)
	if err != nil {
		return err
	}
	if len(d.OOMs) > 0 && d.OOMs[0].Limit >= 0 { // --limit
		if of := survey.Devices[d.Device]; of != nil {
			card = min(card, d.OOMs[0].Limit+of.Driver+of.Libraries)
		}
	}
	serves := func(i int) (bool, error) {
		refused, err := fit.On(ctx, j, survey, rows[i].Allocator, card, 0)
		return err == nil && refused == nil, err
	}
	if ok, err := serves(recorded); ok || err != nil {
		return err
	}
	d.Remedy = &analysis.Remedy{}
	for _, same := range []bool{true, false} {
		for i := range rows {
			if i == recorded || (rows[i].Allocator.Allocator == rows[recorded].Allocator.Allocator) != same {
				continue
			}
			if ok, err := serves(i); ok || err != nil {
				d.Remedy.Replay = d.Replays[i]
				return err
			}
			d.Remedy.Tried = append(d.Remedy.Tried, d.Replays[i].Setting)
		}
	}
	d.Remedy.Missing = d.Replays[recorded].LeastCard - card
	return nil
}
