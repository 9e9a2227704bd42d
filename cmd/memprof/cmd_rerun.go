package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/cmd/memprof/internal/requests"
	"github.com/memprof/memprof/cmd/memprof/internal/screen"
	"github.com/memprof/memprof/hooks/rerun"
	"github.com/memprof/memprof/report/units"
)

const rerunExits = `0 all requests succeeded; 1 allocations or calls failed that succeeded in the
  recording; 2 no recording, no CUDA, or too few devices; 3 memprof failed`

type rerunOptions struct {
	Process    string
	Iterations int64
	Log        string
	JSON       bool
}

func newRerunCommand() *cobra.Command {
	var opts rerunOptions
	cmd := &cobra.Command{
		Use:   "rerun PATH",
		Short: "Repeat a recording's requests on this machine",
		Long: `Repeats the allocations, frees and marks of one recorded process, in order and
as fast as they are answered. Under memprof record they go through its
allocator, so a job can be recorded again with other options or on the simulated
device; otherwise they go through cudaMalloc of $MEMPROF_CUDART, or of the
libcudart that the loader finds.

The new recording has modules, call stacks, labels, phases, iterations, pools,
captures, pauses, KV caches and the memory of other libraries from the old one.
A request that failed is made again, and freed at once if it succeeds. Driver
overhead is measured anew.`,
		Annotations: exitCodes(rerunExits),
		Example: `  memprof record -o again --device sim -- memprof rerun run
  memprof record -o tight --limit 4GiB --growth needed -- memprof rerun run`,
		Args: exactArgs("a recording"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return opts.run(cmd.OutOrStdout(), cmd.ErrOrStderr(), args[0])
		},
	}
	opts.addFlags(cmd.Flags())
	cmd.ValidArgsFunction = completeDirectories
	mustComplete(cmd, "process", completeProcesses)
	return cmd
}

func (o *rerunOptions) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.Process, "process", "", "`name` of the process to repeat, as in the report (default: the first)")
	flags.Int64Var(&o.Iterations, "iterations", 0, "stop after `N` iterations (default: all)")
	flags.StringVar(&o.Log, "log", "", "write a line (address and size) to this `file` after each allocation that succeeded")
	flags.BoolVar(&o.JSON, "json", false, "print JSON")
}

func (o *rerunOptions) run(stdout, stderr io.Writer, path string) error {
	if o.Iterations < 0 {
		return exit.Usagef("--iterations %d: want 0 (all) or more", o.Iterations)
	}
	if os.Getenv("MEMPROF_ALLOCATOR") == "native" {
		return errNativeRerun
	}
	_, process, err := openProcess(path, o.Process)
	if err != nil {
		return err
	}
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

// errNativeRerun refuses a rerun under record --allocator native, which sets MEMPROF_ALLOCATOR: the hook would
// serve the requests, and the recording would claim that another allocator did.
var errNativeRerun = exit.Usagef("memprof rerun has no allocator that --allocator native could observe: use --allocator bfc")

// isRerun says whether a command is `memprof rerun`, by the program's name.
func isRerun(command []string) bool {
	if filepath.Base(command[0]) != "memprof" {
		return false
	}
	verb := slices.IndexFunc(command[1:], func(arg string) bool { return !strings.HasPrefix(arg, "-") })
	return verb >= 0 && command[1+verb] == "rerun"
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
