//go:build cgo

package nvml

import (
	"fmt"
	"math"

	library "github.com/NVIDIA/go-nvml/pkg/nvml"
)

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

// Read asks the library once. It finds cards that CUDA_VISIBLE_DEVICES hides.
func Read() (*State, error) {
	devices, err := open()
	if err != nil {
		return nil, err
	}
	defer library.Shutdown()
	state := &State{}
	if driver, ret := library.SystemGetDriverVersion(); ret == library.SUCCESS {
		state.Driver = driver
	}
	for _, device := range devices {
		state.GPUs = append(state.GPUs, describe(device))
	}
	return state, nil
}

// describe leaves out what the library does not say.
func describe(device library.Device) GPU {
	var gpu GPU
	if name, ret := device.GetName(); ret == library.SUCCESS {
		gpu.Name = name
	}
	if uuid, ret := device.GetUUID(); ret == library.SUCCESS {
		gpu.UUID = uuid
	}
	if memory, ret := device.GetMemoryInfo(); ret == library.SUCCESS {
		gpu.Total, gpu.Used = int64(memory.Total), int64(memory.Used)
	}
	current, _, ret := device.GetMigMode()
	gpu.Sliced = ret == library.SUCCESS && current == library.DEVICE_MIG_ENABLE
	return gpu
}
