package doctor

import (
	"fmt"
	"os"
	"strings"

	"github.com/memprof/memprof/hooks/nvml"

	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/hooks"
	"github.com/memprof/memprof/hooks/rerun"
)

// checkDriver returns a finding about the driver and one for each device.
func checkDriver() []Finding {
	version, devices, err := rerun.Probe(rerun.DriverName)
	if err != nil {
		return []Finding{{
			Check: "driver", Health: Warn, Detail: err.Error(),
			Remedy: "record uses the simulated device; install the NVIDIA driver for a real one",
		}}
	}
	findings := []Finding{{Check: "driver", Health: OK, Detail: fmt.Sprintf("CUDA %s, %s", nvml.FormatCUDA(version), plain.Counted(int64(len(devices)), "device"))}}
	if len(devices) == 0 {
		findings[0].Health = Warn
		findings[0].Remedy = "no device is visible: check CUDA_VISIBLE_DEVICES and nvidia-smi"
	}
	for ordinal, device := range devices {
		findings = append(findings, describeDevice(fmt.Sprintf("device %d", ordinal), device))
	}
	return findings
}

func describeDevice(check string, device rerun.Device) Finding {
	f := Finding{Check: check, Health: OK}
	f.Detail = fmt.Sprintf("%s, %s", device.Name, plain.FormatSize(device.Total))
	if !device.VMM {
		f.Health = Fail
		f.Detail += ", no virtual memory management"
		f.Remedy = "memprof's allocator needs cuMemMap: use a newer driver, or a GPU that is no vGPU without it"
		return f
	}
	f.Detail += fmt.Sprintf(", granularity %s", plain.FormatSize(device.Granularity))
	if device.RDMA {
		f.Detail += ", GPUDirect RDMA"
	}
	return f
}

func checkSimulator(installed *hooks.Installation) Finding {
	f := Finding{Check: "simulator", Health: OK}
	version, devices, err := rerun.Probe(installed.SimDriver())
	switch {
	case err != nil:
		f.Health, f.Detail = Fail, err.Error()
		f.Remedy = "record --device sim will fail; if the cache is on a file system mounted noexec, set MEMPROF_CACHE"
	case len(devices) == 0:
		f.Health, f.Detail = Fail, "no simulated device"
		f.Remedy = "unset MEMPROF_SIM_DEVICES"
	default:
		f.Detail = fmt.Sprintf("CUDA %s, %s", nvml.FormatCUDA(version), describeDevice("", devices[0]).Detail)
	}
	return f
}

// checkNVML returns a finding about the library, and others about what it cannot tell here.
func checkNVML() []Finding {
	f := Finding{Check: "NVML", Health: OK}
	state, err := nvml.Read()
	if err != nil {
		f.Health, f.Detail = Warn, err.Error()
		f.Remedy = "the GPU's name comes from the driver, and used memory is read by the job, for the whole card"
		return []Finding{f}
	}
	f.Detail = fmt.Sprintf("driver %s, %s", state.Driver, plain.Counted(int64(len(state.GPUs)), "GPU"))
	findings := []Finding{f}
	var sliced []string
	for number, gpu := range state.GPUs {
		if gpu.Sliced {
			sliced = append(sliced, fmt.Sprint(number))
		}
	}
	if len(sliced) > 0 {
		findings = append(findings, Finding{Check: "MIG", Health: Warn, Detail: "on, for GPU " + strings.Join(sliced, ", "),
			Remedy: "choose a slice with CUDA_VISIBLE_DEVICES=MIG-…; used memory is read for the whole card"})
	}
	if inContainer() {
		findings = append(findings, Finding{Check: "container", Health: Warn, Detail: "NVML knows processes by their ids outside of this container",
			Remedy: "used memory of the whole card is taken as the job's; start the container with --pid=host to tell processes apart"})
	}
	return findings
}

// inContainer says whether processes have other ids here than on the host. The first PID namespace has the same
// inode on every Linux.
func inContainer() bool {
	const first = "pid:[4026531836]"
	name, err := os.Readlink("/proc/self/ns/pid")
	return err == nil && name != first
}
