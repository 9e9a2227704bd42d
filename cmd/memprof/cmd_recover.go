package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/analysis/summary"
	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/cmd/memprof/internal/screen"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/collect"
	"github.com/memprof/memprof/trace/dataset"
)

const recoverExits = "0 recovered, or nothing left to do; 2 no recording there; 3 memprof failed"

type recoverOptions struct {
	Wait bool
	Now  bool
	JSON bool
}

func newRecoverCommand() *cobra.Command {
	var opts recoverOptions
	cmd := &cobra.Command{
		Use:   "recover DIR",
		Short: "Complete a recording after a crash or a full disk",
		Long: `Completes a recording whose recorder was killed or ran out of disk, from the
events in its spool. Every event that the job wrote is in it, whether memprof or
the job ended first.`,
		Annotations: exitCodes(recoverExits),
		Example: `  memprof recover run
  memprof recover --wait run`,
		Args: exactArgs("the directory of a recording"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt)
			defer stop()
			return opts.run(ctx, cmd.OutOrStdout(), cmd.ErrOrStderr(), args[0])
		},
	}
	opts.addFlags(cmd.Flags())
	cmd.ValidArgsFunction = completeDirectories
	return cmd
}

func (o *recoverOptions) addFlags(flags *pflag.FlagSet) {
	flags.BoolVar(&o.Wait, "wait", false, "go on recording until the job's remaining processes have ended")
	flags.BoolVar(&o.Now, "now", false, "stop recording the job's remaining processes now; they go on unrecorded")
	flags.BoolVar(&o.JSON, "json", false, "print JSON")
}

func (o *recoverOptions) run(ctx context.Context, stdout, stderr io.Writer, dir string) error {
	if o.Wait && o.Now {
		return exit.Usagef("--wait and --now: choose one")
	}
	recover := func() (*collect.Summary, error) { return collect.Recover(ctx, dir, o.Wait) }
	if o.Now {
		recover = func() (*collect.Summary, error) { return collect.RecoverNow(dir) }
	}
	recovered, err := recover()
	var about *trace.PathError
	switch {
	case errors.As(err, &about), errors.Is(err, os.ErrNotExist):
		return exit.Input(err)
	case err != nil:
		return err
	}
	summarizeRecovered(stderr, dir)
	for _, problem := range recovered.Problems {
		screen.Remark(stderr, "problem", problem)
	}
	return o.print(stdout, dir, recovered)
}

// summarizeRecovered writes the summaries that a recording lacks: it is whole without them.
func summarizeRecovered(stderr io.Writer, dir string) {
	lacks, err := lacksSummary(dir)
	if err != nil || !lacks {
		return
	}
	run, err := dataset.Open(dir)
	if errors.Is(err, trace.ErrEmpty) {
		return // no process of it used a GPU
	}
	if err == nil {
		_, err = summary.WriteAll(dir, run)
	}
	if err != nil {
		screen.Remark(stderr, "warning", fmt.Sprintf("the summary could not be written: %v", err))
	}
}

func (o *recoverOptions) print(stdout io.Writer, dir string, recovered *collect.Summary) error {
	if o.JSON {
		type process struct {
			Name   string `json:"name"`
			Events int64  `json:"events"`
			Lost   int64  `json:"lost"`
		}
		out := struct {
			Processes []process `json:"processes"`
		}{[]process{}}
		for _, p := range recovered.Processes {
			out.Processes = append(out.Processes, process{p.Name, p.Events, p.Ending.Lost})
		}
		return screen.JSON(stdout, out)
	}
	if len(recovered.Processes) == 0 {
		return screen.PrintLine(stdout, "nothing to recover in %s", dir)
	}
	for _, p := range recovered.Processes {
		line := fmt.Sprintf("%s: %s", p.Name, plain.Counted(p.Events, "event"))
		if p.Ending.Lost > 0 {
			line += fmt.Sprintf(", %d lost at the end", p.Ending.Lost)
		}
		if err := screen.PrintLine(stdout, "%s", line); err != nil {
			return err
		}
	}
	return screen.PrintLine(stdout, "next: memprof report %s", plain.ShellQuote(dir))
}
