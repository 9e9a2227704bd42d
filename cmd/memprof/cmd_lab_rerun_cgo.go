//go:build cgo

package main

import (
	"fmt"
	"io"
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
		return exit.Usagef("%w: use memprof record -- memprof lab rerun %s, without a GPU with record --device sim", err, path)
	}
	again := requests.New(requester, process, stderr, o.Iterations)
	if err := again.All(process); err != nil {
		return err
	}
	requester.Exit(screen.End(stderr, concludeRerun(stdout, &again.Counts, o.JSON)))
	return nil
}

// concludeRerun prints the counts. A request or call that failed, and did not in the recording, is an error.
func concludeRerun(stdout io.Writer, c *requests.Counts, asJSON bool) error {
	if err := printRerun(stdout, c, asJSON); err != nil {
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

func printRerun(stdout io.Writer, c *requests.Counts, asJSON bool) error {
	if asJSON {
		return screen.JSON(stdout, jsonRerun{c.Allocs, c.Frees, c.Refused, c.Iterations, c.Labels, c.Others, c.Failures})
	}
	_, err := fmt.Fprintf(stdout, "repeated %s, %s, %s\n", plain.Counted(c.Allocs, "allocation"), plain.Counted(c.Frees, "free"), plain.Counted(c.Iterations, "iteration"))
	return err
}
