package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/memprof/memprof/analysis"
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
			moment, err := momentOf(process, o.At)
			var none *analysis.NoEventError
			if errors.As(err, &none) {
				missing = usagef("--at: %w", err)
				continue
			}
			if err != nil {
				return inputError(err)
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
	return report.MomentsText(stdout, moments, textOptions(stdout))
}

func momentOf(process *trace.Process, seq int64) (*analysis.Moment, error) {
	reader, err := process.NewReader()
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	moment, err := analysis.RunTo(reader, optionsOf(process), seq)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", process.Name, err)
	}
	return moment, nil
}
