package main

import (
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// gpuState is what the management library says of the machine.
type gpuState struct {
	Driver string // version
	CUDA   int    // newest version the driver speaks, 1000*major + 10*minor
	GPUs   []gpu
}

// gpu is one card. Sizes are bytes.
type gpu struct {
	Name, UUID  string
	Total, Used int64
}

// readNVML asks the management library. It finds cards that CUDA_VISIBLE_DEVICES hides.
func readNVML() (*gpuState, error) {
	if ret := nvml.Init(); ret != nvml.SUCCESS {
		if ret == nvml.ERROR_LIBRARY_NOT_FOUND {
			return nil, fmt.Errorf("libnvidia-ml.so.1 is not on this machine")
		}
		return nil, fmt.Errorf("NVML: %s", nvml.ErrorString(ret))
	}
	defer nvml.Shutdown()
	state := &gpuState{}
	if driver, ret := nvml.SystemGetDriverVersion(); ret == nvml.SUCCESS {
		state.Driver = driver
	}
	if cuda, ret := nvml.SystemGetCudaDriverVersion(); ret == nvml.SUCCESS {
		state.CUDA = cuda
	}
	count, ret := nvml.DeviceGetCount()
	if ret != nvml.SUCCESS {
		return nil, fmt.Errorf("NVML: counting devices: %s", nvml.ErrorString(ret))
	}
	for i := range count {
		device, ret := nvml.DeviceGetHandleByIndex(i)
		if ret != nvml.SUCCESS {
			return nil, fmt.Errorf("NVML: device %d: %s", i, nvml.ErrorString(ret))
		}
		var card gpu
		if name, ret := device.GetName(); ret == nvml.SUCCESS {
			card.Name = name
		}
		if uuid, ret := device.GetUUID(); ret == nvml.SUCCESS {
			card.UUID = uuid
		}
		if memory, ret := device.GetMemoryInfo(); ret == nvml.SUCCESS {
			card.Total, card.Used = int64(memory.Total), int64(memory.Used)
		}
		state.GPUs = append(state.GPUs, card)
	}
	return state, nil
}

// formatCUDA is "13.0" for 13000.
func formatCUDA(version int) string {
	return fmt.Sprintf("%d.%d", version/1000, version%1000/10)
}
