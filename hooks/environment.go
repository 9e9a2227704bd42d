package hooks

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// NoSpool as Options.Spool: the hook serves processes and does not record them.
const NoSpool = "-"

// Options are what `memprof record` passes to the hook. Sizes are in bytes.
type Options struct {
	// Spool is the absolute path of the directory that recorded processes write into, or [NoSpool].
	Spool string
	// Allocator serves torch's tensors: "bfc" is memprof's; "native" is torch's own, which the hook
	// observes. Empty is "bfc".
	Allocator string
	// Policy of memprof's allocator, as HookOptions of package bfc writes it; empty is the hook's
	// default.
	Policy string
	// BackupLimit bounds the pinned host memory for the content of paused tags; 0 is none.
	BackupLimit uint64
	// Serve has memprof's arenas serve cudaMalloc and cuMemAlloc of every library.
	Serve bool
	// Attribution is what the Python package records about each allocation: "modules" (and phases
	// and labels), "phases" or "none". Empty is "modules".
	Attribution string
	// Stacks records the Python stack of each allocation.
	Stacks bool
	// Readings has each process read the used memory of its devices. It is for machines without NVML.
	Readings bool

	// Simulate puts the simulated driver in front of a real one.
	Simulate bool
	// SimMemory is the memory of each simulated device; 0 leaves the simulator's default.
	SimMemory uint64

	// DryRun is the card that the job's Python processes see; they run without a GPU. Nil: the job runs as it is.
	DryRun *DryRun

	// MemorySaver is what `import torch_memory_saver` gives in the job: "memprof", "installed" or "auto". Empty is "auto".
	MemorySaver string

	// Shim is the file of a compiled torch shim. Empty: it is taken from the cache, or compiled.
	Shim string
}

// DryRun is what the Python package needs to run a job on fake tensors.
type DryRun struct {
	Card            string
	Memory          int64 // bytes
	Capability      string
	Multiprocessors int
	Nonzero         float64 // share of the elements of a tensor that are assumed to be nonzero
	Triton          bool    // Triton kernels are assumed to write into tensors that are there, and to do nothing else
	Iterations      int     // after which the job is ended if they repeat
	Ranks, Rank     int     // of a distributed job, the processes and the one that runs; 0 ranks: the job says it itself
	Checkpoint      string  // names of modules to checkpoint, separated by commas; "*" stands for one part of a name, or less
	Offload         string  // "optimizer": its state is on the host; else empty
}

// devicesOfHost are the most devices, and ranks, that a host of a distributed job has in a dry run.
const devicesOfHost = 8

// Devices are those of the rank's host.
func (d *DryRun) Devices() int { return min(max(d.Ranks, 1), devicesOfHost) }

// DryRunContext is what a CUDA context and the code of PyTorch take of a card before the first tensor, in bytes: measured
// on an H200 (driver 580.159.04, torch 2.11.0+cu130).
const DryRunContext = 543162368 + 96468992

func (d *DryRun) environment(env []string) []string {
	env = set(env, "MEMPROF_DRY_RUN", fmt.Sprintf("%s,%d,%s,%d", d.Card, d.Memory, d.Capability, d.Multiprocessors))
	env = set(env, "MEMPROF_SIM_CONTEXT", strconv.Itoa(DryRunContext))
	env = set(env, "MEMPROF_DRY_RUN_NONZERO", strconv.FormatFloat(d.Nonzero, 'g', -1, 64))
	env = set(env, "MEMPROF_DRY_RUN_ITERATIONS", strconv.Itoa(d.Iterations))
	env = unset(env, "MEMPROF_DRY_RUN_TRITON")
	if d.Triton {
		env = set(env, "MEMPROF_DRY_RUN_TRITON", "1")
	}
	env = set(env, "MEMPROF_DRY_RUN_CHECKPOINT", d.Checkpoint)
	env = set(env, "MEMPROF_DRY_RUN_OFFLOAD", d.Offload)
	here := d.Devices()
	env = set(env, "MEMPROF_SIM_DEVICES", strconv.Itoa(here))
	if d.Ranks == 0 {
		return env
	}
	for name, number := range map[string]int{ // as torchrun sets them
		"RANK": d.Rank, "WORLD_SIZE": d.Ranks, "LOCAL_RANK": d.Rank % here, "LOCAL_WORLD_SIZE": here, "GROUP_RANK": d.Rank / here, "MASTER_PORT": 29500,
	} {
		env = set(env, name, strconv.Itoa(number))
	}
	return set(env, "MASTER_ADDR", "127.0.0.1")
}

// String is the value of MEMPROF_OPTIONS.
func (o Options) String() string {
	serve := 0
	if o.Serve {
		serve = 1
	}
	text := fmt.Sprintf("serve=%d", serve)
	if o.Policy != "" {
		text = o.Policy + "," + text
	}
	if o.Stacks {
		text += ",stacks=1"
	}
	if o.Readings {
		text += ",readings=1"
	}
	if o.BackupLimit > 0 {
		text += fmt.Sprintf(",backup_limit=%d", o.BackupLimit)
	}
	return text
}

// Environment returns base, a list of NAME=value, with the variables by which a job is recorded.
// Lists of paths get a further first element. [FrameworkSettings] are added, and the setting in
// ASAN_OPTIONS without which a sanitized job refuses preloaded libraries.
func (i *Installation) Environment(base []string, o Options) []string {
	env := slices.Clone(base)
	env = set(env, "MEMPROF_SPOOL", o.Spool)
	env = set(env, "MEMPROF_OPTIONS", o.String())
	env = unset(env, "MEMPROF_ALLOCATOR") // an outer recording may have set it
	if o.Allocator == "native" {
		env = set(env, "MEMPROF_ALLOCATOR", o.Allocator)
	}
	env = unset(env, "MEMPROF_MEMORY_SAVER")
	switch {
	case o.Allocator == "native":
		env = set(env, "MEMPROF_MEMORY_SAVER", "installed") // memprof's would have nothing to pause
	case o.MemorySaver != "" && o.MemorySaver != "auto":
		env = set(env, "MEMPROF_MEMORY_SAVER", o.MemorySaver)
	}
	env = unset(env, "MEMPROF_DRY_RUN")
	if o.DryRun != nil {
		env = o.DryRun.environment(env)
	}
	env = set(env, "MEMPROF_HOOKS", i.Dir)
	env = set(env, "MEMPROF_SHIM_CACHE", i.ShimCache)
	env = preload(env, i.Library())
	env = prepend(env, "PYTHONPATH", i.PythonDir())
	if o.Attribution != "" {
		env = set(env, "MEMPROF_ATTRIBUTION", o.Attribution)
	}
	if o.Shim != "" {
		env = set(env, "MEMPROF_SHIM", o.Shim)
	}
	if o.Simulate {
		folder := i.SimDir()
		if o.DryRun != nil {
			folder = i.SimDriverDir()
		}
		env = prepend(env, "LD_LIBRARY_PATH", folder)
		if o.SimMemory > 0 {
			env = set(env, "MEMPROF_SIM_MEMORY", strconv.FormatUint(o.SimMemory, 10))
		}
	}
	for _, s := range FrameworkSettings(base, o) {
		env = append(env, s.Name+"="+s.Value)
	}
	return tolerateASan(env)
}

// tolerateASan lets programs run that are built with AddressSanitizer. Its runtime ends a process
// in which another library is loaded before it, because of functions that both may define. The
// hook defines none of these.
func tolerateASan(env []string) []string {
	const name, key = "ASAN_OPTIONS", "verify_asan_link_order"
	old, _ := lookup(env, name)
	if strings.Contains(old, key) {
		return env
	}
	if old != "" {
		old += ":"
	}
	return set(env, name, old+key+"=0")
}

// ShimEnvironment returns base with the variables by which the Python package finds and compiles the
// shim. The process is not recorded.
func (i *Installation) ShimEnvironment(base []string) []string {
	env := slices.DeleteFunc(slices.Clone(base), func(entry string) bool { return strings.HasPrefix(entry, "MEMPROF_SPOOL=") })
	env = set(env, "MEMPROF_HOOKS", i.Dir)
	env = set(env, "MEMPROF_SHIM_CACHE", i.ShimCache)
	return prepend(env, "PYTHONPATH", i.PythonDir())
}

func lookup(env []string, name string) (string, bool) {
	// The last of several entries wins, as in os/exec.
	for k := len(env) - 1; k >= 0; k-- {
		if value, ok := strings.CutPrefix(env[k], name+"="); ok {
			return value, true
		}
	}
	return "", false
}

func set(env []string, name, value string) []string {
	return append(unset(env, name), name+"="+value)
}

func unset(env []string, name string) []string {
	return slices.DeleteFunc(env, func(entry string) bool { return strings.HasPrefix(entry, name+"=") })
}

// prepend puts entry before a list of paths. Without a list there is no colon: an empty
// element would mean the current directory.
func prepend(env []string, name, entry string) []string {
	old, _ := lookup(env, name)
	if old == "" {
		return set(env, name, entry)
	}
	return set(env, name, entry+":"+old)
}

// preload puts library first in LD_PRELOAD, and removes that of an outer recording.
func preload(env []string, library string) []string {
	old, _ := lookup(env, "LD_PRELOAD")
	list := []string{library}
	for _, element := range strings.FieldsFunc(old, func(r rune) bool { return r == ':' || r == ' ' }) {
		if filepath.Base(element) != filepath.Base(library) {
			list = append(list, element)
		}
	}
	return set(env, "LD_PRELOAD", strings.Join(list, ":"))
}
