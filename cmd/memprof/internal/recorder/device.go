package recorder

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"github.com/memprof/memprof/analysis/plain"
	"github.com/memprof/memprof/cmd/memprof/internal/exit"
	"github.com/memprof/memprof/hooks"
	"github.com/memprof/memprof/hooks/nvml"
	"github.com/memprof/memprof/hooks/rerun"
	"github.com/memprof/memprof/trace/dataset"
)

// Device is where a job will run.
type Device struct {
	Simulated bool
	Why       string // for an automatic choice of the simulator: what is wrong with the real driver
	GPUs      []dataset.GPU
}

// ChooseDevice takes the value of --device: real, sim or auto. auto is the real driver if it has a device.
func ChooseDevice(wanted string, simMemory int64, installed *hooks.Installation) (*Device, error) {
	if wanted == "sim" {
		return simulatedDevice(simMemory, installed, "")
	}
	_, devices, err := rerun.Probe(rerun.DriverName)
	if err == nil && len(devices) == 0 {
		err = fmt.Errorf("the CUDA driver shows no device")
	}
	switch {
	case errors.Is(err, rerun.ErrNoGlibc):
		return nil, exit.Usagef("%w", err)
	case err == nil:
		return &Device{GPUs: realGPUs(devices)}, nil
	case wanted == "real":
		return nil, exit.Usagef("--device real: %w (see `memprof doctor`)", err)
	}
	return simulatedDevice(simMemory, installed, err.Error())
}

// realGPUs describes the GPUs by NVML, or by the driver where there is no NVML.
func realGPUs(devices []rerun.Device) []dataset.GPU {
	var gpus []dataset.GPU
	if state, err := nvml.Read(); err == nil {
		for i, card := range state.GPUs {
			gpus = append(gpus, dataset.GPU{Index: i, Name: card.Name, UUID: card.UUID, Memory: card.Total, Driver: state.Driver})
		}
		return gpus
	}
	for i, device := range devices {
		gpus = append(gpus, dataset.GPU{Index: i, Name: device.Name, Memory: device.Total})
	}
	return gpus
}

// simulatedDevice probes the simulator with the memory that the job will have. why says what is wrong with the
// real driver, if it was tried.
func simulatedDevice(memory int64, installed *hooks.Installation, why string) (*Device, error) {
	if memory > 0 {
		defer restore("MEMPROF_SIM_MEMORY")()
		if err := os.Setenv("MEMPROF_SIM_MEMORY", strconv.FormatInt(memory, 10)); err != nil {
			return nil, err
		}
	}
	version, devices, err := rerun.Probe(installed.SimDriver())
	switch {
	case errors.Is(err, rerun.ErrNoGlibc):
		return nil, exit.Usagef("%w", err)
	case err != nil:
		return nil, fmt.Errorf("the simulated device: %w", err)
	}
	chosen := &Device{Simulated: true, Why: why}
	for i, device := range devices {
		chosen.GPUs = append(chosen.GPUs, dataset.GPU{Index: i, Name: device.Name, Memory: device.Total, Driver: "simulated, CUDA " + nvml.FormatCUDA(version)})
	}
	return chosen, nil
}

// restore returns what gives a variable of this process's environment back the value that it has now.
func restore(name string) func() {
	value, exists := os.LookupEnv(name)
	return func() {
		if exists {
			os.Setenv(name, value)
		} else {
			os.Unsetenv(name)
		}
	}
}

func (d *Device) String() string {
	if len(d.GPUs) == 0 {
		return "no device"
	}
	name := fmt.Sprintf("%s, %s", d.GPUs[0].Name, plain.FormatSize(d.GPUs[0].Memory))
	if len(d.GPUs) > 1 {
		name = fmt.Sprintf("%d × %s", len(d.GPUs), name)
	}
	return name
}

// Readable opens the cards whose used memory is to be read, and says where readings come from, for run.json.
// Without NVML the job's processes read for themselves, and found is nil. There are no readings of the
// simulated device: its memory is that of its processes.
func Readable(device *Device) (found nvml.Cards, readings string) {
	if device.Simulated {
		return nil, "none: the device is simulated"
	}
	c, err := nvml.Open()
	if err != nil {
		return nil, dataset.ReadingsOfDriver + err.Error()
	}
	return c, dataset.ReadingsOfNVML
}
