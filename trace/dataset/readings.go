package dataset

import (
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/memprof/memprof/trace"
)

// ReadingsName is the process name of the readings: device_used events with the used memory of the devices,
// which `memprof record` reads while the job runs. A [Writer] writes their parts, device-0000.parquet
// and so on. [Open] stores them in [Run.Readings], not among [Run.Processes].
const ReadingsName = "device"

// SummaryName is the directory in a run's directory that holds the summary of each process: what an analysis found. Package summary
// writes and reads them.
const SummaryName = "summary"

// Keys of [Info.Options] about devices.
const (
	OptionReadings = "readings"             // the source of the readings: ReadingsOfNVML, or ReadingsOfDriver and why not NVML; or why there are none
	OptionVisible  = "cuda_visible_devices" // the job's CUDA_VISIBLE_DEVICES, if it was set
	OptionBegan    = "began"                // BeganInProcess, or not there: `memprof record` ran the job
)

// BeganInProcess is the [OptionBegan] of a recording that processes began themselves (memprof.watch; hooks/python/memprof/_recording.py).
const BeganInProcess = "in the process"

// ReadingInterval is the time from one reading of the devices' used memory to the next.
const ReadingInterval = 100 * time.Millisecond

// Values of [OptionReadings].
const (
	ReadingsOfNVML   = "nvml"
	ReadingsOfDriver = "cuMemGetInfo: " // followed by the reason why not NVML
)

// isReadings says by its name whether a file is a part of the readings. Its content may be damaged, which
// must not prevent reading the processes.
func isReadings(file string) bool {
	number, ok := strings.CutPrefix(filepath.Base(file), ReadingsName+"-")
	if !ok {
		return false
	}
	number, ok = strings.CutSuffix(number, partSuffix)
	return ok && number != "" && strings.Trim(number, "0123456789") == ""
}

// openReadings opens the readings of a run; nil without an error if there are none. If the recorder was
// killed, their last part is missing. That is no error: their Ending is then StateKilled.
func openReadings(dir, runID string) (*Process, error) {
	parts, err := readParts(dir, isReadings)
	if err != nil || len(parts) == 0 {
		return nil, err
	}
	for i := range parts {
		p := &parts[i]
		if p.Process.RunID != runID {
			return nil, mixedRuns(p.Path, "it belongs to run "+p.Process.RunID)
		}
		if p.Process.Name != ReadingsName {
			return nil, &trace.PathError{Path: p.Path, Err: trace.ErrNotTrace, Detail: "by its metadata it is a part of " + p.Process.Name}
		}
	}
	slices.SortFunc(parts, func(a, b Part) int { return a.Number - b.Number })
	if err := checkSequence(dir, parts, true); err != nil {
		return nil, err
	}
	readings := NewProcess(parts)
	if last := &parts[len(parts)-1]; !last.Last {
		readings.Ending = Ending{State: StateKilled, Reason: "memprof record was killed"}
	}
	return readings, nil
}

// AddReadings opens the readings of a run. An error of theirs becomes a warning.
func (r *Run) AddReadings() {
	r.Readings, r.ReadingsErr = openReadings(r.Dir, r.Info.ID)
	if r.ReadingsErr != nil {
		r.Warnings = append(r.Warnings, "cannot read the readings of the devices' used memory: "+r.ReadingsErr.Error())
	}
}
