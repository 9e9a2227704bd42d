package main

import (
	"context"
	"fmt"
	"io"
	"os/signal"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/report"
	"github.com/memprof/memprof/report/page"
	"github.com/memprof/memprof/report/view"
)

func newViewCommand() *cobra.Command {
	port := 0
	cmd := &cobra.Command{
		Use:   "view PATH",
		Short: "Show any event of a recording in the browser",
		Long: `Serves the page of ` + "`memprof report --html`" + ` on this machine and prints its
address. The page on disk has every event of a recording of up to a million, and
of a longer one the first, peak, last and worst iterations. Here any event of
any recording can be pinned: the page asks memprof, which reads the recording.
A coarse picture comes at once; the whole page follows when the recording has
been read.

The address is 127.0.0.1 and has a random token, without which nothing is
answered. On another machine, forward the port: ssh -L 8000:127.0.0.1:8000 HOST
with --port 8000. Ctrl-C ends it.`,
		Annotations: exitCodes("0 ended by Ctrl-C; 2 wrong usage, or a missing or damaged recording;\n  3 memprof failed"),
		Example: `  memprof view run
  memprof view --port 8000 run`,
		Args: exactArgs("a recording"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runView(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), args[0], port)
		},
	}
	cmd.Flags().IntVar(&port, "port", 0, "serve on this port of 127.0.0.1; 0 takes a free one")
	cmd.ValidArgsFunction = completeDirectories
	return cmd
}

func runView(ctx context.Context, stdout, stderr io.Writer, path string, port int) error {
	if port < 0 || port > 65535 {
		return exit.Usagef("--port %d: want 0 to 65535", port)
	}
	run, err := openViewed(path)
	if err != nil {
		return err
	}
	if len(run.Processes) == 0 {
		return exit.Usagef("%s: the recording has no process: none used CUDA", path)
	}
	ctx, stop := signal.NotifyContext(ctx, unix.SIGINT, unix.SIGTERM)
	defer stop()
	server, listener, address, err := view.Listen(view.Options{
		Run: run, Path: path, Write: report.HTML,
		Page: func() (page.Page, error) { return viewPage(stderr, path, run) },
	}, port)
	if err != nil {
		return exit.Usagef("--port %d: %w", port, err)
	}
	if _, err := fmt.Fprintln(stdout, address); err != nil {
		return err
	}
	return exit.Input(server.Serve(ctx, listener))
}
