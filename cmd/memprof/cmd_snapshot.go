//go:build !js

package main

import (
	"errors"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/cmd/memprof/internal/recorder"
	"github.com/memprof/memprof/cmd/memprof/internal/screen"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/spool"
)

const snapshotExits = "0 written; 2 wrong usage, or no recording in progress there; 3 memprof failed"

type snapshotOptions struct {
	Output string
	Force  bool
	JSON   bool
}

func newSnapshotCommand() *cobra.Command {
	var opts snapshotOptions
	cmd := &cobra.Command{
		Use:   "snapshot RUN",
		Short: "Write a recording in progress, up to now, to a directory",
		Long: `Writes the events that a running job has recorded so far to a directory of their
own: a recording that every verb reads. The job and its recording go on
undisturbed. memprof record writes snapshots itself: with --on-signal when it
gets a signal, and with --ring when a request fails.`,
		Annotations: exitCodes(snapshotExits),
		Example: `  memprof snapshot run
  memprof snapshot run -o before-eval && memprof report before-eval`,
		Args: exactArgs("the directory of a recording in progress"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return opts.run(cmd.OutOrStdout(), args[0])
		},
	}
	opts.addFlags(cmd.Flags())
	cmd.ValidArgsFunction = completeDirectories
	mustComplete(cmd, "output", completeDirectories)
	return cmd
}

func (o *snapshotOptions) addFlags(flags *pflag.FlagSet) {
	flags.StringVarP(&o.Output, "output", "o", "", "write the snapshot to this `directory` (default RUN-snapshot)")
	flags.BoolVar(&o.Force, "force", false, "replace the recording in the output directory")
	flags.BoolVar(&o.JSON, "json", false, "print JSON")
}

func (o *snapshotOptions) run(stdout io.Writer, dir string) error {
	busy, err := spool.InProgress(dir)
	if err != nil {
		return exit.Input(err)
	}
	if busy == "" {
		if _, err := dataset.Open(dir); err != nil {
			return exit.Input(err)
		}
		return exit.Usagef("%s is not being recorded any more: it is complete as it is", dir)
	}
	to, run, err := recorder.WriteSnapshot(dir, o.Output, "memprof snapshot", o.Force)
	var about *trace.PathError
	switch {
	case errors.As(err, &about) && !errors.Is(err, trace.ErrDiskFull):
		return exit.Input(err)
	case err != nil:
		return err
	}
	if o.JSON {
		out := jsonSnapshot{Run: to, Processes: []jsonSnapshotProcess{}}
		for _, p := range run.Processes {
			out.Processes = append(out.Processes, jsonSnapshotProcess{p.Name, p.Events, p.Dropped(), p.Live})
		}
		return screen.JSON(stdout, out)
	}
	for _, p := range run.Processes {
		if err := screen.PrintLine(stdout, "%s: %s", p.Name, plain.Counted(p.Events, "event")); err != nil {
			return err
		}
	}
	return screen.PrintLine(stdout, "next: memprof report %s", plain.ShellQuote(to))
}

// jsonSnapshot is what --json prints.
type jsonSnapshot struct {
	Run       string                `json:"run"`
	Processes []jsonSnapshotProcess `json:"processes"`
}

type jsonSnapshotProcess struct {
	Process string `json:"process"`
	Events  int64  `json:"events"`
	Dropped int64  `json:"dropped"` // before these, by a ring
	Live    bool   `json:"live"`    // it is still recorded
}
