//go:build !js

package main

import (
	"context"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/cmd/memprof/internal/screen"
	"github.com/memprof/memprof/cmd/memprof/internal/top"
	"github.com/memprof/memprof/trace/dataset"
)

const topExits = `0 the recording ended, or Ctrl-C; 2 wrong usage, or no recording there;
  3 memprof failed`

type topOptions struct {
	Interval time.Duration
	Once     bool
	JSON     bool
	Listen   string
}

func newTopCommand() *cobra.Command {
	var opts topOptions
	cmd := &cobra.Command{
		Use:   "top PATH [URL ...]",
		Short: "Show the memory of a job while it is being recorded",
		Long: `Shows, from a second terminal, the GPU memory of a job that is being recorded:
requested, provided and reserved bytes of each device, reserved memory since
the start, where the memory is by category, as report has it for the peak, the
current phase and iteration (counted from 0; of a process that has ended, its
last), events a second, and what NVML says the cards have in use. If there are
more than two processes, each has two lines. Arenas are in --json. It only
reads the recording. It ends when the recording does, or at Ctrl-C; of a
recording that has ended it prints what memprof report does.

URLs are those of serving engines, vLLM or SGLang: top asks for their /metrics
at each interval, and shows how much of the KV cache is taken, how many tokens
of prompts the prefix cache had, and the requests that run and wait.

With --listen it also serves these numbers as OpenMetrics, for Prometheus.

On a terminal the screen is redrawn at each interval. Elsewhere top prints a
line for each process, or with --json one object a line.`,
		Annotations: exitCodes(topExits),
		Example: `  memprof top run
  memprof top run --once --json | jq '.processes[].devices[].reserved'
  memprof top run http://127.0.0.1:8000
  memprof top run --listen 127.0.0.1:9400 > /dev/null`,
		Args: someArgs("the directory of a recording"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return opts.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), args[0], args[1:])
		},
	}
	opts.addFlags(cmd.Flags())
	cmd.ValidArgsFunction = completeDirectories
	return cmd
}

func (o *topOptions) addFlags(flags *pflag.FlagSet) {
	flags.DurationVar(&o.Interval, "interval", time.Second, "`time` between two updates, like 500ms")
	flags.BoolVar(&o.Once, "once", false, "print once and end")
	flags.StringVar(&o.Listen, "listen", "", "serve OpenMetrics at http://`ADDRESS`/metrics, like 127.0.0.1:9400; port 0 is any free one")
	flags.BoolVar(&o.JSON, "json", false, "print JSON, one object for each update")
}

// run watches a recording, and engines beside it.
func (o *topOptions) run(ctx context.Context, stdout, stderr io.Writer, path string, engines []string) error {
	if o.Interval < top.ShortestInterval {
		return exit.Usagef("--interval %v: want at least %v", o.Interval, top.ShortestInterval)
	}
	options := top.Options{Interval: o.Interval, Once: o.Once, JSON: o.JSON, Listen: o.Listen}
	options.Listens = func(url string) { screen.Complain(stderr, "listening at "+url) }
	if len(engines) > top.MostEngines {
		return exit.Usagef("%d engines: want at most %d", len(engines), top.MostEngines)
	}
	for _, engine := range engines {
		u, err := top.EngineURL(engine)
		if err != nil {
			return exit.Usagef("%w", err)
		}
		options.Engines = append(options.Engines, u)
	}
	err := top.Run(ctx, stdout, path, options)
	if err != nil || o.JSON {
		return err
	}
	if run, err := dataset.Open(path); err != nil || run.Info.ExitStatus == nil {
		return nil // it is not over
	}
	return new(reportOptions).run(stdout, stderr, []string{path})
}
