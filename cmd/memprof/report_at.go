package main

import (
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/recording"
	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/cmd/memprof/internal/screen"
	"github.com/memprof/memprof/report"
	"github.com/memprof/memprof/trace"
)

// at reports what the devices of each process looked like right after an event of it.
func (o *reportOptions) at(stdout, stderr io.Writer, paths []string) error {
	var moments []*analysis.Moment
	var missing error
	for _, path := range paths {
		run, err := openRun(path)
		if err != nil {
			return err
		}
		warn(stderr, run)
		for _, process := range run.Processes {
			moment, err := momentOf(process, o.At.seq)
			var none *analysis.NoEventError
			if errors.As(err, &none) {
				missing = exit.Usagef("--at: %w", err)
				continue
			}
			if err != nil {
				return exit.Input(err)
			}
			moments = append(moments, moment)
		}
	}
	if len(moments) == 0 && missing != nil {
		return missing
	}
	switch o.Format {
	case "json":
		return report.MomentsJSON(stdout, moments)
	case "markdown":
		return report.MomentsMarkdown(stdout, moments)
	}
	return report.MomentsText(stdout, moments, screen.Options(stdout))
}

func momentOf(process *trace.Process, seq int64) (*analysis.Moment, error) {
	reader, err := process.NewReader()
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	moment, err := analysis.RunTo(reader, recording.OptionsOf(process), seq)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", process.Name, err)
	}
	return moment, nil
}

// eventFlag is the number of an event, from 0, if one is given.
type eventFlag struct {
	seq   int64
	given bool
}

func (f *eventFlag) Set(text string) error {
	seq, err := strconv.ParseInt(text, 10, 64)
	if err != nil || seq < 0 {
		return fmt.Errorf("want the number of an event, from 0")
	}
	f.seq, f.given = seq, true
	return nil
}

func (f *eventFlag) String() string {
	if !f.given {
		return ""
	}
	return strconv.FormatInt(f.seq, 10)
}

func (*eventFlag) Type() string { return "event" }
