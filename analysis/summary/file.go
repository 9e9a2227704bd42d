package summary

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/outfile"
)

const (
	// MostBytes is the most that the summary of a process takes.
	MostBytes = 200_000
	// Version is the version of summaries that this package writes and reads. Those of version 1 have rows of iterations.
	Version = 2

	mostRead  = 16 << 20 // of a file that is read
	mostValue = 1 << 62  // of a row, in its unit
)

// document is the file of a process.
type document struct {
	Version        int           `json:"summary_version"` // stays first: trace knows the files of a summary by it
	RunID          string        `json:"run_id"`
	Process        string        `json:"process"`
	PID            int           `json:"pid"`
	Rank           int           `json:"rank"`
	LocalRank      int           `json:"local_rank"`
	WorldSize      int           `json:"world_size"`
	LocalWorldSize int           `json:"local_world_size"`
	Command        string        `json:"command"`
	Frameworks     string        `json:"frameworks"`
	Host           string        `json:"host"`
	Events         int64         `json:"events"`
	Dropped        int64         `json:"dropped"`
	State          dataset.State `json:"state"`
	StateReason    string        `json:"state_reason"`
	Cards          []Card        `json:"cards"`
	Rows           []Row         `json:"rows"`
}

// Path is where the summary of a process of the run in dir lies.
func Path(dir, process string) string {
	return filepath.Join(dir, dataset.SummaryName, process+".json")
}

// open opens the summary of a process. A recording may be somebody else's: no link leads out of it.
func open(dir, process string) (*os.File, error) {
	run, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer run.Close()
	return trace.OpenRegular(run, filepath.Join(dataset.SummaryName, process+".json"))
}

// Has says whether a process of the run in dir has a summary.
func Has(dir, process string) bool {
	f, err := open(dir, process)
	if err != nil {
		return false
	}
	f.Close()
	return true
}

// Write writes the table into the run in dir, whose directory of summaries it makes if there is none.
func (t *Table) Write(dir string) error {
	text, err := t.encode()
	if err != nil {
		return err
	}
	run, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer run.Close()
	if err := run.Mkdir(dataset.SummaryName, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if stat, err := run.Lstat(dataset.SummaryName); err != nil {
		return err
	} else if !stat.IsDir() {
		return &trace.PathError{Path: filepath.Join(dir, dataset.SummaryName), Err: trace.ErrDamaged, Detail: "it is not a directory", Remedy: "delete it"}
	}
	into, err := run.OpenRoot(dataset.SummaryName)
	if err != nil {
		return err
	}
	defer into.Close()
	return outfile.WriteIn(into, t.Process.Name+".json", 0o644, func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
}

func (t *Table) encode() ([]byte, error) {
	slices.SortStableFunc(t.Rows, func(a, b Row) int { return a.compare(&b) })
	text, err := t.json()
	if err == nil && len(text) > MostBytes {
		return nil, fmt.Errorf("the summary of %s takes %d bytes, more than %d: it has %d phases and tags", t.Process.Name, len(text), MostBytes, t.parts())
	}
	return text, err
}

// parts counts phases and tags.
func (t *Table) parts() int {
	names := map[[2]string]bool{}
	for i := range t.Rows {
		names[[2]string{t.Rows[i].Phase, t.Rows[i].Tag}] = true
	}
	return len(names)
}

func (t *Table) json() ([]byte, error) {
	p := &t.Process
	text, err := json.Marshal(document{
		Version: Version, RunID: p.RunID, Process: p.Name, PID: p.PID, Rank: p.Rank, LocalRank: p.LocalRank, WorldSize: p.WorldSize,
		LocalWorldSize: p.LocalWorldSize, Command: p.Command, Frameworks: p.Frameworks, Host: t.Host, Events: t.Events, Dropped: t.Dropped,
		State: t.Ending.State, StateReason: t.Ending.Reason, Cards: append([]Card{}, t.Cards...), Rows: append([]Row{}, t.Rows...),
	})
	return append(text, '\n'), err
}

// remedy is for whatever is wrong with a summary: it follows from the recording.
const remedy = "delete it and run `memprof record --finish` on the recording"

// Read reads the summary of a process of the run in dir. Its rows are those of the file, in the order in which [Table.Write] writes them. Each has a finite value, and no
// two are of the same. The error is a *trace.PathError, or that of the file system.
func Read(dir, process string) (*Table, error) {
	path := Path(dir, process)
	f, err := open(dir, process)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	damaged := func(err error) error {
		return &trace.PathError{Path: path, Err: trace.ErrDamaged, Detail: err.Error(), Remedy: remedy}
	}
	stat, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if stat.Size() > mostRead {
		return nil, damaged(fmt.Errorf("more than %d bytes", mostRead))
	}
	text, err := io.ReadAll(io.LimitReader(f, mostRead))
	if err != nil {
		return nil, err
	}
	var d document
	if err := json.Unmarshal(text, &d); err != nil {
		return nil, damaged(err)
	}
	switch {
	case d.Version < 1:
		return nil, damaged(errors.New("no summary_version"))
	case d.Version < Version:
		return nil, damaged(fmt.Errorf("summary version %d, this memprof reads %d", d.Version, Version))
	case d.Version > Version:
		return nil, &trace.PathError{Path: path, Err: trace.ErrNewerSchema, Detail: fmt.Sprintf("summary version %d, this memprof knows up to %d", d.Version, Version), Remedy: "use a newer memprof to read it"}
	}
	t := &Table{
		Process: dataset.ProcessMeta{
			RunID: d.RunID, Name: d.Process, PID: d.PID, Rank: d.Rank, LocalRank: d.LocalRank, WorldSize: d.WorldSize,
			LocalWorldSize: d.LocalWorldSize, Command: d.Command, Frameworks: d.Frameworks,
		},
		Host: d.Host, Events: d.Events, Dropped: d.Dropped, Ending: dataset.Ending{State: d.State, Reason: d.StateReason}, Cards: d.Cards, Rows: d.Rows,
	}
	if err := t.check(); err != nil {
		return nil, damaged(err)
	}
	return t, nil
}

// check fails for cards and rows that no recording leads to.
func (t *Table) check() error {
	devices := map[int32]bool{}
	for _, c := range t.Cards {
		if devices[c.Device] {
			return fmt.Errorf("device %d has two cards", c.Device)
		}
		devices[c.Device] = true
	}
	for i := range t.Rows {
		row := &t.Rows[i]
		if math.Abs(row.Value) > mostValue { // JSON has neither NaN nor infinities
			return fmt.Errorf("row %d: %s is %v", i, row.Metric, row.Value)
		}
		if i == 0 {
			continue
		}
		switch order := t.Rows[i-1].compare(row); {
		case order > 0:
			return fmt.Errorf("row %d is not in order", i)
		case order == 0:
			return fmt.Errorf("row %d is of the same as the row before", i)
		}
	}
	return nil
}
