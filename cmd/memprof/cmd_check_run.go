//go:build !js

package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/pflag"

	"github.com/memprof/memprof/analysis/gate"
	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/cmd/memprof/internal/process"
	"github.com/memprof/memprof/cmd/memprof/internal/recorder"
	"github.com/memprof/memprof/cmd/memprof/internal/screen"
)

// addRecordFlags adds the flags of record, for --run. The help of check does not list them. Its own --rank says which ranks count: a dry run
// of one of several is that of rank 0.
func (o *checkOptions) addRecordFlags(flags *pflag.FlagSet) {
	of := pflag.NewFlagSet("record", pflag.ContinueOnError)
	o.Record.addFlags(of)
	of.VisitAll(func(flag *pflag.Flag) {
		if flags.Lookup(flag.Name) == nil {
			flag.Hidden = true
			o.recordFlags = append(o.recordFlags, flag.Name)
		}
	})
	flags.AddFlagSet(of)
}

// checkRunUsage refuses wrong combinations of --run, its command and other flags. dash is the number of
// arguments before the --, or -1 without one.
func (o *checkOptions) checkRunUsage(flags *pflag.FlagSet, paths []string, dash int) error {
	if !o.Run {
		for _, name := range o.recordFlags {
			if flags.Changed(name) {
				return exit.Usagef("--%s is a flag of record: it needs --run", name)
			}
		}
		if 0 <= dash && dash < len(paths) {
			if _, err := os.Stat(paths[dash]); err != nil {
				return exit.Usagef("%s, after --, is no recording: memprof check --run -- COMMAND records a command first", paths[dash])
			}
		}
		return nil
	}
	switch {
	case dash != 0 || len(paths) == 0:
		return exit.Usagef("--run needs a command after -- and takes no recordings: memprof check --run -- COMMAND [ARGUMENT]...")
	case o.List:
		return exit.Usagef("--list and --run: choose one")
	case o.Record.NoTrace:
		return exit.Usagef("--no-trace records nothing that --run could check: remove one")
	}
	return o.Record.validate()
}

// runJob records a command and returns the recording's directory and the job's exit code. An error comes
// from before the start of the job, or is memprof's own. A job that cannot be recorded is not run: there
// would be nothing to check.
func (o *checkOptions) runJob(stderr io.Writer, command []string) (dir string, code int, err error) {
	program, err := process.FindCommand(command[0])
	if err != nil {
		return "", 0, err
	}
	process.OutlivePipe()
	err = o.Record.record(stderr, program, command)
	var machine recorder.Unrecordable
	var coded *exit.Error
	switch {
	case errors.As(err, &machine):
		return "", 0, refuse(fmt.Errorf("the job was not started, since it cannot be recorded: %w", err))
	case o.Record.placed == "": // never started
		return "", 0, err
	case errors.As(err, &coded) && coded.Err == nil: // the job's own code
		return o.Record.placed, coded.Code, nil
	}
	return o.Record.placed, 0, err
}

// withJob records the command and judges the recording. If the job failed, its exit code is the result; the
// gates are judged and printed first, as far as there is a recording.
func (o *checkOptions) withJob(stdout, stderr io.Writer, judge *gate.Judge, gates []gate.Gate, command []string) error {
	if err := gate.PrecheckJob(gates, o.Record.Output, command); err != nil {
		return exit.Input(err)
	}
	resume, err := o.silence(stdout)
	if err != nil {
		return err
	}
	dir, code, err := o.runJob(stderr, command)
	if resumeErr := resume(); err == nil {
		err = resumeErr
	}
	if err != nil {
		return err
	}
	judged := o.judge(stdout, stderr, judge, gates, []string{dir})
	if code == exit.Fine {
		return judged
	}
	if judged != nil {
		screen.Complain(stderr, judged)
	}
	return exit.With(code)
}

// silence keeps the runner of GitHub Actions from obeying commands in the job's output, which memprof's
// annotations share. Until resume is called, the runner obeys only a random word that the job cannot know.
func (o *checkOptions) silence(stdout io.Writer) (resume func() error, err error) {
	if !o.Annotations {
		return func() error { return nil }, nil
	}
	word := "memprof-" + rand.Text()
	if _, err := fmt.Fprintf(stdout, "::stop-commands::%s\n", word); err != nil {
		return nil, err
	}
	return func() error {
		_, err := fmt.Fprintf(stdout, "\n::%s::\n", word) // the job may have left a line open
		return err
	}, nil
}
