package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/card"
	"github.com/memprof/memprof/analysis/fit"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/analysis/recording"
	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	reportfit "github.com/memprof/memprof/report/fit"
)

const fitExits = `0 found, and with --card the job fits under some allocator; 1 it fits under
  none; 2 wrong usage, no such recording, or nothing in it to replay;
  3 memprof failed`

type fitOptions struct {
	Card     string
	Headroom sizeFlag
	Scale    string
	Sizes    []float64
	formatFlags
}

func newFitCommand() *cobra.Command {
	var opts fitOptions
	cmd := &cobra.Command{
		Use:   "fit PATH...",
		Short: "Find the least card on which a recorded job completes",
		Long: `Finds the least card on which a recorded job completes: under PyTorch's own
allocator, with and without expandable segments, and under the presets of
memprof's. The requests are replayed on cards of many sizes, without the
recorded --limit. Memory outside of the allocator is added: CUDA context,
kernels, other libraries, and the bytes that the device accounting could not
explain.

  least card          bytes that the card must have free before the job begins:
                      it completes on the larger cards that were tried, but
                      for single ones between others on which it does
  requested + others  greatest sum of requested bytes and of what others use:
                      no allocator needs less
  reserved, no limit  greatest reserved bytes on a card that is large enough

  without workspaces  least card if the job does without requests that fail and
                      were freed at once; shown where it is 1 % smaller. cuDNN
                      does: it takes a smaller workspace, which no recording
                      has. The job completes on a card between the two

The process that needs most decides, over all recordings of the nodes of a job.
With --scale the recordings are of one job at different sizes, and the answer is
for another size: FACTOR x that of the first recording. Their sizes are the
number in which their commands differ, or --sizes. The requests are replayed
with the bytes that they have at that size. Where these do not follow from the
recordings, as of workspaces that cuDNN chooses by size, the least card is
between "at least" and "at most". Sizes on both sides of the one that is asked
about tell more than two on one side.`,
		Annotations: exitCodes(fitExits),
		Example: `  memprof fit run --card 80GiB
  memprof fit batch16 batch32 --scale batch=4 --card H100`,
		Args: someArgs("a recording"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return opts.run(cmd.Context(), cmd.OutOrStdout(), args)
		},
	}
	opts.addFlags(cmd.Flags())
	cmd.ValidArgsFunction = completeDirectories
	completeFlags(cmd, map[string]cobra.CompletionFunc{
		"card":   words(append(card.Names(), "80GiB\tor another size")...),
		"scale":  cobra.FixedCompletions([]cobra.Completion{"batch=2"}, cobra.ShellCompDirectiveNoFileComp|cobra.ShellCompDirectiveNoSpace),
		"format": words("text", "markdown", "json"),
	})
	return cmd
}

func (o *fitOptions) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.Card, "card", "", "`card` to answer yes or no for: a size, 80GiB, or a name, "+strings.Join(card.Names(), ", "))
	flags.Var(&o.Headroom, "headroom", "memory that must stay free on the card")
	flags.StringVar(&o.Scale, "scale", "", "answer for a job of another size: `NAME=FACTOR`, batch=2")
	flags.Float64SliceVar(&o.Sizes, "sizes", nil, "with --scale: size of each recording's job, a list of `numbers`")
	o.formatFlags.add(flags)
}

func (o *fitOptions) run(ctx context.Context, stdout io.Writer, paths []string) error {
	result := &reportfit.Result{Headroom: int64(o.Headroom)}
	name, factor, err := o.validate(len(paths))
	if err == nil {
		result.Card, result.Bytes, err = o.card()
	}
	if err != nil {
		return err
	}
	runs, err := analyzeWith(paths, analysis.Options{})
	if err != nil {
		return err
	}
	if name != "" {
		err = o.scaled(ctx, result, runs, name, factor)
	} else {
		var jobs []*fit.Job
		for i := range runs {
			jobs = append(jobs, runs[i].FitJobs()...)
		}
		result.Answer, err = o.find(ctx, strings.Join(paths, ", "), jobs, fit.Options{Card: result.Bytes})
	}
	if err != nil {
		return err
	}
	if err := printAs(stdout, o.Format, result, reportfit.Text, reportfit.Markdown, reportfit.JSON); err != nil {
		return err
	}
	if !result.Fits() {
		return exit.With(exit.Violated)
	}
	return nil
}

// validate checks the flags and returns the parts of --scale.
func (o *fitOptions) validate(recordings int) (name string, factor float64, err error) {
	if err := o.formatFlags.validate(); err != nil {
		return "", 0, err
	}
	if o.Headroom < 0 {
		return "", 0, exit.Usagef("--headroom: want 0 bytes or more")
	}
	if o.Scale == "" {
		if len(o.Sizes) > 0 {
			return "", 0, exit.Usagef("--sizes has no effect without --scale: remove it")
		}
		return "", 0, nil
	}
	name, text, found := strings.Cut(o.Scale, "=")
	factor, wrong := strconv.ParseFloat(text, 64)
	switch {
	case !found || name == "" || wrong != nil || !(factor > 0 && factor < 1e9):
		return "", 0, exit.Usagef("--scale %q: want a name and a factor, like batch=2", o.Scale)
	case recordings < 2:
		return "", 0, exit.Usagef("--scale needs recordings at two sizes or more, got %d", recordings)
	case len(o.Sizes) > 0 && len(o.Sizes) != recordings:
		return "", 0, exit.Usagef("--sizes has %s for %d recordings: want one for each", plain.Counted(int64(len(o.Sizes)), "number"), recordings)
	case slices.ContainsFunc(o.Sizes, func(size float64) bool { return !(size > 0) }):
		return "", 0, exit.Usagef("--sizes: want numbers greater than 0")
	}
	return name, factor, nil
}

// card returns the card of --card, and its bytes.
func (o *fitOptions) card() (name string, bytes int64, err error) {
	if o.Card == "" {
		return "", 0, nil
	}
	if bytes, ok := card.Named(o.Card); ok {
		return o.Card, bytes, nil
	}
	if bytes, err = plain.ParseSize(o.Card); err == nil && bytes <= 0 {
		err = fmt.Errorf("want more than 0 bytes")
	}
	if err != nil {
		return "", 0, exit.Usagef("--card %q: want a size like 80GiB, or %s%s", o.Card, plain.Alternatives(card.Names()), plain.DidYouMean(o.Card, card.Names()...))
	}
	return o.Card, bytes, nil
}

// find answers for the processes of a job, which were recorded at a path.
func (o *fitOptions) find(ctx context.Context, path string, jobs []*fit.Job, options fit.Options) (*fit.Answer, error) {
	if len(jobs) == 0 {
		return nil, exit.Usagef("%s: nothing to replay: no allocation was recorded", path)
	}
	options.Allocators, options.Headroom = fit.Allocators(), int64(o.Headroom)
	answer, err := fit.Find(ctx, jobs, options)
	return answer, exit.Input(err)
}

// scaled answers for a job of another size.
func (o *fitOptions) scaled(ctx context.Context, result *reportfit.Result, runs []recording.Recording, name string, factor float64) error {
	sizes := o.Sizes
	if len(sizes) == 0 {
		var err error
		if sizes, err = recording.SizesOf(runs, name); err != nil {
			return exit.Usagef("%w: give --sizes, one number for each", err)
		}
	}
	size := factor * sizes[0]
	result.Scale = &reportfit.Scale{Name: name, Factor: factor, Sizes: sizes, Size: size}
	resized, err := recording.Resize(runs, sizes, size)
	switch {
	case err == nil:
		err = o.replayed(ctx, result, runs[0].Path, resized)
	case errors.Is(err, fit.ErrDiffer):
		err = o.onLines(ctx, result, runs)
	case errors.Is(err, fit.ErrSizes):
		err = exit.Usagef("--scale: %w", err)
	}
	if err != nil {
		return exit.Input(err)
	}
	result.Scale.Categories, err = recording.ScaleCategories(runs, sizes, size)
	return exit.Input(err)
}

// onLines answers for a job whose recordings have too few requests in common, on lines through their least cards.
func (o *fitOptions) onLines(ctx context.Context, result *reportfit.Result, runs []recording.Recording) (err error) {
	var answers []*fit.Answer
	for i := range runs {
		answer, err := o.find(ctx, runs[i].Path, runs[i].FitJobs(), fit.Options{})
		if err != nil {
			return err
		}
		answers = append(answers, answer)
	}
	scale := result.Scale
	if scale.Rows, err = recording.Scale(runs, answers, scale.Sizes, scale.Size); err != nil {
		return err
	}
	result.Answer = answers[0]
	for i := range result.Rows {
		row := &result.Rows[i]
		row.Bytes, row.Without = scale.Rows[i].Predicted, 0
		row.Fits = row.Bytes <= result.Bytes
	}
	return nil
}

// replayed answers for jobs whose requests have the bytes of another size of the job.
func (o *fitOptions) replayed(ctx context.Context, result *reportfit.Result, path string, resized *recording.Resized) (err error) {
	scale := result.Scale
	scale.Replayed, scale.Unsure = true, resized.Unsure
	if result.Answer, err = o.find(ctx, path, resized.Likely, fit.Options{Card: result.Bytes}); err != nil {
		return err
	}
	for i := range result.Rows {
		scale.Rows = append(scale.Rows, fit.Predict(&result.Rows[i].Need))
	}
	for _, jobs := range resized.Others {
		other, err := o.find(ctx, path, jobs, fit.Options{Quick: true})
		if err != nil {
			return err
		}
		for i := range scale.Rows {
			scale.Rows[i].Possible(&other.Rows[i].Need)
		}
	}
	if resized.Unsure.Requests > 0 {
		for i := range scale.Rows {
			scale.Rows[i].Widen(len(resized.Others) + 1)
		}
	}
	return nil
}
