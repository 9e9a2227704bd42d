package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/recording"
	"github.com/memprof/memprof/analysis/rmmlog"
	"github.com/memprof/memprof/analysis/tune"
	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/cmd/memprof/internal/screen"
	"github.com/memprof/memprof/report"
	"github.com/memprof/memprof/trace"
)

const tuneExits = `0 replayed, whatever it recommends; 2 wrong usage, no such recording, or
  nothing in it to replay; 3 memprof failed`

type tuneOptions struct {
	Process     string
	Limit       sizeFlag
	MaxSlowdown float64
	formatFlags
}

func newTuneCommand() *cobra.Command {
	var opts tuneOptions
	cmd := &cobra.Command{
		Use:   "tune PATH",
		Short: "Find the allocator policy with the lowest peak for a recorded job",
		Long: `Replays the requests of a recording under the presets classic and compact,
compact with --trim iteration, and compact with other handles, which are shown
where they change the peak or the driver calls by more than 1 %. A PyTorch job
is replayed under PyTorch's own allocator too: as it is, with expandable
segments, and with the best of eight more settings of PYTORCH_CUDA_ALLOC_CONF.
It recommends flags for memprof record: of the policies within --max-slowdown,
the one with the least peak R, then the least later R, both give or take 1 %,
then the least cost. The columns are

  peak R      peak reserved memory
  later R     the same in the steady iterations, from iteration 4 on (iterations
              count from 0)
  calls       driver calls that requests wait for, per steady iteration: create,
              map, set access, unmap and release, one for each handle
  slowdown    predicted / recorded iteration time (lower is better)

Driver calls have the cost of a handle of 2 MiB, whatever its size. On an H200 a
page of 8 MiB moved in 0.91 of the time of one of 2 MiB, one of 32 MiB in 1.26.`,
		Annotations: exitCodes(tuneExits),
		Example: `  memprof tune run
  memprof tune --limit 40GiB --json run`,
		Args: exactArgs("a recording"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return opts.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), args[0])
		},
	}
	opts.addFlags(cmd.Flags())
	cmd.ValidArgsFunction = completeDirectories
	completeFlags(cmd, map[string]cobra.CompletionFunc{
		"process": completeProcesses,
		"format":  words("text", "markdown", "json"),
	})
	return cmd
}

func (o *tuneOptions) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.Process, "process", "", "`name` of the process to replay, as in the report (default: the first)")
	flags.Var(&o.Limit, "limit", "most memory that the job may reserve on a device (default: as recorded)")
	flags.Float64Var(&o.MaxSlowdown, "max-slowdown", 0.01, "most that the recommended policy may slow an iteration down, as a `share` of it")
	o.formatFlags.add(flags)
}

func (o *tuneOptions) run(ctx context.Context, stdout, stderr io.Writer, path string) error {
	if err := o.formatFlags.validate(); err != nil {
		return err
	}
	if !(o.MaxSlowdown >= 0) {
		return exit.Usagef("--max-slowdown %v: want 0 or more", o.MaxSlowdown)
	}
	run, process, err := openProcess(path, o.Process)
	if err != nil {
		return err
	}
	if o.Process == "" && len(run.Processes) > 1 {
		screen.Complain(stderr, fmt.Sprintf("replaying %s, one of %d processes (--process NAME chooses another)", process.Name, len(run.Processes)))
	}
	tuned := &report.Tuned{Process: process.Name, MaxSlowdown: o.MaxSlowdown}
	// A log of RMM's requests does not say what RMM reserved.
	if how := run.Info.ImportOf(process.Name); how == nil || how.Format != rmmlog.Format {
		if err := findRecorded(tuned, process); err != nil {
			return exit.Input(err)
		}
	}
	reader, err := process.NewReader()
	if err != nil {
		return exit.Input(err)
	}
	defer reader.Close()
	result, err := tune.Run(ctx, reader, tune.Options{Policies: tune.Compared(), Limit: uint64(o.Limit), Text: process.Strings().Text})
	if errors.Is(err, tune.ErrNothing) {
		return exit.Usagef("%s: %w", path, err)
	}
	if err != nil {
		return exit.Input(err)
	}
	result.LeaveOutAlike()
	tuned.Result = result
	if o.Limit == 0 {
		if tuned.Torch, err = replayTorch(process, &run.Info); err != nil {
			return exit.Input(err)
		}
	}
	switch o.Format {
	case "json":
		return report.TuneJSON(stdout, tuned)
	case "markdown":
		return report.TuneMarkdown(stdout, tuned)
	}
	return report.TuneText(stdout, tuned, screen.Options(stdout))
}

// findRecorded sets the policy that a process was recorded under, and what it reserved, on the device with most.
func findRecorded(tuned *report.Tuned, process *trace.Process) error {
	reader, err := process.NewReader()
	if err != nil {
		return err
	}
	defer reader.Close()
	result, err := analysis.Run(reader, recording.OptionsOf(process))
	if err != nil {
		return err
	}
	for i := range result.Devices {
		d := &result.Devices[i]
		if d.MaxR <= tuned.RecordedR {
			continue
		}
		tuned.RecordedR, tuned.Recorded = d.MaxR, nil
		if p, ok := recording.PolicyOf(result, d.Device); ok {
			tuned.Recorded = &p
		}
	}
	return nil
}

// replayTorch replays a process under PyTorch's own allocator with all settings that tune tries.
func replayTorch(process *trace.Process, info *trace.Info) ([]recording.TorchOutcome, error) {
	all, err := recording.ReplayTorch(process, info, torchSettings, torchPlacements)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	garbage, err := recording.ReplayTorch(process, info, recording.GarbageSettings(all[0], "0.6", "0.8"), torchPlacements)
	return append(all, garbage...), err
}

// torchSettings are the texts of PYTORCH_CUDA_ALLOC_CONF that tune tries, besides those with a limit.
var torchSettings = []string{
	"", "expandable_segments:True",
	"max_split_size_mb:64", "max_split_size_mb:128", "max_split_size_mb:256", "max_split_size_mb:512",
	"roundup_power2_divisions:4", "roundup_power2_divisions:8",
}

// torchPlacements is how many placements of segments tune tries with each setting.
const torchPlacements = 4
