//go:build !js

package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/memprof/memprof/analysis/accounting"
	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/cmd/memprof/internal/doctor"
	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/cmd/memprof/internal/process"
	"github.com/memprof/memprof/cmd/memprof/internal/recorder"
	"github.com/memprof/memprof/cmd/memprof/internal/screen"
	"github.com/memprof/memprof/hooks"
	"github.com/memprof/memprof/trace/collect"
)

const recordExits = `the job's own code; 128+n if signal n ended it; 126 not executable;
  127 not found; 2 wrong usage: the job was not started`

type recordOptions struct {
	Output         string
	Force          bool
	Allocator      string
	Device         string
	SimMemory      sizeFlag
	Dry            dryRunOptions
	Policy         policyFlags
	BackupLimit    sizeFlag
	NoTrace        bool
	Serve          bool
	Attribution    string
	Stacks         string
	RequireTensors bool
	Shim           string
	MemorySaver    string
	Spool          string
	OnSignal       string
	Ring           sizeFlag
	Quiet          bool
	Finish         finishOptions

	flags  *pflag.FlagSet // that these options were read from
	placed string         // the directory of the recording as it is shown, once the job is about to start
}

func newRecordCommand() *cobra.Command {
	var opts recordOptions
	cmd := &cobra.Command{
		Use:   "record [flags] -- COMMAND [ARGUMENT]...",
		Short: "Run a job and record its GPU memory allocations",
		Long: `Runs a command in the foreground and writes every GPU memory allocation, free
and growth to a directory. The job's code does not change: a shim gives PyTorch
memprof's allocator (--allocator native keeps PyTorch's own and observes it),
and other libraries' calls of the CUDA API are seen and recorded. Signals are
passed on to the job. If memprof itself fails, the recording ends and the job
goes on.

--preset, --limit, --headroom, --handle and --trim are the allocator's policy,
which decides how much memory the job takes. memprof fit recommends one for a
recorded job; --no-trace uses it without recording.

memprof report completes a recording that a crash or a full disk left; --finish
RUN does so without reporting, as in a cluster's epilog.`,
		Annotations: exitCodes(recordExits),
		Example: `  memprof record -o run -- python3 train.py --iterations 20
  memprof record --device sim --sim-memory 16GiB -- ./my-cuda-program
  memprof record --dry-run --card H100-80GB -o plan -- python3 train.py`,
		Args: func(_ *cobra.Command, args []string) error { return opts.Finish.validate(args) },
		RunE: func(cmd *cobra.Command, args []string) error {
			if opts.Finish.Dir != "" {
				if err := opts.validateFinish(); err != nil {
					return err
				}
				return opts.Finish.finish(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), int64(opts.Ring))
			}
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
	flags.BoolVar(&o.Force, "force", false, "replace the recording in the output directory")
	flags.StringVar(&o.Allocator, "allocator", "bfc", "`allocator` of tensors: bfc is memprof's; native is PyTorch's own, which memprof observes")
	flags.StringVar(&o.Device, "device", "auto", "`device`: real, sim, or auto, which is real where there is a GPU and else sim")
	flags.Var(&o.SimMemory, "sim-memory", "memory of each simulated device (default 80GiB)")
	o.Dry.add(flags)
	o.Policy.add(flags)
	flags.Var(&o.BackupLimit, "backup-limit", "most pinned host memory for the content of paused tags (default: no limit)")
	flags.BoolVar(&o.NoTrace, "no-trace", false, "run the job on memprof's allocator and record nothing")
	flags.BoolVar(&o.Serve, "serve", false, "also serve cudaMalloc and other calls of the CUDA API (CuPy, JAX, CUDA programs; not NCCL, NVSHMEM, UCX)")
	flags.StringVar(&o.Attribution, "attribution", "modules", "`what` to record about each allocation: modules (with phases and labels), phases, or none")
	flags.StringVar(&o.Stacks, "stacks", "none", "call `stacks` to record with each allocation: python, with the innermost function of a torch extension, or none")
	flags.BoolVar(&o.RequireTensors, "require-tensors", false, "do not start the job if the torch shim cannot be built")
	flags.StringVar(&o.Shim, "shim", "", "use the torch shim in this `file`, built by memprof doctor hooks build")
	flags.StringVar(&o.MemorySaver, "memory-saver", "auto", "what import torch_memory_saver gives: memprof (memprof's own), installed (the library), or auto: `which` is installed, else memprof's")
	flags.StringVar(&o.Spool, "spool", "", "keep events that are not yet in the recording in this `directory` (default: in the recording)")
	flags.StringVar(&o.OnSignal, "on-signal", "", "write a snapshot, beside the recording, when memprof gets this `signal` (USR1, USR2 or HUP), which is then not passed on to the job")
	flags.Var(&o.Ring, "ring", "keep only the last events of each process, in a spool of this size, and write a snapshot when a request fails")
	flags.BoolVarP(&o.Quiet, "quiet", "q", false, "print problems only")
	o.Finish.addFlags(flags)
}

func (o *recordOptions) validate() error {
	err := cmp.Or(
		oneOf("allocator", o.Allocator, "bfc", "native"),
		oneOf("attribution", o.Attribution, "modules", "phases", "none"),
		oneOf("stacks", o.Stacks, "python", "none"),
		oneOf("device", o.Device, "auto", "real", "sim"),
		oneOf("memory-saver", o.MemorySaver, "auto", "memprof", "installed"),
		o.validateMemorySaver(os.Getenv("LD_PRELOAD")),
		o.validateBackend(os.Getenv),
	)
	if err != nil {
		return err
	}
	if err := cmp.Or(o.validateNative(), o.validateDryRun()); err != nil {
		return err
	}
	if err := o.validateSnapshots(); err != nil {
		return err
	}
	if o.NoTrace && (o.Output != "" || o.Spool != "" || o.Allocator != "bfc" || o.Stacks != "none") {
		return exit.Usagef("--no-trace records nothing: remove --output, --spool, --stacks and --allocator native")
	}
	if o.SimMemory != 0 && o.Device == "real" {
		return exit.Usagef("--sim-memory needs --device sim or auto")
	}
	return nil
}

// snapshotSignals are those that --on-signal takes: none that ends memprof and its job together from a terminal.
var snapshotSignals = map[string]unix.Signal{"USR1": unix.SIGUSR1, "USR2": unix.SIGUSR2, "HUP": unix.SIGHUP}

// signal is the one of --on-signal, or nil.
func (o *recordOptions) signal() os.Signal {
	if signal, ok := snapshotSignals[strings.TrimPrefix(strings.ToUpper(o.OnSignal), "SIG")]; ok {
		return signal
	}
	return nil
}

// validateSnapshots checks the flags that have snapshots written.
func (o *recordOptions) validateSnapshots() error {
	switch {
	case o.OnSignal != "" && o.signal() == nil:
		return exit.Usagef("--on-signal %q: want USR1, USR2 or HUP", o.OnSignal)
	case o.Ring != 0 && int64(o.Ring) < collect.RingLeast:
		return o.shortRing()
	case o.NoTrace && (o.OnSignal != "" || o.Ring != 0):
		return exit.Usagef("--no-trace records nothing: remove --on-signal and --ring")
	}
	return nil
}

func (o *recordOptions) shortRing() error {
	return exit.Usagef("--ring %s: want at least %s", plain.FormatSize(int64(o.Ring)), plain.FormatSize(collect.RingLeast))
}

// validateFinish checks the ring of a recording that processes have begun themselves.
func (o *recordOptions) validateFinish() error {
	switch {
	case o.Ring != 0 && !o.Finish.Wait:
		return exit.Usagef("--ring with --finish needs --wait: it is of processes that are recorded still")
	case o.Ring != 0 && int64(o.Ring) < collect.RingLeast:
		return o.shortRing()
	}
	return nil
}

// validateMemorySaver refuses memprof's torch_memory_saver where it could not pause anything, or would serve the same
// calls as the preloaded library.
func (o *recordOptions) validateMemorySaver(preload string) error {
	switch {
	case o.MemorySaver != "memprof":
		return nil
	case o.Allocator == "native":
		return exit.Usagef("--memory-saver memprof pauses memory of memprof's allocator, which --allocator native does not use: remove one")
	case strings.Contains(preload, "torch_memory_saver"):
		return exit.Usagef("LD_PRELOAD has the library torch_memory_saver (%s), and both would serve the job's regions: take it out, or remove --memory-saver memprof", preload)
	}
	return nil
}

// validateBackend refuses memprof's allocator for a job whose environment chooses another one of PyTorch's, which PyTorch lets nobody replace.
func (o *recordOptions) validateBackend(getenv func(string) string) error {
	const backend = "backend:cudaMallocAsync"
	for _, name := range []string{"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"} {
		if o.Allocator != "native" && strings.Contains(strings.ReplaceAll(getenv(name), " ", ""), backend) {
			return exit.Usagef("%s has %s, which memprof's allocator cannot replace: remove it, or give --allocator native, which records its calls of CUDA", name, backend)
		}
	}
	return nil
}

// flagsOfNative are the flags of our allocator that have no effect with torch's own. What --serve
// serves beside it has some of them.
func flagsOfNative(serve bool) []string {
	names := []string{"backup-limit", "trim"}
	if !serve {
		names = append(names, "preset", "limit", "headroom", "handle")
	}
	return names
}

// validateNative refuses flags that would have no effect.
func (o *recordOptions) validateNative() error {
	if o.Allocator != "native" {
		return nil
	}
	for _, name := range flagsOfNative(o.Serve) {
		if o.flags.Changed(name) {
			return exit.Usagef("--%s has no effect with --allocator native: remove one", name)
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
	program, err := process.FindCommand(command[0])
	if err != nil {
		return err
	}
	process.OutlivePipe()
	err = o.record(stderr, program, command)
	var machine recorder.Unrecordable
	switch {
	case !errors.As(err, &machine):
		return err
	case o.RequireTensors:
		return refuse(fmt.Errorf("--require-tensors: %w", err))
	}
	return recorder.RunUnrecorded(stderr, program, command, err)
}

// record prepares a recording and runs the job in it. A recorder.Unrecordable error comes before
// the job is started.
func (o *recordOptions) record(stderr io.Writer, program string, command []string) error {
	if err := doctor.TooTight(); err != nil {
		return recorder.Unrecordable{Err: err}
	}
	missed, err := o.precheck(stderr, command)
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
	device, err := o.chooseDevice(installed)
	if err != nil {
		return refuse(err)
	}
	if o.RequireTensors && o.Shim == "" {
		if _, err := installed.BuildShim(pythonOf(command[0]), stderr); err != nil {
			return exit.Input(err)
		}
	}
	if o.NoTrace {
		return o.serveAlone(installed, device, program, command)
	}
	place, err := recorder.NewPlace(o.Output, o.Spool, command[0], o.Force)
	if err != nil {
		return err
	}
	o.placed = place.Shown
	options := o.hookOptions(place.Spool, device.Simulated)
	rec := &recorder.Recorder{Place: place, Device: device, Stderr: stderr, Quiet: o.Quiet, Version: version, Missed: missed, Readable: recorder.Readable, DryRun: o.Dry.On,
		Set: hooks.FrameworkSettings(os.Environ(), options), OnSignal: o.signal(), Ring: int64(o.Ring)}
	environment := func(base []string, readings bool) []string {
		options.Readings = readings
		return installed.Environment(base, options)
	}
	return rec.Run(program, command, o.settings(), environment)
}

// serveAlone makes this process the job, on memprof's allocator and unrecorded.
func (o *recordOptions) serveAlone(installed *hooks.Installation, device *recorder.Device, program string, command []string) error {
	options := o.hookOptions(hooks.NoSpool, device.Simulated)
	options.Attribution = "none"
	return process.StartError(program, unix.Exec(program, command, installed.Environment(os.Environ(), options)))
}

// precheck warns of what in the command will not be recorded, which it returns, and of variables that will
// have no effect.
func (o *recordOptions) precheck(stderr io.Writer, command []string) ([]string, error) {
	for _, f := range doctor.Settings(os.Environ(), o.Allocator) {
		if f.Health != doctor.OK && !o.Quiet {
			screen.Remark(stderr, "warning", fmt.Sprintf("%s (%s)", f.Detail, f.Remedy))
		}
	}
	look := doctor.LookAt(command)
	if another, found := look.Another(); found && !o.Quiet {
		screen.Remark(stderr, "warning", fmt.Sprintf("%s (%s)", another.Detail, another.Remedy))
	}
	var missed []string
	for _, f := range look.Findings {
		missed = append(missed, f.Detail)
		if o.RequireTensors && !look.Launcher {
			return nil, refuse(fmt.Errorf("--require-tensors: %s (%s)", f.Detail, f.Remedy))
		}
		if look.Foreign {
			return nil, recorder.Unrecordable{Err: errors.New(f.Detail)}
		}
		screen.Remark(stderr, "warning", fmt.Sprintf("%s (%s)", f.Detail, f.Remedy))
	}
	return missed, nil
}

// refuse makes err one that ends record before the job is started.
func refuse(err error) error { return &exit.Error{Code: exit.Usage, Err: err} }

func (o *recordOptions) hookOptions(spool string, simulate bool) hooks.Options {
	return hooks.Options{
		DryRun: o.Dry.options(), Spool: spool, Allocator: o.Allocator, Policy: o.Policy.policy().HookOptions(), BackupLimit: uint64(o.BackupLimit),
		Serve: o.Serve, Attribution: o.Attribution, Stacks: o.Stacks == "python", Simulate: simulate, SimMemory: uint64(o.SimMemory), Shim: o.Shim, MemorySaver: o.MemorySaver,
	}
}

// settings are what run.json keeps of the options.
func (o *recordOptions) settings() map[string]string {
	settings := o.Policy.policy().Settings()
	settings["allocator"] = o.Allocator
	settings["device"] = o.Device
	settings["serve"] = fmt.Sprint(o.Serve)
	settings["attribution"] = o.Attribution
	settings["stacks"] = o.Stacks
	settings["memory_saver"] = o.MemorySaver
	for name, size := range map[string]sizeFlag{"backup_limit": o.BackupLimit, "sim_memory": o.SimMemory, "ring": o.Ring} {
		if size > 0 {
			settings[name] = fmt.Sprint(int64(size))
		}
	}
	if o.Shim != "" {
		settings["shim"] = o.Shim
	}
	o.Dry.addSettings(settings)
	return settings
}

// pythonOf is the Python that a job will use, as far as its command tells.
func pythonOf(command string) string {
	if matched, _ := filepath.Match("python*", filepath.Base(command)); matched {
		return command
	}
	return "python3"
}

// completedRecord adds what the flags of record can be.
func completedRecord(cmd *cobra.Command) *cobra.Command {
	completeFlags(cmd, map[string]cobra.CompletionFunc{
		"allocator":    words("bfc\tmemprof's allocator", "native\tPyTorch's own, observed"),
		"device":       words("auto", "real", "sim"),
		"card":         words(accounting.CardNames()...),
		"attribution":  words("modules", "phases", "none"),
		"stacks":       words("python", "none"),
		"on-signal":    words("USR1", "USR2", "HUP"),
		"memory-saver": words("auto\tthe library if it is installed", "memprof\tmemprof's own", "installed\tthe library"),
	})
	for _, flag := range []string{"output", "spool"} {
		mustComplete(cmd, flag, completeDirectories)
	}
	completePolicy(cmd, true)
	return cmd
}
