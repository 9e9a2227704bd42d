//go:build !js

package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/accounting"
	"github.com/memprof/memprof/analysis/fit"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/analysis/recording"
	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/hooks"
	"github.com/memprof/memprof/report"
	"github.com/memprof/memprof/report/summary"
	"github.com/memprof/memprof/trace/dataset"
)

const fitExits = `0 found, and with --card or --try the job fits under some allocator; 1 it fits
  under none, or within the band only; 2 wrong usage, no such recording, a dry
  run that ended early, or nothing to replay; 3 memprof failed`

type fitOptions struct {
	Card   string
	All    bool
	Try    string
	Engine string
	processFlags
	formatFlags
}

func newFitCommand() *cobra.Command {
	var opts fitOptions
	cmd := &cobra.Command{
		Use:   "fit PATH...",
		Short: "Find the settings and the card that a recorded job needs",
		Long: `Replays the requests of a recording under PyTorch's own allocator (as it is,
with expandable segments, and with the best of six more settings of
PYTORCH_CUDA_ALLOC_CONF) and under memprof's: the presets classic and compact,
compact with --trim iteration, and compact with other handles where they change
the reserved memory or the driver calls by more than 1 %. --all prints the rows
that are left out. The columns are

  reserved    peak reserved memory on the recorded device. Of a dry run the most
              over what it does not know
  band        the same over all placements of segments that were tried: where
              the driver places them is not recorded. Of a dry run also over
              all sizes of workspaces that it does not know
  least card  bytes that must be free before the job begins. It also completes
              on the larger cards that were tried; a single one on which it does
              not is named. CUDA context, kernels, other libraries, and bytes
              that the device accounting could not explain are in it. A
              snapshot does not have them: --card NAME assumes those of an H200
  without     least card if the job does without requests that failed and were
  workspaces  freed at once, if 1 % smaller. cuDNN falls back on smaller
              workspaces, which no recording has: the true least card is between
  slowdown    predicted / recorded iteration time (lower is better)
  calls       driver calls that requests wait for, per steady iteration (from
              number 4 on), one for each handle of 2 MiB, whatever its size

It recommends the allocator with the least card that makes an iteration at most
1 % longer. A dry run that does not know all that has a band for the least card,
too, whose upper end is the one in --json. A card in it is neither a yes nor a
no: "within the band".

--try makes dry runs of the plan's job with other values of an argument of its
command, in the current directory and with the plan's flags. It asks about
--card, or else the plan's card. In a range it bisects for the largest value
that fits: greater ones than one that does not fit are taken not to fit either.

--engine reads the start of a serving engine (weights, a profiled batch, KV
cache, captures of CUDA graphs): one table of the card, what the graphs of all
sizes take beside vLLM's estimate, and what to type. Three captures of a list
are enough; the name of their memprof.phase ends in their rows, "decode 64".
What the driver keeps for graphs follows from readings, ten a second: pause for
0.25 s before and after the captures of a list.
--engine=SIZES plans other lists: 1,2,4,8..512/8, or NAME:SIZES;NAME:SIZES.

Of a job with several processes, over all recordings of its nodes, the one that
needs most decides the least card, and the one that reserves most is compared.`,
		Annotations: exitCodes(fitExits),
		Example: `  memprof fit run
  memprof fit run --card 80GiB
  memprof fit plan --try batch=16..512
  memprof fit --engine run`,
		Args: someArgs("a recording"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return opts.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), args)
		},
	}
	opts.addFlags(cmd.Flags())
	cmd.ValidArgsFunction = completeDirectories
	completeFlags(cmd, map[string]cobra.CompletionFunc{
		"card":    words(append(accounting.CardNames(), "80GiB\tor another size")...),
		"process": completeProcesses,
	})
	return cmd
}

func (o *fitOptions) addFlags(flags *pflag.FlagSet) {
	flags.BoolVar(&o.All, "all", false, "print all settings and handles that were tried")
	flags.StringVar(&o.Card, "card", "", "`card` to answer yes or no for: a size, 80GiB, or a name, "+strings.Join(accounting.CardNames(), ", "))
	flags.StringVar(&o.Try, "try", "", "run the job of a plan again without a GPU, with other `values` of an argument: batch=16,32,64, or batch=16..512 for the largest that fits")
	flags.StringVar(&o.Engine, "engine", "", "plan the memory of a serving engine from a recording of its start; =`sizes` plans graphs of these, as =1,2,4,8..512/8")
	flags.Lookup("engine").NoOptDefVal = recordedSizes
	o.processFlags.add(flags)
	o.formatFlags.add(flags)
}

func (o *fitOptions) run(ctx context.Context, stdout, stderr io.Writer, paths []string) error {
	if os.Getenv("GOMEMLIMIT") == "" {
		// Replays leave as much garbage as they have live blocks: collected in time, a million blocks need less than 1 GiB.
		defer debug.SetMemoryLimit(debug.SetMemoryLimit(768 << 20))
	}
	result := &report.Fit{}
	err := o.formatFlags.validate()
	if err == nil && o.Try != "" {
		return o.try(ctx, stdout, stderr, paths)
	}
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
	if runs, err = o.processFlags.choose(runs); err != nil {
		return err
	}
	for i := range runs {
		if err := wholePlan(&runs[i]); err != nil {
			return exit.Usagef("%s: %w", runs[i].Path, err)
		}
	}
	if o.Engine != "" {
		return o.engine(stdout, runs)
	}
	var jobs []*fit.Job
	for i := range runs {
		if len(runs[i].Results) > 0 {
			result.Variable = summary.Variable(runs[i].Results[0])
		}
		jobs = append(jobs, runs[i].FitJobs()...)
	}
	if len(jobs) == 0 {
		return exit.Usagef("%s: nothing to replay: no allocation was recorded", strings.Join(paths, ", "))
	}
	if _, named := accounting.CardNamed(o.Card); named {
		for _, j := range jobs {
			if j.Torch != nil {
				j.Assumed = assumedOverhead
			}
		}
	}
	most := slices.MaxFunc(jobs, func(a, b *fit.Job) int { return cmp.Compare(a.Reserved, b.Reserved) })
	if result.Compared, err = fit.Compare(ctx, most, o.All); err != nil {
		return exit.Input(err)
	}
	options := fit.Options{Card: result.Bytes}
	for i := range result.Compared.Rows {
		options.Allocators = append(options.Allocators, result.Compared.Rows[i].Allocator)
	}
	if result.Answer, err = fit.Find(ctx, jobs, options); err != nil {
		return exit.Input(err)
	}
	if err := printAs(stdout, o.Format, result, report.FitSections, report.FitJSON); err != nil {
		return err
	}
	if !result.Fits() {
		return exit.With(exit.Violated)
	}
	return nil
}

// assumedOverhead is what context, code and cuBLAS take of a card where a snapshot does not say it, in bytes. cuBLAS takes 32 MiB for the
// handle of each of two threads, the script's and autograd's: measured as [hooks.DryRunContext] was.
const assumedOverhead = hooks.DryRunContext + 2*32<<20

// wholePlan refuses a dry run that ended early: what it lacks may need more.
func wholePlan(plan *recording.Recording) error {
	info := &plan.Run.Info
	if info.Source != dataset.DryRun || info.ExitStatus != nil && *info.ExitStatus == 0 {
		return nil
	}
	how := "without an exit code"
	if info.ExitStatus != nil {
		how = fmt.Sprintf("with exit code %d", *info.ExitStatus)
	}
	ended, requests := int64(0), int64(0)
	for _, result := range plan.Results {
		for i := range result.Devices {
			ended, requests = max(ended, result.Devices[i].IterationCount()), max(requests, result.Devices[i].Allocs)
		}
	}
	return fmt.Errorf("the dry run ended early, %s, after %s and %s: its plan is partial", how, plain.Counted(ended, "iteration"), plain.Counted(requests, "request"))
}

// card returns the card of --card, and its bytes.
func (o *fitOptions) card() (name string, bytes int64, err error) {
	if o.Card == "" {
		return "", 0, nil
	}
	if card, ok := accounting.CardNamed(o.Card); ok {
		return o.Card, card.Memory, nil
	}
	if bytes, err = plain.ParseSize(o.Card); err == nil && bytes <= 0 {
		err = fmt.Errorf("want more than 0 bytes")
	}
	if err != nil {
		return "", 0, exit.Usagef("--card %q: want a size like 80GiB, or %s%s", o.Card, plain.Alternatives(accounting.CardNames()), plain.DidYouMean(o.Card, accounting.CardNames()...))
	}
	return o.Card, bytes, nil
}
