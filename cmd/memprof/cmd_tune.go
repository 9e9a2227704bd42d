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

const tuneExits = `0 replayed, whatever it recommends; 2 wrong usage, no such trace, or nothing
  to replay; 3 memprof failed`

type tuneOptions struct {
	Process       string
	Tried         tuneFlags
	Limit, Handle sizeFlag
	Costs         tune.Costs
	MaxSlowdown   float64
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
	o.Tried.add(flags)
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
	run, process, err := openProcess(path, o.Process)
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
func (o *tuneOptions) settle() ([]bfc.Policy, error) {
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
	policies, err := o.Tried.policies()
	if err != nil {
		return nil, exit.Usagef("%w", err)
	}
	return policies, nil
}

// completedTune adds what the flags of tune can be.
func completedTune(cmd *cobra.Command) *cobra.Command {
	cmd.ValidArgsFunction = completeDirectories
	completeFlags(cmd, map[string]cobra.CompletionFunc{
		"process": completeProcesses,
		"format":  words("text", "markdown", "json"),
	})
	completePolicy(cmd, lists, func(c *bfc.Choice) bool { return c.NoTune != "" })
	return cmd
}
