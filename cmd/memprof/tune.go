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
	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/cmd/memprof/internal/screen"
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
		Long: `Says under which policy a job would take the least memory. Replays the requests
of its recording under every combination of growths, splits, small arenas, trims
and placements, and ends with the flags of record of the one that has, at no
more than --max-slowdown, the least peak R, then the least steady R. Of each it
prints

  R peak    the most memory that was reserved
  R steady  the same in the steady iterations: number 4, counted from 0, and on
  idle      the share of R that an iteration left unused, 1 - C/R by its own
            peaks: of the first, and of the later ones in the mean
  remaps    ranges that an iteration maps again for its requests
  waits     requests of an iteration that wait for the device
  cost      how long an iteration waits for the driver, by the --cost- flags
  step      how long a step is with that, 1 as recorded`,
		Annotations: exitCodes(tuneExits),
		Example: `  memprof tune run
  memprof tune --growth needed,step:64MiB --trim iteration,idle:50ms --json run`,
		Args: exactArgs("a trace"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return opts.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), args[0])
		},
	}
	opts.addFlags(cmd.Flags())
	return completedTune(cmd)
}

func (o *tuneOptions) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.Process, "process", "", "tune this process of the recording (default: the first)")
	flags.StringSliceVar(&o.Growth, "growth", []string{"double", "needed", "step:32MiB"}, "growths to try: double, needed, step:SIZE")
	flags.StringSliceVar(&o.Split, "split", []string{"classic", "always"}, "splits to try: classic, always, SIZE")
	flags.StringSliceVar(&o.Small, "small-arenas", []string{"0", "1MiB"}, "sizes to try, below which requests have arenas of their own: SIZE, 0 for none")
	flags.StringSliceVar(&o.Trim, "trim", []string{"never", "iteration"}, "trims to try: never, iteration, idle:DURATION")
	flags.StringSliceVar(&o.Placement, "placement", []string{"best-fit", "planned"}, "placements to try: best-fit, planned (takes longer)")
	flags.Var(&o.Limit, "limit", "most memory that a device has for the job (default: as recorded)")
	flags.Float64Var(&o.MaxSlowdown, "max-slowdown", 0.01, "most that the recommended policy may cost, as a share of a step")
	o.Handle = sizeFlag(o.Costs.Handle)
	flags.Var(&o.Handle, "cost-handle", "bytes that a handle of physical memory backs")
	flags.DurationVar(&o.Costs.Create, "cost-create", o.Costs.Create, "what creating a handle costs")
	flags.DurationVar(&o.Costs.Map, "cost-map", o.Costs.Map, "what mapping a handle costs")
	flags.DurationVar(&o.Costs.Access, "cost-access", o.Costs.Access, "what setting access to a mapped handle costs")
	flags.DurationVar(&o.Costs.Unmap, "cost-unmap", o.Costs.Unmap, "what unmapping a handle costs")
	flags.DurationVar(&o.Costs.Release, "cost-release", o.Costs.Release, "what releasing a handle costs")
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
		screen.Complain(stderr, fmt.Sprintf("%s of %d processes; --process picks another", process.Name, len(run.Processes)))
	}
	reader, err := process.NewReader()
	if err != nil {
		return exit.Input(err)
	}
	defer reader.Close()
	result, err := tune.Run(ctx, reader, tune.Options{Policies: policies, Costs: o.Costs, Limit: uint64(o.Limit), Text: process.Strings().Text})
	if errors.Is(err, tune.ErrNothing) {
		return exit.Usagef("%s: %w", path, err)
	}
	if err != nil {
		return exit.Input(err)
	}
	tuned := &report.Tuned{Result: result, Process: process.Name, Costs: o.Costs, MaxSlowdown: o.MaxSlowdown}
	switch o.Format {
	case "json":
		return report.TuneJSON(stdout, tuned)
	case "markdown":
		return report.TuneMarkdown(stdout, tuned)
	}
	return report.TuneText(stdout, tuned, screen.Options(stdout))
}

// settle reads the flags, and gives the policies to try.
func (o *tuneOptions) settle() ([]tune.Policy, error) {
	if err := o.formatFlags.settle(); err != nil {
		return nil, err
	}
	if o.Handle <= 0 {
		return nil, exit.Usagef("--cost-handle: want a positive size")
	}
	o.Costs.Handle = uint64(o.Handle)
	for name, cost := range map[string]time.Duration{"create": o.Costs.Create, "map": o.Costs.Map, "access": o.Costs.Access, "unmap": o.Costs.Unmap, "release": o.Costs.Release} {
		if cost < 0 {
			return nil, exit.Usagef("--cost-%s %s: want 0 or more", name, cost)
		}
	}
	if !(o.MaxSlowdown >= 0) {
		return nil, exit.Usagef("--max-slowdown %v: want 0 or more", o.MaxSlowdown)
	}
	policies, err := o.combine()
	if err != nil {
		return nil, exit.Usagef("%w", err)
	}
	return policies, nil
}

// combine reads the lists of options, each as `memprof record` does.
func (o *tuneOptions) combine() ([]tune.Policy, error) {
	var choices tune.Choices
	for _, list := range []struct {
		flag   string
		values []string
	}{{"growth", o.Growth}, {"split", o.Split}, {"small-arenas", o.Small}, {"trim", o.Trim}, {"placement", o.Placement}} {
		if len(list.values) == 0 {
			return nil, fmt.Errorf("--%s: want one at least", list.flag)
		}
	}
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
