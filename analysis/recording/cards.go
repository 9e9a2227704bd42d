package recording

import (
	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/trace/dataset"
)

// nameCards says of each device of a process which card of the run it was. A simulated card
// has no UUID, as every process has one of its own.
func nameCards(result *analysis.Result, info *dataset.Info) {
	for i := range result.Devices {
		device := &result.Devices[i]
		card := CardOf(result, device.Device, info)
		if card < 0 {
			continue
		}
		gpu := &info.GPUs[card]
		device.Total, device.GPU, device.Driver = gpu.Memory, gpu.Name, gpu.Driver
		if device.Pauses != nil {
			device.Pauses.Card = gpu.Memory
		}
		if gpu.UUID != "" {
			device.Card = info.ID + "/" + gpu.UUID
		}
	}
}
