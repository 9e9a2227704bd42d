package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/analysis/summary"
	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/cmd/memprof/internal/screen"
	"github.com/memprof/memprof/trace/dataset"
)

const summarizeExits = `0 written; 2 wrong usage, or a missing, damaged or unfinished recording;
  3 memprof failed`

type summarizeOptions struct {
	Missing bool
	JSON    bool
}

func newSummarizeCommand() *cobra.Command {
	var opts summarizeOptions
	cmd := &cobra.Command{
		Use:   "summarize PATH...",
		Short: "Write the summaries of recordings that have none",
		Long: `Analyzes recordings and writes a summary of each process to PATH/summary: at
most 200 KB of JSON, with a row for each iteration, phase, category and metric.
Of more than 64 processes, report and check read only these. memprof record and
memprof recover write them at the end: this is for recordings of earlier
versions, and for those that were copied without. PATH is a recording or a
folder of recordings. memprof help fleet has the fields, and SQL for them.`,
		Annotations: exitCodes(summarizeExits),
		Example: `  memprof summarize run
  memprof summarize --missing nodes/`,
		Args: someArgs("a recording"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return opts.run(cmd.Context(), cmd.OutOrStdout(), args)
		},
	}
	opts.addFlags(cmd.Flags())
	cmd.ValidArgsFunction = completeDirectories
	return cmd
}

func (o *summarizeOptions) addFlags(flags *pflag.FlagSet) {
	flags.BoolVar(&o.Missing, "missing", false, "only recordings that lack a summary")
	flags.BoolVar(&o.JSON, "json", false, "print JSON")
}

// jsonSummarized is what --json prints.
type jsonSummarized struct {
	Recordings []jsonSummarizedRun `json:"recordings"`
}

type jsonSummarizedRun struct {
	Path      string `json:"path"`
	Processes int    `json:"processes"`
}

func (o *summarizeOptions) run(ctx context.Context, stdout io.Writer, paths []string) error {
	paths, err := recordingsIn(paths)
	if err != nil {
		return err
	}
	out := jsonSummarized{Recordings: []jsonSummarizedRun{}}
	for _, path := range paths {
		if err := ctx.Err(); err != nil {
			return err
		}
		if o.Missing {
			if lacks, err := lacksSummary(path); err != nil || !lacks {
				if err != nil {
					return exit.Input(err)
				}
				continue
			}
		}
		run, err := openRun(path)
		if err != nil {
			return err
		}
		if run.Live || run.Detached {
			return exit.Usagef("%s is no recording that has ended: its summary is written at its end", path)
		}
		n, err := summary.WriteAll(path, run)
		if errors.Is(err, fs.ErrPermission) {
			return exit.Usagef("%w (summaries are written into the recording: make it writable, or copy it)", err)
		}
		if err != nil {
			return exit.Input(err)
		}
		out.Recordings = append(out.Recordings, jsonSummarizedRun{path, n})
		if o.JSON {
			continue
		}
		if err := screen.PrintLine(stdout, "%s: %s", filepath.Join(path, dataset.SummaryName), plain.Counted(int64(n), "process")); err != nil {
			return err
		}
	}
	if o.JSON {
		return screen.JSON(stdout, out)
	}
	return nil
}

// lacksSummary says whether a process of a recording has no summary.
func lacksSummary(path string) (bool, error) {
	processes, err := summary.Processes(path)
	if err != nil {
		return false, fmt.Errorf("%s: %w", path, err)
	}
	for _, name := range processes {
		if !summary.Has(path, name) {
			return true, nil
		}
	}
	return false, nil
}
