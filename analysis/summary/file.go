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
	"syscall"

	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/outfile"
)

const (
	// MostBytes is the most that the summary of a process takes.
	MostBytes = 200_000
	// Version is the version of summaries that this package writes, and the newest that it reads.
	Version = 1

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

// Has says whether a process of the run in dir has a summary.
func Has(dir, process string) bool {
	_, err := os.Stat(Path(dir, process))
	return err == nil
}

// Write writes the table into the run in dir, whose directory of summaries it makes if there is none. It joins iterations until
// the file has at most [MostBytes].
func (t *Table) Write(dir string) error {
	text, err := t.encode()
	if err != nil {
		return err
	}
	into := filepath.Join(dir, dataset.SummaryName)
	if err := os.Mkdir(into, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return outfile.Write(Path(dir, t.Process.Name), 0o644, func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
}

func (t *Table) encode() ([]byte, error) {
	t.sort()
	for {
		text, err := t.json()
		if err != nil || len(text) <= MostBytes {
			return text, err
		}
		if !t.join() {
			return nil, fmt.Errorf("the summary of %s takes %d bytes, more than %d: it has %d phases and tags", t.Process.Name, len(text), MostBytes, t.parts())
		}
	}
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
const remedy = "delete it and run `memprof summarize` on the recording"

// Read reads a summary. Its rows are those of the file, in the order in which [Table.Write] writes them. Each has a finite value, and
// iterations from 0 on, if any; no two of the whole process are of the same. The error is a *trace.PathError, or that of the file system.
func Read(path string) (*Table, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
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
	if !stat.Mode().IsRegular() || stat.Size() > mostRead {
		return nil, damaged(fmt.Errorf("not a regular file of at most %d bytes", mostRead))
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
		if err := row.check(); err != nil {
			return fmt.Errorf("row %d: %w", i, err)
		}
		if i == 0 {
			continue
		}
		switch order := t.Rows[i-1].compare(row); {
		case order > 0:
			return fmt.Errorf("row %d is not in order", i)
		case order == 0 && row.Iterations == 0: // a job may number two iterations alike
			return fmt.Errorf("row %d is of the same as the row before", i)
		}
	}
	return nil
}

func (r *Row) check() error {
	switch {
	case math.Abs(r.Value) > mostValue: // JSON has neither NaN nor infinities
		return fmt.Errorf("%s is %v", r.Metric, r.Value)
	case r.Iterations < 0 || r.Iterations > 0 && (r.Iteration < 0 || r.Iteration > math.MaxInt64-r.Iterations):
		return fmt.Errorf("%d iterations from %d on", r.Iterations, r.Iteration)
	}
	return nil
}
