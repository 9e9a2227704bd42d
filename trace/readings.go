package trace

import (
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// ReadingsName is the name of what is no process of the job: the readings of the devices'
// used memory that `memprof record` took beside it, as device_used events. Their parts,
// device-0000.parquet and so on, are written by a [Writer] like those of a process;
// [Open] keeps them out of [Run.Processes].
const ReadingsName = "device"

// Keys of [Info.Options] that say how devices were read and seen.
const (
	OptionReadings = "readings"             // ReadingsOfNVML, ReadingsOfDriver and why, or why there are none
	OptionVisible  = "cuda_visible_devices" // CUDA_VISIBLE_DEVICES of the job, where it was set
)

// ReadingInterval is how often the devices' used memory is read while a job runs.
const ReadingInterval = 100 * time.Millisecond

// Values of [OptionReadings].
const (
	ReadingsOfNVML   = "nvml"
	ReadingsOfDriver = "cuMemGetInfo: " // and why not NVML
)

// isReadings says whether a file is named like a part of the readings. The name must do:
// a damaged part does not tell whose it is, and is no reason to refuse the others.
func isReadings(file string) bool {
	number, ok := strings.CutPrefix(filepath.Base(file), ReadingsName+"-")
	if !ok {
		return false
	}
	number, ok = strings.CutSuffix(number, partSuffix)
	return ok && number != "" && strings.Trim(number, "0123456789") == ""
}

// openReadings finds the readings of a run in its directory; nil without an error where
// there are none. When the recorder was killed their last part is missing, which is no
// error either: they end early then, and say so in their Ending.
func openReadings(dir, runID string) (*Process, error) {
	parts, err := readParts(dir, isReadings)
	if err != nil || len(parts) == 0 {
		return nil, err
	}
	for i := range parts {
		p := &parts[i]
		if p.Process.RunID != runID {
			return nil, &PathError{Path: p.Path, Err: ErrMixedRuns, Detail: "it belongs to run " + p.Process.RunID, Remedy: "put each run into a directory of its own"}
		}
		if p.Process.Name != ReadingsName {
			return nil, &PathError{Path: p.Path, Err: ErrNotTrace, Detail: "its metadata calls it a part of " + p.Process.Name}
		}
	}
	slices.SortFunc(parts, func(a, b Part) int { return a.Number - b.Number })
	if err := checkSequence(dir, parts, true); err != nil {
		return nil, err
	}
	readings := newProcess(parts)
	if last := &parts[len(parts)-1]; !last.Last {
		readings.Ending = Ending{State: StateKilled, Reason: "the recorder died"}
	}
	return readings, nil
}

// takeReadings adds the readings to a run. Trouble with them hinders nothing else.
func (r *Run) takeReadings() {
	r.Readings, r.ReadingsErr = openReadings(r.Dir, r.Info.ID)
	if r.ReadingsErr != nil {
		r.Warnings = append(r.Warnings, "the readings of the devices' used memory: "+r.ReadingsErr.Error())
	}
}

// onlyReadings is the error for a part that holds readings where one of a process is wanted.
func onlyReadings(path string) error {
	return &PathError{Path: path, Err: ErrEmpty, Detail: "it holds the readings of the devices' used memory, and no events of a process",
		Remedy: "give the run's directory"}
}
