package recording

import (
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/accounting"
	"github.com/memprof/memprof/trace/dataset"
)

// noReadings is why the accounting of a recording without device readings is missing.
const noReadings = "the recording has no device readings"

// readReadings returns what the devices of a run had in use. Without readings, missing says why, and the
// processes may have read for themselves. An error never keeps a run from being analyzed.
func readReadings(path string, run *dataset.Run) (readings *accounting.Readings, missing string) {
	if stat, err := os.Stat(path); err == nil && !stat.IsDir() && !run.Detached {
		return nil, "a part alone has no device readings: give the directory of its run"
	}
	if run.ReadingsErr != nil {
		return nil, "the device readings are damaged: " + run.ReadingsErr.Error()
	}
	if run.Readings == nil {
		switch option := run.Info.Options[dataset.OptionReadings]; {
		case run.Live && option == dataset.ReadingsOfNVML:
			return nil, "while a recording goes on its readings are not complete"
		case option == "":
			return nil, noReadings
		case option == dataset.ReadingsOfNVML: // they were left out; nothing says that they were damaged
			return nil, noReadings + " (no " + dataset.ReadingsName + "-0000.parquet with its parts)"
		default:
			return nil, strings.TrimPrefix(strings.TrimPrefix(option, "none: "), dataset.ReadingsOfDriver)
		}
	}
	reader, err := run.Readings.NewReader()
	if err != nil {
		return nil, err.Error()
	}
	defer reader.Close()
	readings, err = analysis.ReadReadings(reader, run.Readings.Strings().Text)
	if err != nil {
		return nil, "the device readings are damaged: " + err.Error()
	}
	return readings, ""
}

// closeAccounting closes the device accounting of a run: what its processes explain, against what the devices
// had in use.
func closeAccounting(run *dataset.Run, results []*analysis.Result, readings *accounting.Readings, missing string) {
	var members []analysis.Member
	for i, result := range results {
		process := run.Processes[i]
		for j := range result.Devices {
			device := &result.Devices[j]
			members = append(members, analysis.Member{
				Result: result, Device: device, PID: process.PID, GPU: CardOf(result, device.Device, &run.Info),
				Alive: process.Ending.LastAlive, Private: simulated(&run.Info), Unseen: unseen(&run.Info),
			})
		}
	}
	analysis.Reconcile(members, readings, missing)
}

// CardOf returns the index in run.json's list of the GPU that a process knows by an ordinal, or -1. Arenas
// name the GPU by its UUID where the driver does; a slice of a GPU has a UUID that is not in the list, and a
// simulated GPU may have none. Then the ordinal counts the GPUs that CUDA_VISIBLE_DEVICES left visible.
func CardOf(result *analysis.Result, ordinal int32, info *dataset.Info) int {
	named := func(uuid string) int {
		return slices.IndexFunc(info.GPUs, func(gpu dataset.GPU) bool {
			return uuid != "" && strings.HasPrefix(strings.ToLower(gpu.UUID), strings.ToLower(uuid))
		})
	}
	for _, arena := range result.Arenas {
		if gpu := named(arena.Options["uuid"]); arena.Device == ordinal && gpu >= 0 {
			return gpu
		}
	}
	index := int(ordinal)
	if visible, set := info.Options[dataset.OptionVisible]; set {
		list := strings.Split(visible, ",")
		if index < 0 || index >= len(list) {
			return -1
		}
		name := strings.TrimSpace(list[index])
		number, err := strconv.Atoi(name)
		if err != nil {
			return named(name)
		}
		index = number
	}
	if index < 0 || index >= len(info.GPUs) {
		return -1
	}
	return index
}

// unseen is why a recording has no calls of CUDA; "" if it has them.
func unseen(info *dataset.Info) string {
	if info.Options[dataset.OptionBegan] == dataset.BeganInProcess {
		return "the process began the recording itself, which sees no calls of CUDA: what other libraries and the driver take is in the rest"
	}
	return ""
}

// simulated says whether a job ran on the simulated device, whose memory belongs to each process alone.
func simulated(info *dataset.Info) bool {
	return info.Options["device"] == "sim"
}
