package main

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/memprof/memprof/analysis/kv"
	"github.com/memprof/memprof/analysis/kvcache/models"
	"github.com/memprof/memprof/analysis/kvcache/serving"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/trace/dataset"
)

// calibrateOptions are those of kv calibrate.
type calibrateOptions struct {
	Model  string // that the engine served; "" if it is not one of those known
	Ranks  int    // GPUs that the model was divided over
	Output string // file; "" prints
}

// name is the file's without its ending.
func (o *calibrateOptions) name() string {
	base := filepath.Base(o.Output)
	if o.Output == "" {
		return ""
	}
	return base[:len(base)-len(filepath.Ext(base))]
}

func newCalibrateCommand() *cobra.Command {
	opts := calibrateOptions{Ranks: 1}
	var of processFlags
	cmd := &cobra.Command{
		Use:   "calibrate RUN",
		Short: "Fit the time of an engine's steps, for kv --timing",
		Long: `Fits the time of a step to what it computes and copies, from a recording of an
engine that marks its KV cache (memprof.kv) and the end of each step
(memprof.iteration, when the GPU is done with it). Prints JSON for
memprof kv --timing, with the mean deviation of the fitted steps ("error").
The engine should run with few and many sequences, short and long.`,
		Annotations: exitCodes("0 written; 2 wrong usage, or no steps in the recording; 3 memprof failed"),
		Example: `  memprof kv calibrate run --model llama-3-8b -o engine.json
  memprof kv --synthetic sharegpt --rate 1,2,4 --duration 1h \
    --model llama-3-8b --memory 40GiB --timing engine.json`,
		Args: exactArgs("a recording"),
		RunE: func(cmd *cobra.Command, args []string) error {
			run, err := openRun(args[0])
			if err != nil {
				return err
			}
			chosen, err := of.chooseOf([]*dataset.Run{run})
			if err != nil {
				return err
			}
			return calibrate(cmd.OutOrStdout(), chosen[0], opts)
		},
	}
	cmd.Flags().StringVar(&opts.Model, "model", "", "`name` of the model that the engine served; other models are scaled from it")
	cmd.Flags().IntVar(&opts.Ranks, "tensor-parallel", opts.Ranks, "the model was divided over `N` GPUs")
	cmd.Flags().StringVarP(&opts.Output, "output", "o", "", "write into this `file`")
	of.add(cmd.Flags())
	cmd.ValidArgsFunction = completeDirectories
	completeFlags(cmd, map[string]cobra.CompletionFunc{"model": words(models.Names()...), "output": files("json")})
	mustComplete(cmd, "process", completeProcesses)
	return cmd
}

// calibrate fits the steps of the recording's processes, of which one at most has any, and writes the timing as JSON
// for --timing.
func calibrate(stdout io.Writer, run *dataset.Run, o calibrateOptions) error {
	if o.Ranks < 1 {
		return exit.Usagef("--tensor-parallel %d: want at least 1", o.Ranks)
	}
	if o.Model != "" {
		if _, err := models.Named(o.Model); err != nil {
			return exit.Usagef("--model: %w%s", err, plain.DidYouMean(o.Model, models.Names()...))
		}
	}
	steps, process, err := timedSteps(run)
	if err != nil {
		return err
	}
	coefficients, deviation, err := serving.Fit(steps)
	if err != nil {
		return exit.Usagef("%s: %d steps of an engine: %w", process, len(steps), err)
	}
	t := serving.Timing{
		Measured:     serving.Measured{Name: o.name(), Source: sourceOf(run, steps), Model: o.Model, Ranks: o.Ranks, Error: deviation},
		Coefficients: coefficients,
	}
	if o.Output != "" {
		return replaceWithJSON(o.Output, t)
	}
	return plain.WriteJSON(stdout, t)
}

// timedSteps returns the steps of the process that has any.
func timedSteps(run *dataset.Run) (steps []serving.Step, of string, err error) {
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

// sourceOf says in a line what was fitted.
func sourceOf(run *dataset.Run, steps []serving.Step) string {
	text := fmt.Sprintf("fitted to %d steps", len(steps))
	if gpus := run.Info.GPUs; len(gpus) > 0 && gpus[0].Name != "" {
		text += " on " + plain.Text(gpus[0].Name)
	}
	most := slices.MaxFunc(steps, func(a, b serving.Step) int { return int(a.Decode - b.Decode) }).Decode
	return text + fmt.Sprintf(", of at most %d sequences", most)
}
