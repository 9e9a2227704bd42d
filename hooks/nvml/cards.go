// Package nvml asks the NVIDIA management library what the GPUs of the machine are and what they have in
// use, and writes that beside a recording while its job runs.
package nvml

import (
	"fmt"
	"math"

	library "github.com/NVIDIA/go-nvml/pkg/nvml"
)

// Cards answers for the GPUs of the machine, in the order of run.json's list.
type Cards interface {
	Count() int
	// Memory returns the bytes in use on a GPU, by all processes, and its size.
	Memory(gpu int) (used, total int64, err error)
	// Processes returns the bytes of each process on a GPU, by process id. In a container the driver may list
	// none, or ids from outside. It is nil if the driver does not list them.
	Processes(gpu int) map[int]int64
	Close()
}

// cards asks the management library.
type cards struct {
	devices []library.Device
	second  bool // the driver reports used memory without what it keeps for itself
}

// Open opens the library. A machine without it is an error.
func Open() (Cards, error) {
	devices, err := open()
	if err != nil {
		return nil, err
	}
	// A call of a function that an old driver lacks would end memprof, so look first.
	second := library.Extensions().LookupSymbol("nvmlDeviceGetMemoryInfo_v2") == nil
	return &cards{devices, second}, nil
}

// open starts the library, which the caller shuts down, and returns the cards of the machine.
func open() ([]library.Device, error) {
	switch ret := library.Init(); ret {
	case library.SUCCESS:
	case library.ERROR_LIBRARY_NOT_FOUND:
		return nil, fmt.Errorf("libnvidia-ml.so.1 is not on this machine")
	default:
		return nil, fmt.Errorf("NVML: %s", library.ErrorString(ret))
	}
	count, ret := library.DeviceGetCount()
	if ret != library.SUCCESS {
		library.Shutdown()
		return nil, fmt.Errorf("NVML: counting devices: %s", library.ErrorString(ret))
	}
	var devices []library.Device
	for i := range count {
		device, ret := library.DeviceGetHandleByIndex(i)
		if ret != library.SUCCESS {
			library.Shutdown()
			return nil, fmt.Errorf("NVML: device %d: %s", i, library.ErrorString(ret))
		}
		devices = append(devices, device)
	}
	return devices, nil
}

func (c *cards) Count() int { return len(c.devices) }

func (c *cards) Memory(gpu int) (used, total int64, err error) {
	if c.second {
		if m, ret := c.devices[gpu].GetMemoryInfo_v2(); ret == library.SUCCESS {
			return int64(m.Used), int64(m.Total), nil
		}
	}
	m, ret := c.devices[gpu].GetMemoryInfo()
	if ret != library.SUCCESS {
		return 0, 0, fmt.Errorf("NVML: used memory of device %d: %s", gpu, library.ErrorString(ret))
	}
	return int64(m.Used), int64(m.Total), nil
}

func (c *cards) Processes(gpu int) map[int]int64 {
	found, ret := c.devices[gpu].GetComputeRunningProcesses()
	if ret != library.SUCCESS {
		return nil
	}
	used := map[int]int64{}
	for _, p := range found {
		if p.UsedGpuMemory <= math.MaxInt64 { // else the driver would not say
			used[int(p.Pid)] += int64(p.UsedGpuMemory)
		}
	}
	return used
}

func (c *cards) Close() { library.Shutdown() }
