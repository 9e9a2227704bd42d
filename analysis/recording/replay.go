package recording

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/attribution"
	"github.com/memprof/memprof/analysis/fit"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/analysis/tune"
	"github.com/memprof/memprof/bfc"
)

// MostReplayed is the greatest number of events of a recording that is replayed for a report: 15 s on two cores.
const MostReplayed = 1_000_000

// Replay sets what it takes to hold each process's memory under the allocators that its user can choose, and what changes of its code
// would save. Both are left out of a recording of more than MostReplayed events and of a process with several devices, and the changes
// where [analysis.Options.Lives] was not asked for. flags gives those of `memprof record` for a policy.
func (r *Recording) Replay(ctx context.Context, flags func(bfc.Policy) string) error {
	events := eventsOf(r.Run)
	for i, result := range r.Results {
		j := r.fitJob(i)
		if j == nil {
			continue
		}
		why := ""
		switch {
		case len(result.Devices) != 1:
			why = "its process has several devices"
		case events > MostReplayed:
			why = fmt.Sprintf("the recording has %s events", plain.FormatCount(events))
		}
		if err := replayJob(ctx, j, result, flags, why); err != nil {
			return err
		}
	}
	return nil
}

// replayJob sets the Replays and Savings of a process's devices; why leaves them out unless it is "".
func replayJob(ctx context.Context, j *fit.Job, result *analysis.Result, flags func(bfc.Policy) string, why string) error {
	rows := fit.Choices(j)
	var history *fit.History
	if why == "" {
		var err error
		if history, err = readHistory(j, result.Devices[0].Lives); err != nil {
			return err
		}
		j = history.Job(j)
		if rows, err = fit.Hold(ctx, j, history.Edges(j)); errors.Is(err, tune.ErrNothing) {
			return nil
		} else if err != nil {
			return err
		}
	}
	for i := range result.Devices {
		d := &result.Devices[i]
		for _, row := range rows {
			setting := row.Setting
			if row.Allocator.Allocator == "memprof" {
				setting = flags(row.Policy)
			}
			if d.OOMCount > 0 { // not what the recorded device had room for
				row.Reserved = row.Need.Reserved
			}
			d.Replays = append(d.Replays, analysis.Replay{
				Allocator: row.Allocator.Allocator, Setting: setting, Reserved: row.Reserved, LeastCard: row.Need.Bytes, ReservedBand: row.Bands.Reserved, CardBand: row.Bands.Card, Step: row.Step, Simulated: j.Simulated,
				Refused: row.Refused, Recorded: row.Recorded, LeftOut: why,
			})
		}
	}
	recorded := slices.IndexFunc(rows, func(row fit.Held) bool { return row.Recorded })
	if why != "" || recorded < 0 || len(result.Devices) != 1 {
		return nil
	}
	d := &result.Devices[0]
	d.Requested = history.Requested()
	if err := findRemedy(ctx, j, d, rows, recorded); err != nil {
		return fmt.Errorf("%s: replay: %w", j.Name, err)
	}
	if d.Lives != nil {
		found, err := history.Find(ctx, j, rows[recorded].Need)
		if err != nil {
			return fmt.Errorf("%s: replay with a change: %w", j.Name, err)
		}
		for _, s := range found {
			d.Savings = append(d.Savings, analysis.Saving{ID: s.ID, Text: s.Text, Variable: s.Variable, Bytes: s.Bytes, Reserved: s.Reserved, LeastCard: s.LeastCard})
		}
	}
	changeAllocator(d, recorded)
	return nil
}

func readHistory(j *fit.Job, lives *attribution.Lives) (*fit.History, error) {
	source, err := j.Open()
	if err != nil {
		return nil, err
	}
	defer source.Close()
	return fit.ReadHistory(source, j.Text, lives)
}

// Another allocator is worth a change if its least card is smaller by such a share, and a step at most so much longer.
const (
	allocatorSaves = 0.01
	allocatorStep  = 1.02
)

// changeAllocator adds the allocator with the least card, if it is smaller than the recorded one's, behind changes of the code that save
// more.
func changeAllocator(d *analysis.DeviceResult, recorded int) {
	base, best := &d.Replays[recorded], -1
	for i := range d.Replays {
		p := &d.Replays[i]
		if p.Refused == 0 && p.Step <= allocatorStep && float64(p.LeastCard) <= (1-allocatorSaves)*float64(base.LeastCard) && (best < 0 || p.LeastCard < d.Replays[best].LeastCard) {
			best = i
		}
	}
	if best < 0 {
		return
	}
	p := &d.Replays[best]
	d.Savings = append(d.Savings, analysis.Saving{
		ID: "allocator", Text: p.Name(), Bytes: d.Peak.R - d.Peak.T, Reserved: base.Reserved - p.Reserved, LeastCard: base.LeastCard - p.LeastCard,
		Allocator: p.Allocator, Setting: p.Setting,
	})
	slices.SortStableFunc(d.Savings, func(x, y analysis.Saving) int { return cmp.Compare(y.LeastCard, x.LeastCard) })
}
