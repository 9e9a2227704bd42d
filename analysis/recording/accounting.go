package recording

import (
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/trace"
)

// noReadings is said of a recording without device readings.
const noReadings = "the recording has no device readings"

// readReadings is what the devices of a run had in use; without any, missing says why, and
// what the processes read themselves may do.
// Trouble with them never keeps a run from being analyzed.
func readReadings(path string, run *trace.Run) (readings *analysis.Readings, missing string) {
	if stat, err := os.Stat(path); err == nil && !stat.IsDir() {
		return nil, "a part alone has no device readings: give the directory of its run"
	}
	if run.ReadingsErr != nil {
		return nil, "the device readings are damaged: " + run.ReadingsErr.Error()
	}
	if run.Readings == nil {
		switch told := run.Info.Options[trace.OptionReadings]; {
		case run.Live && told == trace.ReadingsOfNVML:
			return nil, "while a recording goes on its readings are not complete"
		case told == "":
			return nil, noReadings
		case told == trace.ReadingsOfNVML: // they were left out; nothing says that they were damaged
			return nil, noReadings + " (no " + trace.ReadingsName + "-0000.parquet beside its parts)"
		default:
			return nil, strings.TrimPrefix(strings.TrimPrefix(told, "none: "), trace.ReadingsOfDriver)
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

// closeBooks holds what the processes of a run explain against the readings.
func closeBooks(run *trace.Run, results []*analysis.Result, readings *analysis.Readings, missing string) {
	var members []analysis.Member
	for i, result := range results {
		process := run.Processes[i]
		for j := range result.Devices {
			device := &result.Devices[j]
			members = append(members, analysis.Member{
				Result: result, Device: device, PID: process.PID, GPU: CardOf(result, device.Device, &run.Info),
				Alive: process.Ending.LastAlive, Private: simulated(&run.Info),
			})
		}
	}
	analysis.CloseBooks(members, readings, missing)
}

// CardOf is the index in run.json's list of the GPU that a process knows by an ordinal, -1
// for none. The arenas name it where the driver does; a part of a GPU has a name that is not
// in the list, and a simulated one may be there without. Otherwise the ordinal counts those
// that CUDA_VISIBLE_DEVICES left the process to see.
func CardOf(result *analysis.Result, ordinal int32, info *trace.Info) int {
	named := func(uuid string) int {
		return slices.IndexFunc(info.GPUs, func(gpu trace.GPU) bool {
			return uuid != "" && strings.HasPrefix(strings.ToLower(gpu.UUID), strings.ToLower(uuid))
		})
	}
	for _, arena := range result.Arenas {
		if gpu := named(arena.Options["uuid"]); arena.Device == ordinal && gpu >= 0 {
			return gpu
		}
	}
	index := int(ordinal)
	if visible, set := info.Options[trace.OptionVisible]; set {
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

// simulated says whether a job ran on the simulated device, the memory of which is the
// process's own.
func simulated(info *trace.Info) bool {
	return info.Options["device"] == "sim"
}
