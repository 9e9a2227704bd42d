// Package calibrate is what `memprof kv calibrate` does: it fits the time of an engine's steps to a recording.
package calibrate

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/memprof/memprof/analysis/kv"
	"github.com/memprof/memprof/analysis/kvcache/models"
	"github.com/memprof/memprof/analysis/kvcache/timing"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/cmd/memprof/internal/output"
	"github.com/memprof/memprof/trace"
)

// Options of Run.
type Options struct {
	Model  string // that the engine served; "" if it is not one of those known
	Ranks  int    // GPUs that the model was divided over
	Name   string // of the timing
	Output string // file; "" prints
}

// Run fits the steps of the recording's processes, of which one at most has any, and writes the timing as JSON
// for --timing.
func Run(stdout io.Writer, run *trace.Run, o Options) error {
	if o.Ranks < 1 {
		return exit.Usagef("--tensor-parallel %d: want at least 1", o.Ranks)
	}
	if o.Model != "" {
		if _, err := models.Named(o.Model); err != nil {
			return exit.Usagef("--model: %w%s", err, plain.DidYouMean(o.Model, models.Names()...))
		}
	}
	steps, process, err := stepsOf(run)
	if err != nil {
		return err
	}
	coefficients, deviation, err := timing.Fit(steps)
	if err != nil {
		return exit.Usagef("%s: %d steps of an engine: %w", process, len(steps), err)
	}
	t := timing.Timing{
		Name: o.Name, Source: source(run, steps), Model: o.Model, Ranks: o.Ranks, Error: deviation, Coefficients: coefficients,
	}
	if o.Output != "" {
		return output.ReplaceWithJSON(o.Output, t)
	}
	return plain.WriteJSON(stdout, t)
}

// stepsOf returns the steps of the process that has any.
func stepsOf(run *trace.Run) (steps []timing.Step, of string, err error) {
	for _, process := range run.Processes {
		reader, err := process.NewReader()
		if err != nil {
			return nil, "", err
		}
		found, err := kv.Steps(reader, process.Strings().Text)
		reader.Close()
		switch {
		case errors.Is(err, kv.ErrNoSteps):
			continue
		case err != nil:
			return nil, "", fmt.Errorf("%s: %w", process.Name, err)
		case steps != nil:
			return nil, "", exit.Usagef("%s and %s both have steps of an engine, and ranks that serve one model have the same: choose one with --process", of, process.Name)
		}
		steps, of = found, process.Name
	}
	if steps == nil {
		return nil, "", exit.Usagef("%w", kv.ErrNoSteps)
	}
	return steps, of, nil
}

// source says in a line what was fitted.
func source(run *trace.Run, steps []timing.Step) string {
	text := fmt.Sprintf("fitted to %d steps", len(steps))
	if gpus := run.Info.GPUs; len(gpus) > 0 && gpus[0].Name != "" {
		text += " on " + plain.Text(gpus[0].Name)
	}
	most := slices.MaxFunc(steps, func(a, b timing.Step) int { return int(a.Decode - b.Decode) }).Decode
	return text + fmt.Sprintf(", of at most %d sequences", most)
}
