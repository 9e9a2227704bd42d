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
)

const rerunExits = `0 all requests succeeded; 1 allocations or calls failed that succeeded in the
  recording; 2 no recording, no CUDA, no memprof record, or too few devices;
  3 memprof failed`

type rerunOptions struct {
	Process    string
	Iterations int64
	JSON       bool
}

// jsonRerun is what --json prints.
type jsonRerun struct {
	Allocs     int64 `json:"allocs"`
	Frees      int64 `json:"frees"`
	Refused    int64 `json:"refused"`
	Iterations int64 `json:"iterations"`
	Labels     int64 `json:"labels"`
	Others     int64 `json:"other_libraries"` // allocations of other libraries
	Failed     int64 `json:"failed"`          // calls other than requests
}

func newRerunCommand() *cobra.Command {
	var opts rerunOptions
	cmd := &cobra.Command{
		Use:   "rerun PATH",
		Short: "Repeat a recording's requests on this machine",
		Long: `Repeats the allocations, frees and marks of one recorded process, in order and
as fast as they are answered, through the allocator of memprof record, which has
to run it. So a job can be recorded again with other options or on the simulated
device.

The new recording has modules, call stacks, labels, phases, iterations, pools,
captures, pauses and the memory of other libraries from the old one.
A request that failed is made again, and freed at once if it succeeds. Driver
overhead is measured anew.`,
		Annotations: exitCodes(rerunExits),
		Example: `  memprof record -o again --device sim -- memprof lab rerun run
  memprof record -o tight --limit 4GiB --preset compact -- memprof lab rerun run`,
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
	return o.repeat(stdout, stderr, path, process)
}

// errNativeRerun refuses a rerun under record --allocator native, which sets MEMPROF_ALLOCATOR: the hook would
// serve the requests, and the recording would claim that another allocator did.
var errNativeRerun = exit.Usagef("memprof lab rerun has no allocator that --allocator native could observe: use --allocator bfc")

// isRerun says whether a command is `memprof lab rerun`, by the program's name.
func isRerun(command []string) bool {
	if filepath.Base(command[0]) != "memprof" {
		return false
	}
	verb := slices.IndexFunc(command[1:], func(arg string) bool { return !strings.HasPrefix(arg, "-") })
	return verb >= 0 && len(command) > verb+2 && command[1+verb] == "lab" && command[2+verb] == "rerun"
}
