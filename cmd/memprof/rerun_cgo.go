//go:build cgo

package main

import (
	"fmt"
	"io"
	"os"
	"runtime"

	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/cmd/memprof/internal/requests"
	"github.com/memprof/memprof/cmd/memprof/internal/screen"
	"github.com/memprof/memprof/hooks/rerun"
	"github.com/memprof/memprof/report/units"
	"github.com/memprof/memprof/trace"
)

// repeat makes the requests of a process again, and prints how they ended.
func (o *rerunOptions) repeat(stdout, stderr io.Writer, path string, process *trace.Process) error {
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
	err = o.conclude(stdout, requester.Through(), &again.Counts)
	if requester.Hooked() {
		requester.Exit(screen.End(stderr, err))
	}
	return err
}

// conclude prints the counts. A request or call that failed, and did not in the recording, is an error.
func (o *rerunOptions) conclude(stdout io.Writer, through string, c *requests.Counts) error {
	if err := o.print(stdout, through, c); err != nil {
		return err
	}
	if c.Refused > 0 {
		return &exit.Error{Code: exit.Violated, Err: fmt.Errorf("%d of %d allocations failed", c.Refused, c.Refused+c.Allocs+c.Others)}
	}
	if c.Failures > 0 {
		return &exit.Error{Code: exit.Violated, Err: fmt.Errorf("%s failed that succeeded in the recording", units.Counted(c.Failures, "call"))}
	}
	return nil
}

// madeAgain is what --json prints.
type madeAgain struct {
	Through    string `json:"through"`
	Allocs     int64  `json:"allocs"`
	Frees      int64  `json:"frees"`
	Refused    int64  `json:"refused"`
	Iterations int64  `json:"iterations"`
	Labels     int64  `json:"labels"`
	Others     int64  `json:"other_libraries"` // allocations of other libraries
	Failed     int64  `json:"failed"`          // calls other than requests
}

func (o *rerunOptions) print(stdout io.Writer, through string, c *requests.Counts) error {
	if o.JSON {
		return screen.JSON(stdout, madeAgain{through, c.Allocs, c.Frees, c.Refused, c.Iterations, c.Labels, c.Others, c.Failures})
	}
	_, err := fmt.Fprintf(stdout, "repeated through %s: %s, %s, %s\n", through, units.Counted(c.Allocs, "allocation"), units.Counted(c.Frees, "free"), units.Counted(c.Iterations, "iteration"))
	return err
}
