package doctor

import (
	"fmt"
	"os"
	"strings"

	"github.com/memprof/memprof/hooks/nvml"

	"github.com/memprof/memprof/hooks"
	"github.com/memprof/memprof/hooks/rerun"
	"github.com/memprof/memprof/report/units"
)

// checkDriver has a line for the driver and one for each device.
func checkDriver() []Finding {
	version, devices, err := rerun.Probe(rerun.DriverName)
	if err != nil {
		return []Finding{{
			Check: "driver", Health: Warn, Detail: err.Error(),
			Remedy: "record uses the simulated device here; install the NVIDIA driver for a real one",
		}}
	}
	findings := []Finding{{Check: "driver", Health: OK, Detail: fmt.Sprintf("CUDA %s, %s", nvml.FormatCUDA(version), units.Counted(int64(len(devices)), "device"))}}
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
	f.Detail = fmt.Sprintf("%s, %s", device.Name, units.FormatSize(device.Total))
	if !device.VMM {
		f.Health = Fail
		f.Detail += ", no virtual memory management"
		f.Remedy = "the bfc allocator needs cuMemMap and its kin: a newer driver, or a GPU that is not a vGPU without them"
		return f
	}
	f.Detail += fmt.Sprintf(", granularity %s", units.FormatSize(device.Granularity))
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
		f.Remedy = "record --device sim will not work: is the cache on a file system mounted noexec? Set MEMPROF_CACHE"
	case len(devices) == 0:
		f.Health, f.Detail = Fail, "no simulated device"
		f.Remedy = "unset MEMPROF_SIM_DEVICES"
	default:
		f.Detail = fmt.Sprintf("CUDA %s, %s", nvml.FormatCUDA(version), describeDevice("", devices[0]).Detail)
	}
	return f
}

// checkNVML has a line for the library, and others for what of it will not do.
func checkNVML() []Finding {
	f := Finding{Check: "NVML", Health: OK}
	state, err := nvml.Read()
	if err != nil {
		f.Health, f.Detail = Warn, err.Error()
		f.Remedy = "traces name the GPU as the driver does, and used memory is read from within the job, for the whole card"
		return []Finding{f}
	}
	f.Detail = fmt.Sprintf("driver %s, %s", state.Driver, units.Counted(int64(len(state.GPUs)), "GPU"))
	findings := []Finding{f}
	var sliced []string
	for number, gpu := range state.GPUs {
		if gpu.Sliced {
			sliced = append(sliced, fmt.Sprint(number))
		}
	}
	if len(sliced) > 0 {
		findings = append(findings, Finding{Check: "MIG", Health: Warn, Detail: "on, for GPU " + strings.Join(sliced, ", "),
			Remedy: "a job sees one slice of a card: give it by CUDA_VISIBLE_DEVICES=MIG-…; used memory is read for the whole card"})
	}
	if inContainer() {
		findings = append(findings, Finding{Check: "container", Health: Warn, Detail: "NVML tells processes by their number outside of this container",
			Remedy: "the job's part of used memory is the card's, if nobody else is on it; start the container with --pid=host for exact books"})
	}
	return findings
}

// inContainer says whether processes here have other numbers than on the host. The first
// namespace of process numbers has the same inode on every Linux.
func inContainer() bool {
	const first = "pid:[4026531836]"
	name, err := os.Readlink("/proc/self/ns/pid")
	return err == nil && name != first
}
