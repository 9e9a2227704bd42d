package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/memprof/memprof/hooks"
	"github.com/memprof/memprof/hooks/rerun"
)

// torchVersions are those the torch shim has been run with, on a GPU.
var torchVersions = []string{"2.11.0"}

func checkHook(installed *hooks.Installation, err error) finding {
	f := finding{Check: "hook", Health: healthOK}
	if err != nil {
		f.Health, f.Detail = healthFail, err.Error()
		f.Remedy = "record needs it; reports and replays work without"
		return f
	}
	f.Detail = installed.Dir
	return f
}

// checkDriver has a line for the driver and one for each device.
func checkDriver() []finding {
	version, devices, err := rerun.Probe(rerun.DriverName)
	if err != nil {
		return []finding{{
			Check: "driver", Health: healthWarn, Detail: err.Error(),
			Remedy: "record uses the simulated device here; install the NVIDIA driver for a real one",
		}}
	}
	findings := []finding{{Check: "driver", Health: healthOK, Detail: fmt.Sprintf("CUDA %s, %s", formatCUDA(version), counted(int64(len(devices)), "device"))}}
	if len(devices) == 0 {
		findings[0].Health = healthWarn
		findings[0].Remedy = "no device is visible: check CUDA_VISIBLE_DEVICES and nvidia-smi"
	}
	for ordinal, device := range devices {
		findings = append(findings, describeDevice(fmt.Sprintf("device %d", ordinal), device))
	}
	return findings
}

func describeDevice(check string, device rerun.Device) finding {
	f := finding{Check: check, Health: healthOK}
	f.Detail = fmt.Sprintf("%s, %s", device.Name, formatSize(device.Total))
	if !device.VMM {
		f.Health = healthFail
		f.Detail += ", no virtual memory management"
		f.Remedy = "the bfc allocator needs cuMemMap and its kin: a newer driver, or a GPU that is not a vGPU without them"
		return f
	}
	f.Detail += fmt.Sprintf(", granularity %s", formatSize(device.Granularity))
	if device.RDMA {
		f.Detail += ", GPUDirect RDMA"
	}
	return f
}

func checkSimulator(installed *hooks.Installation) finding {
	f := finding{Check: "simulator", Health: healthOK}
	version, devices, err := rerun.Probe(installed.SimDriver())
	switch {
	case err != nil:
		f.Health, f.Detail = healthFail, err.Error()
		f.Remedy = "record --device sim will not work: is the cache on a file system mounted noexec? Set MEMPROF_CACHE"
	case len(devices) == 0:
		f.Health, f.Detail = healthFail, "no simulated device"
		f.Remedy = "unset MEMPROF_SIM_DEVICES"
	default:
		f.Detail = fmt.Sprintf("CUDA %s, %s", formatCUDA(version), describeDevice("", devices[0]).Detail)
	}
	return f
}

func checkNVML() finding {
	f := finding{Check: "NVML", Health: healthOK}
	state, err := readNVML()
	if err != nil {
		f.Health, f.Detail = healthWarn, err.Error()
		f.Remedy = "traces will not name the GPU and its driver"
		return f
	}
	f.Detail = fmt.Sprintf("driver %s, %s", state.Driver, counted(int64(len(state.GPUs)), "GPU"))
	return f
}

func checkCompiler() finding {
	candidates := []string{"c++", "g++", "clang++"}
	if own := strings.Fields(os.Getenv("CXX")); len(own) > 0 {
		candidates = own[:1]
	}
	for _, name := range candidates {
		if path, err := exec.LookPath(name); err == nil {
			return finding{Check: "compiler", Health: healthOK, Detail: path}
		}
	}
	return finding{
		Check: "compiler", Health: healthWarn, Detail: "none of " + strings.Join(candidates, ", "),
		Remedy: "torch jobs are watched at driver level only; install g++, or `memprof hooks build` elsewhere and record --shim FILE",
	}
}

// checkTorch asks for the version without importing torch, which takes seconds.
func checkTorch() finding {
	const program = "import importlib.metadata as m, sys; print(sys.executable, m.version('torch'))"
	f := finding{Check: "torch", Health: healthWarn}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "python3", "-c", program).Output()
	if errors.Is(err, exec.ErrNotFound) {
		f.Detail, f.Remedy = "no python3 on PATH", "fine for jobs that are not Python"
		return f
	}
	if err != nil {
		f.Detail, f.Remedy = "python3 has no torch", "fine for jobs without torch; else activate the environment that has it"
		return f
	}
	fields := strings.Fields(string(out))
	if len(fields) != 2 {
		f.Detail = fmt.Sprintf("python3 answered %q", out)
		return f
	}
	f.Detail = fmt.Sprintf("%s of %s", fields[1], fields[0])
	release, _, _ := strings.Cut(fields[1], "+")
	if !slices.Contains(torchVersions, release) {
		f.Remedy = "the shim has been run with torch " + strings.Join(torchVersions, ", ") + "; with others it adapts to what their headers offer"
		return f
	}
	f.Health = healthOK
	return f
}

func checkShimCache(installed *hooks.Installation) finding {
	f := finding{Check: "shim cache", Health: healthOK}
	shims, err := filepath.Glob(filepath.Join(installed.ShimCache, "*.so"))
	if err != nil || len(shims) == 0 {
		f.Detail = "empty: the first torch job compiles a shim into " + installed.ShimCache
		return f
	}
	for i, shim := range shims {
		shims[i] = filepath.Base(shim)
	}
	f.Detail = strings.Join(shims, ", ") + " in " + installed.ShimCache
	return f
}

func checkSpace(check, dir string, wanted uint64) finding {
	f := finding{Check: check, Health: healthOK}
	var stat unix.Statfs_t
	if err := unix.Statfs(dir, &stat); err != nil {
		f.Health, f.Detail = healthWarn, fmt.Sprintf("%s: %v", dir, err)
		return f
	}
	free := stat.Bavail * uint64(stat.Bsize)
	f.Detail = fmt.Sprintf("%s free in %s", formatSize(int64(free)), dir)
	if free < wanted {
		f.Health = healthWarn
		f.Remedy = fmt.Sprintf("less than %s: record to another place with -o or --spool", formatSize(int64(wanted)))
	}
	return f
}

func checkOpenFiles() finding {
	f := finding{Check: "open files", Health: healthOK}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		f.Health, f.Detail = healthWarn, err.Error()
		return f
	}
	f.Detail = fmt.Sprintf("at most %d", limit.Max)
	if limit.Max < 1024 {
		f.Health, f.Remedy = healthWarn, "raise it with ulimit -n 4096"
	}
	return f
}

func checkMapCount() finding {
	const file, usual = "/proc/sys/vm/max_map_count", 65530
	f := finding{Check: "mappings", Health: healthOK}
	text, err := os.ReadFile(file)
	if err != nil {
		f.Health, f.Detail = healthWarn, err.Error()
		return f
	}
	count, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		f.Health, f.Detail = healthWarn, fmt.Sprintf("%s: %v", file, err)
		return f
	}
	f.Detail = fmt.Sprintf("at most %d (vm.max_map_count)", count)
	if count < usual {
		f.Health, f.Remedy = healthWarn, fmt.Sprintf("sysctl vm.max_map_count=%d, or a larger --handle", usual)
	}
	return f
}

func checkPreload(value string) finding {
	f := finding{Check: "LD_PRELOAD", Health: healthOK, Detail: "not set"}
	if value == "" {
		return f
	}
	f.Detail = value
	if strings.Contains(value, "libmemprof.so") {
		f.Health, f.Remedy = healthWarn, "this shell is itself being recorded; the inner recording takes over"
	}
	return f
}

func checkTorchConf(environment []string) finding {
	f := finding{Check: "torch settings", Health: healthOK, Detail: "PYTORCH_CUDA_ALLOC_CONF is not set"}
	for _, entry := range environment {
		name, value, _ := strings.Cut(entry, "=")
		if (name != "PYTORCH_CUDA_ALLOC_CONF" && name != "PYTORCH_ALLOC_CONF") || value == "" {
			continue
		}
		f.Detail = entry
		if strings.Contains(value, "expandable_segments") {
			f.Health = healthWarn
			f.Remedy = "expandable_segments is a setting of torch's own allocator: it has no effect on a recorded job"
		}
	}
	return f
}
