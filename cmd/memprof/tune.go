package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/memprof/memprof/analysis/tune"
	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/report"
)

type tuneOptions struct {
	Process             string
	Growth, Split, Trim []string
	Small, Placement    []string
	Limit, Handle       sizeFlag
	Costs               tune.Costs
	MaxSlowdown         float64
	formatFlags
}

func newTuneCommand() *cobra.Command {
	opts := tuneOptions{Costs: tune.DefaultCosts()}
	cmd := &cobra.Command{
		Use:   "tune TRACE",
		Short: "Say which policy of the allocator would have suited a recorded job",
		Long: `Replays the requests of a recording under every combination of growth, split, small arenas,
trim and placement, and prints what each would have taken: the greatest reserved memory R, R of
the steady iterations (from the fifth on), the share of it that was idle (1 - C/R, each iteration
by its own peaks), ranges remapped in an iteration, and what its driver calls cost a step by a
cost model. The recommended one has, at no more than --max-slowdown, the least peak R, then the
least steady R.`,
		Annotations: exitCodes(tuneExits),
		Example: `  memprof tune run
  memprof tune --growth needed,step:64MiB --trim iteration,idle:50ms --placement planned --json run`,
		Args: exactArgs("a trace"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return opts.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), args[0])
		},
	}
	opts.addFlags(cmd.Flags())
	return cmd
}

func (o *tuneOptions) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.Process, "process", "", "tune this process of the recording (default: the first)")
	flags.StringSliceVar(&o.Growth, "growth", []string{"double", "needed", "step:32MiB"}, "growths to try: double, needed, step:SIZE")
	flags.StringSliceVar(&o.Split, "split", []string{"classic", "always"}, "splits to try: classic, always, SIZE")
	flags.StringSliceVar(&o.Small, "small-arenas", []string{"0", "1MiB"}, "sizes to try below which requests have arenas of their own: SIZE, 0 for none")
	flags.StringSliceVar(&o.Trim, "trim", []string{"never", "iteration"}, "trims to try: never, iteration, idle:DURATION")
	flags.StringSliceVar(&o.Placement, "placement", []string{"best-fit", "planned"}, "placements to try: best-fit, planned (takes longer)")
	flags.Var(&o.Limit, "limit", "most memory that a device has for the job (default: as recorded)")
	flags.Float64Var(&o.MaxSlowdown, "max-slowdown", 0.01, "most that a recommended policy may cost, as a share of a step")
	o.Handle = sizeFlag(o.Costs.Handle)
	flags.Var(&o.Handle, "cost-handle", "what one handle backs")
	flags.DurationVar(&o.Costs.Create, "cost-create", o.Costs.Create, "to create a handle")
	flags.DurationVar(&o.Costs.Map, "cost-map", o.Costs.Map, "to map it")
	flags.DurationVar(&o.Costs.Access, "cost-access", o.Costs.Access, "to set access to it")
	flags.DurationVar(&o.Costs.Unmap, "cost-unmap", o.Costs.Unmap, "to unmap it")
	flags.DurationVar(&o.Costs.Release, "cost-release", o.Costs.Release, "to release it")
	o.formatFlags.add(flags)
}

func (o *tuneOptions) run(ctx context.Context, stdout, stderr io.Writer, path string) error {
	policies, err := o.settle()
	if err != nil {
		return err
	}
	run, err := openRun(path)
	if err != nil {
		return err
	}
	process, err := pickProcess(run, o.Process)
	if err != nil {
		return err
	}
	if o.Process == "" && len(run.Processes) > 1 {
		fmt.Fprintf(stderr, "memprof: %s of %d processes; --process picks another\n", process.Name, len(run.Processes))
	}
	reader, err := process.NewReader()
	if err != nil {
		return inputError(err)
	}
	defer reader.Close()
	result, err := tune.Run(ctx, reader, tune.Options{Policies: policies, Costs: o.Costs, Limit: uint64(o.Limit), Text: process.Strings().Text})
	if errors.Is(err, tune.ErrNothing) {
		return usagef("%s: %w", path, err)
	}
	if err != nil {
		return inputError(err)
	}
	tuned := &report.Tuned{Result: result, Process: process.Name, Costs: o.Costs, MaxSlowdown: o.MaxSlowdown}
	switch o.Format {
	case "json":
		return report.TuneJSON(stdout, tuned)
	case "markdown":
		return report.TuneMarkdown(stdout, tuned)
	}
	return report.TuneText(stdout, tuned, textOptions(stdout))
}

// settle reads the flags, and gives the policies to try.
func (o *tuneOptions) settle() ([]tune.Policy, error) {
	if err := o.formatFlags.settle(); err != nil {
		return nil, err
	}
	if o.Handle <= 0 {
		return nil, usagef("--cost-handle: want a positive size")
	}
	o.Costs.Handle = uint64(o.Handle)
	for name, cost := range map[string]time.Duration{"create": o.Costs.Create, "map": o.Costs.Map, "access": o.Costs.Access, "unmap": o.Costs.Unmap, "release": o.Costs.Release} {
		if cost < 0 {
			return nil, usagef("--cost-%s %s: want 0 or more", name, cost)
		}
	}
	if !(o.MaxSlowdown >= 0) {
		return nil, usagef("--max-slowdown %v: want 0 or more", o.MaxSlowdown)
	}
	policies, err := o.combine()
	if err != nil {
		return nil, usagef("%w", err)
	}
	return policies, nil
}

// combine reads the lists of options, each as `memprof record` does.
func (o *tuneOptions) combine() ([]tune.Policy, error) {
	var choices tune.Choices
	for _, text := range o.Growth {
		var growth growthFlag
		if err := growth.Set(text); err != nil {
			return nil, fmt.Errorf("--growth: %w", err)
		}
		choices.Growths = append(choices.Growths, tune.Policy{Growth: growth.growth, Step: growth.step})
	}
	for _, text := range o.Split {
		var split splitFlag
		if err := split.Set(text); err != nil {
			return nil, fmt.Errorf("--split: %w", err)
		}
		choices.Splits = append(choices.Splits, bfc.Split(split))
	}
	for _, text := range o.Small {
		var small sizeFlag
		if err := small.Set(text); err != nil {
			return nil, fmt.Errorf("--small-arenas: %w", err)
		}
		choices.Smalls = append(choices.Smalls, uint64(small))
	}
	for _, text := range o.Trim {
		var trim trimFlag
		if err := trim.Set(text); err != nil {
			return nil, fmt.Errorf("--trim: %w", err)
		}
		choices.Trims = append(choices.Trims, bfc.Trim(trim))
	}
	for _, text := range o.Placement {
		placement, err := bfc.ParsePlacement(text)
		if err != nil {
			return nil, fmt.Errorf("--placement: %w", err)
		}
		choices.Placements = append(choices.Placements, placement)
	}
	return choices.Policies()
}
