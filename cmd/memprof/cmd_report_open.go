//go:build !js

package main

import (
	"context"
	"fmt"
	"io"
	"os/signal"

	"golang.org/x/sys/unix"

	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/report"
	"github.com/memprof/memprof/report/page"
	"github.com/memprof/memprof/report/view"
)

// serve serves the page of a recording on 127.0.0.1, behind a random token, until Ctrl-C.
func (o *reportOptions) serve(ctx context.Context, stdout, stderr io.Writer, path string) error {
	if err := o.validate(); err != nil {
		return err
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
	}, o.Open.port)
	if err != nil {
		return exit.Usagef("--open=%d: %w", o.Open.port, err)
	}
	if _, err := fmt.Fprintln(stdout, address); err != nil {
		return err
	}
	return exit.Input(server.Serve(ctx, listener))
}
