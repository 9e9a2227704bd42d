package nvml

import (
	"fmt"

	library "github.com/NVIDIA/go-nvml/pkg/nvml"
)

// State is what the management library says of the machine.
type State struct {
	Driver string // version
	CUDA   int    // newest version the driver speaks, 1000*major + 10*minor
	GPUs   []GPU
}

// GPU is one card. Sizes are bytes.
type GPU struct {
	Name, UUID  string
	Total, Used int64
	Sliced      bool // in MIG mode: a job sees a slice of it
}

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
	if cuda, ret := library.SystemGetCudaDriverVersion(); ret == library.SUCCESS {
		state.CUDA = cuda
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

// FormatCUDA writes a version of CUDA: "13.0" for 13000.
func FormatCUDA(version int) string {
	return fmt.Sprintf("%d.%d", version/1000, version%1000/10)
}
