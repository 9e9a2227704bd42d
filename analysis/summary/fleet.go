package summary

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/recording"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/dataset"
)

// Most is how many processes are reported and checked by their events; of more, by their tables.
const Most = 64

var partName = regexp.MustCompile(`^(.+)-\d{4,}\.parquet$`)

// Processes returns the names of the processes of the run in dir, without reading a part: from run.json, or from the names
// of files.
func Processes(dir string) ([]string, error) {
	if info, err := dataset.ReadInfo(dir); err == nil && len(info.Processes) > 0 {
		return info.Processes, nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if m := partName.FindStringSubmatch(e.Name()); m != nil && m[1] != dataset.ReadingsName {
			names = append(names, m[1])
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// WriteAll analyzes a run, which was opened at path, and writes the table of each of its processes. It returns how many.
func WriteAll(path string, run *dataset.Run) (int, error) {
	analyzed, err := recording.Analyze(path, run, analysis.Options{})
	if err != nil {
		return 0, err
	}
	for i, result := range analyzed.Results {
		if err := New(run.Processes[i], run.Info.Host, result).Write(run.Dir); err != nil {
			return i, err
		}
	}
	return len(analyzed.Results), nil
}

// Each reads the tables of the runs in dirs and calls visit with each, in order of the directories and the names of processes. A
// process without a table is an error.
func Each(dirs []string, visit func(dir string, t *Table) error) error {
	for _, dir := range dirs {
		names, err := Processes(dir)
		if err != nil {
			return err
		}
		for _, name := range names {
			t, err := readOf(dir, name)
			if err != nil {
				return err
			}
			if err := visit(dir, t); err != nil {
				return err
			}
		}
	}
	return nil
}

// readOf reads the table of a process. Without one, the error says what writes it.
func readOf(dir, process string) (*Table, error) {
	t, err := Read(dir, process)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &trace.PathError{Path: Path(dir, process), Err: trace.ErrMissingPart,
			Detail: fmt.Sprintf("more than %d processes are read by their summaries", Most), Remedy: fmt.Sprintf("run `memprof record --finish %s`", dir)}
	}
	return t, err
}

// Recordings are the runs in dirs with what their tables say, for gates: results have the values of metrics and what
// ranks are compared by, and no more.
func Recordings(dirs []string) ([]recording.Recording, error) {
	var all []recording.Recording
	at := map[string]int{}
	for _, dir := range dirs {
		if _, again := at[dir]; again {
			continue
		}
		run := &dataset.Run{Dir: dir}
		info, err := dataset.ReadInfo(dir)
		switch {
		case err == nil:
			run.Info = *info
		case !errors.Is(err, fs.ErrNotExist):
			return nil, err
		}
		at[dir] = len(all)
		all = append(all, recording.Recording{Path: filepath.Clean(dir), Run: run})
	}
	err := Each(dirs, func(dir string, t *Table) error {
		r := &all[at[dir]]
		if id := r.Run.Info.ID; id != "" && id != t.Process.RunID {
			return &trace.PathError{Path: Path(dir, t.Process.Name), Err: trace.ErrMixedRuns, Detail: "it belongs to run " + t.Process.RunID, Remedy: remedy}
		}
		r.Run.Processes = append(r.Run.Processes, &dataset.Process{ProcessMeta: t.Process, Events: t.Events, Ending: t.Ending})
		r.Results = append(r.Results, t.Result(dir, &r.Run.Info))
		return nil
	})
	return all, err
}

// Result is what the table says, as the result of an analysis has it.
func (t *Table) Result(path string, info *dataset.Info) *analysis.Result {
	r := &analysis.Result{Process: t.Process.Name, Events: t.Events, Recovered: t.Ending.State != dataset.StateClosed}
	r.Job = &analysis.Job{Path: path, Command: info.Command, Host: t.Host, Start: info.Start, Exit: info.ExitStatus, Frameworks: info.Frameworks, Version: info.Version, Dropped: t.Dropped}
	index := map[int32]int{}
	for i := range t.Rows {
		row := &t.Rows[i]
		if row.Category != "" {
			continue
		}
		at, known := index[row.Device]
		if !known {
			at = len(r.Devices)
			index[row.Device] = at
			r.Devices = append(r.Devices, analysis.DeviceResult{Device: row.Device, Stored: &analysis.Stored{
				Device: map[string]analysis.StoredValue{}, Tags: map[string]map[string]analysis.StoredValue{}, Phases: map[string]map[string]analysis.StoredValue{},
			}})
		}
		put(r.Devices[at].Stored, row)
		if row.Phase == "" && row.Tag == "" && row.Metric == Allocations {
			r.Devices[at].Allocs = int64(row.Value)
		}
	}
	for i := range r.Devices {
		d := &r.Devices[i]
		for _, c := range t.Cards {
			if c.Device == d.Device {
				d.Card, d.GPU, d.Driver = c.Card, c.GPU, c.Driver
			}
		}
	}
	return r
}

// put stores the value of a row.
func put(s *analysis.Stored, row *Row) {
	into := s.Device
	for _, part := range []struct {
		name string
		of   map[string]map[string]analysis.StoredValue
	}{{row.Phase, s.Phases}, {row.Tag, s.Tags}} {
		if part.name == "" {
			continue
		}
		if part.of[part.name] == nil {
			part.of[part.name] = map[string]analysis.StoredValue{}
		}
		into = part.of[part.name]
	}
	into[row.Metric] = analysis.StoredValue{Value: row.Value, Seq: row.Seq}
}
