//go:build !js

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"

	"github.com/spf13/pflag"

	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/cmd/memprof/internal/recorder"
	"github.com/memprof/memprof/cmd/memprof/internal/screen"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/collect"
	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/spool"
)

// finishOptions are the flags of record that complete a recording instead of running a job.
type finishOptions struct {
	Dir  string
	Wait bool
	Now  bool
}

func (o *finishOptions) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.Dir, "finish", "", "run no job: complete this `recording`, whose recorder was killed or had no disk left, from the events in its spool")
	flags.BoolVar(&o.Wait, "wait", false, "with --finish: go on recording until the job's remaining processes have ended")
	flags.BoolVar(&o.Now, "now", false, "with --finish: stop recording the job's remaining processes now; they go on unrecorded")
}

// validate checks the flags against each other, and the command that there is none of.
func (o *finishOptions) validate(command []string) error {
	switch {
	case o.Dir == "" && (o.Wait || o.Now):
		return exit.Usagef("--wait and --now say how --finish RUN ends a recording: give it too")
	case o.Wait && o.Now:
		return exit.Usagef("--wait and --now: choose one")
	case o.Dir != "" && len(command) > 0:
		return exit.Usagef("--finish runs no job: remove %q", command[0])
	case o.Dir == "" && len(command) == 0:
		return exit.Usagef("record needs a command after -- (see `memprof record --help`)")
	}
	return nil
}

// finish completes a recording, and writes the summaries that it lacks. With a ring, it keeps the last events only of
// processes that are recorded until then.
func (o *finishOptions) finish(ctx context.Context, stdout, stderr io.Writer, ring int64) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
	defer stop()
	complete := func() (*collect.Summary, error) { return collect.Recover(ctx, o.Dir, o.Wait) }
	if ring > 0 {
		complete = func() (*collect.Summary, error) { return recorder.RecoverRing(ctx, stderr, o.Dir, ring) }
	}
	if o.Now {
		complete = func() (*collect.Summary, error) { return collect.RecoverNow(o.Dir) }
	}
	finished, err := complete()
	var about *trace.PathError
	switch {
	case errors.As(err, &about), errors.Is(err, os.ErrNotExist):
		return exit.Input(err)
	case err != nil:
		return err
	}
	summarizeMissing(stderr, o.Dir)
	for _, problem := range finished.Problems {
		screen.Remark(stderr, "problem", problem)
	}
	return o.print(stdout, finished)
}

// completeIfLeft completes a recording that nobody records any more, so that it can be read. If that fails, opening it says why.
func completeIfLeft(ctx context.Context, stderr io.Writer, dir string) {
	if busy, err := spool.InProgress(dir); busy != "" || err != nil {
		return
	}
	if _, err := os.Lstat(filepath.Join(dir, spool.Name)); err != nil {
		return
	}
	if _, err := dataset.Open(dir); !errors.Is(err, trace.ErrUnfinished) {
		return
	}
	if finished, err := collect.Recover(ctx, dir, false); err == nil {
		screen.Remark(stderr, "note", fmt.Sprintf("the recording was not finished: completed from the events in its spool (%s)", plain.Counted(int64(len(finished.Processes)), "process")))
		summarizeMissing(stderr, dir)
	}
}

func (o *finishOptions) print(stdout io.Writer, finished *collect.Summary) error {
	if len(finished.Processes) == 0 {
		return screen.PrintLine(stdout, "nothing to complete in %s", o.Dir)
	}
	for _, p := range finished.Processes {
		line := fmt.Sprintf("%s: %s", p.Name, plain.Counted(p.Events, "event"))
		if p.Ending.Lost > 0 {
			line += fmt.Sprintf(", %d lost at the end", p.Ending.Lost)
		}
		if err := screen.PrintLine(stdout, "%s", line); err != nil {
			return err
		}
	}
	return screen.PrintLine(stdout, "next: memprof report %s", plain.ShellQuote(o.Dir))
}
