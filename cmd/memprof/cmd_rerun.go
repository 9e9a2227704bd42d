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

const rerunExits = `0 all requests were answered; 1 some were refused that the recording got,
  or calls failed that it made; 2 no trace, no CUDA, or not its devices;
  3 memprof failed`

type rerunOptions struct {
	Process    string
	Iterations int64
	Log        string
	JSON       bool
}

func newRerunCommand() *cobra.Command {
	var opts rerunOptions
	cmd := &cobra.Command{
		Use:   "rerun TRACE",
		Short: "Make a recording's requests again on this machine",
		Long: `Makes the allocations, frees and marks of one recorded process again, in order
and as fast as they are answered. Under memprof record they go through its
allocator, so that a trace can be recorded anew with other options or on the
simulated device; otherwise through cudaMalloc. The library is $MEMPROF_CUDART,
or libcudart where the loader finds it.

The new recording has what the old one knew: modules, call stacks, labels,
phases, iterations, pools, captures, pauses, key-value caches, and the memory
of other libraries by their names. A request that failed is made again, and
freed at once if it succeeds. The overhead of the driver is measured anew.`,
		Annotations: exitCodes(rerunExits),
		Example: `  memprof record -o again --device sim -- memprof rerun run
  memprof record -o tight --limit 4GiB --growth needed -- memprof rerun run`,
		Args: exactArgs("a trace"),
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
	flags.StringVar(&o.Process, "process", "", "`name` of the process in the trace, as report shows it (default: the first)")
	flags.Int64Var(&o.Iterations, "iterations", 0, "stop after `n` iterations (default: all)")
	flags.StringVar(&o.Log, "log", "", "write a line, address and size, to this `file` after each allocation that succeeded")
	flags.BoolVar(&o.JSON, "json", false, "print JSON")
}

func (o *rerunOptions) run(stdout, stderr io.Writer, path string) error {
	if o.Iterations < 0 {
		return exit.Usagef("--iterations %d: want a positive number", o.Iterations)
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
		return exit.Usagef("%w (on a machine without one: memprof record --device sim -- memprof rerun %s)", err, path)
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

// errNativeRerun is of a rerun below record --allocator native, which sets MEMPROF_ALLOCATOR. The hook would
// serve its requests all the same, and the recording say that another allocator did.
var errNativeRerun = exit.Usagef("rerun has no allocator of its own that --allocator native could observe: record it with --allocator bfc")

// isRerun says whether a command is a rerun of this program, or of one of its name.
func isRerun(command []string) bool {
	if filepath.Base(command[0]) != "memprof" {
		return false
	}
	verb := slices.IndexFunc(command[1:], func(arg string) bool { return !strings.HasPrefix(arg, "-") })
	return verb >= 0 && command[1+verb] == "rerun"
}

// conclude prints what became of the requests. A request that was refused, or a call that failed, is an error.
func (o *rerunOptions) conclude(stdout io.Writer, through string, c *requests.Counts) error {
	if err := o.print(stdout, through, c); err != nil {
		return err
	}
	if c.Refused > 0 {
		return &exit.Error{Code: exit.Violated, Err: fmt.Errorf("%d of %d allocations were refused", c.Refused, c.Refused+c.Allocs+c.Others)}
	}
	if c.Failures > 0 {
		return &exit.Error{Code: exit.Violated, Err: fmt.Errorf("%s of the recording failed", units.Counted(c.Failures, "call"))}
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
	Failed     int64  `json:"failed"`          // calls beside requests
}

func (o *rerunOptions) print(stdout io.Writer, through string, c *requests.Counts) error {
	if o.JSON {
		return screen.JSON(stdout, madeAgain{through, c.Allocs, c.Frees, c.Refused, c.Iterations, c.Labels, c.Others, c.Failures})
	}
	_, err := fmt.Fprintf(stdout, "made again through %s: %s, %s, %s\n", through, units.Counted(c.Allocs, "allocation"), units.Counted(c.Frees, "free"), units.Counted(c.Iterations, "iteration"))
	return err
}
