//go:build cgo

package main

import (
	"fmt"
	"io"
	"os"
	"runtime"

	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/cmd/memprof/internal/requests"
	"github.com/memprof/memprof/cmd/memprof/internal/screen"
	"github.com/memprof/memprof/hooks/rerun"
	"github.com/memprof/memprof/trace/dataset"
)

// repeat makes the requests of a process again, and prints how they ended. path is the recording's, for errors.
func (o *rerunOptions) repeat(stdout, stderr io.Writer, path string, process *dataset.Process) error {
	runtime.LockOSThread() // CUDA contexts belong to threads
	defer runtime.UnlockOSThread()
	requester, err := rerun.Open()
	if err != nil {
		return exit.Usagef("%w (without a GPU: memprof record --device sim -- memprof rerun %s)", err, path)
	}
	again := requests.New(requester, process, stderr, o.Iterations)
	if o.Log != "" {
		log, err := os.OpenFile(o.Log, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
		if err != nil {
			return exit.Usagef("--log: %w", err)
		}
		defer log.Close()
		again.Log = log
	}
	if err := again.All(process); err != nil {
		return err
	}
	err = concludeRerun(stdout, requester.Through(), &again.Counts, o.JSON)
	if requester.Hooked() {
		requester.Exit(screen.End(stderr, err))
	}
	return err
}

// concludeRerun prints the counts. A request or call that failed, and did not in the recording, is an error.
func concludeRerun(stdout io.Writer, through string, c *requests.Counts, asJSON bool) error {
	if err := printRerun(stdout, through, c, asJSON); err != nil {
		return err
	}
	if c.Refused > 0 {
		return &exit.Error{Code: exit.Violated, Err: fmt.Errorf("%d of %d allocations failed", c.Refused, c.Refused+c.Allocs+c.Others)}
	}
	if c.Failures > 0 {
		return &exit.Error{Code: exit.Violated, Err: fmt.Errorf("%s failed that succeeded in the recording", plain.Counted(c.Failures, "call"))}
	}
	return nil
}

func printRerun(stdout io.Writer, through string, c *requests.Counts, asJSON bool) error {
	if asJSON {
		return screen.JSON(stdout, jsonRerun{through, c.Allocs, c.Frees, c.Refused, c.Iterations, c.Labels, c.Others, c.Failures})
	}
	_, err := fmt.Fprintf(stdout, "repeated through %s: %s, %s, %s\n", through, plain.Counted(c.Allocs, "allocation"), plain.Counted(c.Frees, "free"), plain.Counted(c.Iterations, "iteration"))
	return err
}
