package main

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/cmd/memprof/internal/repeat"
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
  memprof record -o tight --limit 4GiB --preset compact -- memprof rerun run`,
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
	return repeat.Process(stdout, stderr, path, process, repeat.Options{Iterations: o.Iterations, Log: o.Log, JSON: o.JSON})
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
