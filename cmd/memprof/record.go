package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/cmd/memprof/internal/screen"
	"github.com/memprof/memprof/hooks"
)

type recordOptions struct {
	Output         string
	Force          bool
	Allocator      string
	Device         string
	SimMemory      sizeFlag
	Growth         growthFlag
	Split          splitFlag
	SmallArenas    sizeFlag
	Trim           trimFlag
	Placement      placementFlag
	Headroom       sizeFlag
	Limit          sizeFlag
	Handle         sizeFlag
	BackupLimit    sizeFlag
	NoTrace        bool
	Serve          bool
	Attribution    string
	Stacks         string
	RequireTensors bool
	Shim           string
	Spool          string
	Quiet          bool

	flags  *pflag.FlagSet // that these options were read from
	placed string         // the directory of the recording as it is shown, once the job is about to start
}

func newRecordCommand() *cobra.Command {
	var opts recordOptions
	cmd := &cobra.Command{
		Use:   "record [flags] -- COMMAND [ARGUMENT]...",
		Short: "Run a job and record its GPU memory",
		Long: `Runs a command in the foreground with memprof's allocator under it and writes
every allocation, free and growth to a directory. The job needs no change: torch
is served through a shim, other libraries are watched where they call CUDA.
Signals are handed on, and trouble of memprof's own ends the recording, never
the job.

How much memory the job takes is decided by --growth, --split, --small-arenas,
--trim and --placement; memprof tune says which suit a job that was recorded.
With --no-trace they hold for a job that is not recorded.`,
		Annotations: exitCodes(recordExits),
		Example: `  memprof record -o run -- python3 train.py --iterations 20
  memprof record --device sim --sim-memory 16GiB -- ./my-cuda-program`,
		Args: someArgs("a command after --"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return opts.run(cmd.ErrOrStderr(), args)
		},
	}
	opts.addFlags(cmd.Flags())
	return completedRecord(cmd)
}

func (o *recordOptions) addFlags(flags *pflag.FlagSet) {
	o.flags = flags
	flags.SetInterspersed(false) // flags behind the command are the command's, with or without --
	flags.StringVarP(&o.Output, "output", "o", "", "write the recording to this `directory` (default memprof-COMMAND-TIME)")
	flags.BoolVar(&o.Force, "force", false, "replace the recording that is in the directory")
	flags.StringVar(&o.Allocator, "allocator", "bfc", "who serves tensors: bfc, memprof's allocator; or native, torch's own, which is only watched")
	flags.StringVar(&o.Device, "device", "auto", "real, sim, or auto: real where there is a GPU, else the simulated one")
	flags.Var(&o.SimMemory, "sim-memory", "memory of each simulated device (default 80GiB)")
	flags.Var(&o.Growth, "growth", "how the main arena grows: double, needed, step:SIZE, or none (takes --limit at once)")
	flags.Var(&o.Split, "split", "when a chunk is split: classic, always, or from that size left over")
	flags.Var(&o.SmallArenas, "small-arenas", "serve requests below this size from arenas of their own (default: none)")
	flags.Var(&o.Trim, "trim", "when free memory goes back to the device: never, iteration, idle:DURATION, or pressure")
	flags.Var(&o.Placement, "placement", "where blocks go: best-fit, or planned, by a plan of iterations that repeat themselves (best with --trim iteration)")
	o.Headroom = 2 << 30
	flags.Var(&o.Headroom, "headroom", "free memory that growth beyond a request leaves to others")
	flags.Var(&o.Limit, "limit", "most memory the main arena may reserve (default: no limit)")
	flags.Var(&o.Handle, "handle", "size of physical handles, the unit in which memory is given back (default: 32MiB, or what the device maps at least, with --growth needed or --trim)")
	flags.Var(&o.BackupLimit, "backup-limit", "most pinned host memory for the content of paused tags (default: no limit)")
	flags.BoolVar(&o.NoTrace, "no-trace", false, "run the job on memprof's allocator without recording it")
	flags.BoolVar(&o.Serve, "serve", false, "serve other programs and libraries too (CUDA, CuPy, JAX; not NCCL, NVSHMEM, UCX)")
	flags.StringVar(&o.Attribution, "attribution", "modules", "what is told of each request: modules (with phases and labels), phases, or none")
	flags.StringVar(&o.Stacks, "stacks", "none", "call stacks of requests: python, or none")
	flags.BoolVar(&o.RequireTensors, "require-tensors", false, "refuse to start when the torch shim cannot be built")
	flags.StringVar(&o.Shim, "shim", "", "use the torch shim in this `file`, as memprof hooks build makes it")
	flags.StringVar(&o.Spool, "spool", "", "keep unfinished events in this `directory` (default: in the recording)")
	flags.BoolVarP(&o.Quiet, "quiet", "q", false, "print only what went wrong")
}

func (o *recordOptions) validate() error {
	err := cmp.Or(
		oneOf("allocator", o.Allocator, "bfc", "native"),
		oneOf("attribution", o.Attribution, "modules", "phases", "none"),
		oneOf("stacks", o.Stacks, "python", "none"),
		oneOf("device", o.Device, "auto", "real", "sim"),
	)
	if err != nil {
		return err
	}
	if o.Stacks == "python" && o.Allocator == "native" {
		return exit.Usagef("--stacks python needs --allocator bfc: torch calls observers with its allocator locked, where stacks cannot be read")
	}
	if o.Growth.growth == bfc.None && o.Limit == 0 {
		return exit.Usagef("--growth none takes all memory at once: it needs a --limit")
	}
	if err := o.validateNative(); err != nil {
		return err
	}
	if o.NoTrace && (o.Output != "" || o.Spool != "" || o.Allocator != "bfc" || o.Stacks != "none") {
		return exit.Usagef("--no-trace records nothing: --output, --spool, --stacks and --allocator native are for recordings")
	}
	if o.SimMemory != 0 && o.Device == "real" {
		return exit.Usagef("--sim-memory is for --device sim")
	}
	return nil
}

// Flags that torch's own allocator takes no notice of: those that only what is served beside it
// heeds, and those that nobody does.
var (
	ofServed       = []string{"growth", "split", "small-arenas", "headroom", "limit", "handle"}
	ofOurAllocator = []string{"trim", "placement", "backup-limit"}
)

// validateNative refuses what the user asked for that nobody would heed.
func (o *recordOptions) validateNative() error {
	if o.Allocator != "native" {
		return nil
	}
	unheeded := ofOurAllocator
	if !o.Serve {
		unheeded = append(slices.Clone(unheeded), ofServed...)
	}
	for _, name := range unheeded {
		if o.flags.Changed(name) {
			return exit.Usagef("--%s is of memprof's allocator, which --allocator native does not use", name)
		}
	}
	return nil
}

// run refuses what the user got wrong before anything is written. What the machine lacks
// is no reason to refuse: the job runs then, recorded as far as that goes.
func (o *recordOptions) run(stderr io.Writer, command []string) error {
	if err := o.validate(); err != nil {
		return err
	}
	if o.Allocator == "native" && isRerun(command) {
		return errNativeRerun
	}
	program, err := findCommand(command[0])
	if err != nil {
		return err
	}
	outlivePipe()
	err = o.record(stderr, program, command)
	var machine unrecordable
	switch {
	case !errors.As(err, &machine):
		return err
	case o.RequireTensors:
		return refuse(fmt.Errorf("--require-tensors: %w", err))
	}
	return runUnrecorded(stderr, program, command, err)
}

// record prepares a recording and runs the job in it. An unrecordable error comes before
// the job is started.
func (o *recordOptions) record(stderr io.Writer, program string, command []string) error {
	if err := tooTight(); err != nil {
		return err
	}
	missed, err := o.foresee(stderr, command)
	if err != nil {
		return err
	}
	if o.Shim != "" {
		if o.Shim, err = existingFile(o.Shim); err != nil {
			return exit.Usagef("--shim: %w", err)
		}
	}
	installed, err := installHook()
	if err != nil {
		return err
	}
	if installed.PassedOver != "" && !o.Quiet {
		fmt.Fprintf(stderr, "memprof: warning: MEMPROF_CACHE is not used: %s\n", installed.PassedOver)
	}
	device, err := chooseDevice(o.Device, int64(o.SimMemory), installed)
	if err != nil {
		return refuse(err)
	}
	if o.RequireTensors && o.Shim == "" {
		if _, err := buildShim(installed, pythonOf(command[0]), stderr); err != nil {
			return err
		}
	}
	if o.NoTrace {
		return o.serveAlone(installed, device, program, command)
	}
	place, err := newPlace(o.Output, o.Spool, command[0], o.Force)
	if err != nil {
		return err
	}
	o.placed = place.shown
	options := o.hookOptions(place.spool, device.simulated)
	rec := &recorder{place: place, device: device, stderr: stderr, quiet: o.Quiet, missed: missed, readable: readable,
		set: hooks.FrameworkSettings(os.Environ(), options)}
	environment := func(base []string, readings bool) []string {
		options.Readings = readings
		return installed.Environment(base, options)
	}
	return rec.run(program, command, o.settings(), environment)
}

// serveAlone makes this process the job, on memprof's allocator and unrecorded.
func (o *recordOptions) serveAlone(installed *hooks.Installation, device *chosenDevice, program string, command []string) error {
	options := o.hookOptions(hooks.NoSpool, device.simulated)
	options.Attribution = "none"
	return startError(program, unix.Exec(program, command, installed.Environment(os.Environ(), options)))
}

// foresee tells what of the command will not be recorded, and returns it. It also tells of
// settings that will not have their effect.
func (o *recordOptions) foresee(stderr io.Writer, command []string) ([]string, error) {
	for _, f := range examineSettings(os.Environ(), o.Allocator) {
		if f.Health != healthOK && !o.Quiet {
			screen.Remark(stderr, "warning", fmt.Sprintf("%s (%s)", f.Detail, f.Remedy))
		}
	}
	look := commandLook{}
	look.command(command, 0)
	var missed []string
	for _, f := range look.findings {
		missed = append(missed, f.Detail)
		if o.RequireTensors && !look.launcher {
			return nil, refuse(fmt.Errorf("--require-tensors: %s (%s)", f.Detail, f.Remedy))
		}
		if look.foreign {
			return nil, unrecordable{errors.New(f.Detail)}
		}
		screen.Remark(stderr, "warning", fmt.Sprintf("%s (%s)", f.Detail, f.Remedy))
	}
	return missed, nil
}

// refuse makes err one that ends record before the job is started.
func refuse(err error) error { return &exit.Error{Code: exit.Usage, Err: err} }

func (o *recordOptions) hookOptions(spool string, simulate bool) hooks.Options {
	return hooks.Options{
		Spool: spool, Allocator: o.Allocator, Growth: o.Growth.String(), Headroom: uint64(o.Headroom), Limit: uint64(o.Limit), Handle: uint64(o.Handle), BackupLimit: uint64(o.BackupLimit),
		Split: o.Split.String(), SmallArenas: uint64(o.SmallArenas), Trim: o.Trim.String(), Placement: o.Placement.String(),
		Serve: o.Serve, Attribution: o.Attribution, Stacks: o.Stacks == "python", Simulate: simulate, SimMemory: uint64(o.SimMemory), Shim: o.Shim,
	}
}

// settings are what run.json keeps of the options.
func (o *recordOptions) settings() map[string]string {
	settings := map[string]string{
		"allocator":   o.Allocator,
		"device":      o.Device,
		"growth":      o.Growth.String(),
		"split":       o.Split.String(),
		"trim":        o.Trim.String(),
		"placement":   o.Placement.String(),
		"headroom":    fmt.Sprint(int64(o.Headroom)),
		"serve":       fmt.Sprint(o.Serve),
		"attribution": o.Attribution,
		"stacks":      o.Stacks,
	}
	for name, size := range map[string]sizeFlag{"limit": o.Limit, "handle": o.Handle, "backup_limit": o.BackupLimit, "small_arenas": o.SmallArenas, "sim_memory": o.SimMemory} {
		if size > 0 {
			settings[name] = fmt.Sprint(int64(size))
		}
	}
	if o.Shim != "" {
		settings["shim"] = o.Shim
	}
	return settings
}

// pythonOf is the Python that a job will use, as far as its command tells.
func pythonOf(command string) string {
	if matched, _ := filepath.Match("python*", filepath.Base(command)); matched {
		return command
	}
	return "python3"
}
