package dataset

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/outfile"
)

// InfoName is the file in a run's directory that holds [Info].
const InfoName = "run.json"

// Info describes a run as a whole. It is the content of run.json.
type Info struct {
	SchemaVersion int               `json:"schema_version"`
	ID            string            `json:"id"` // random; in every part too
	Version       string            `json:"memprof_version"`
	Command       []string          `json:"command"`
	Host          string            `json:"host"`
	OS            string            `json:"os"`     // "Debian GNU/Linux 12"
	Kernel        string            `json:"kernel"` // "6.1.0-18-amd64"
	GPUs          []GPU             `json:"gpus"`
	Frameworks    []string          `json:"frameworks"`            // "torch 2.11.0+cu130"
	Options       map[string]string `json:"options"`               // of `memprof record`, by name
	Environment   []Variable        `json:"environment,omitempty"` // set by `memprof record` for frameworks
	Start         time.Time         `json:"start"`
	ClockBase     int64             `json:"clock_base_ns"`         // CLOCK_MONOTONIC at time 0 of the events
	ExitStatus    *int              `json:"exit_status,omitempty"` // of the command, 128+n for signal n; nil while it runs, or if unknown
	Problems      []string          `json:"problems,omitempty"`    // of memprof itself, one line each
	Recovered     bool              `json:"recovered,omitempty"`   // completed by `memprof record --finish`
	DurationNS    int64             `json:"duration_ns,omitempty"` // of the command
	Processes     []string          `json:"processes,omitempty"`   // names of those that were recorded; nil while they are recorded, and in runs of older versions
	Source        string            `json:"source,omitempty"`      // "dry run": the job ran without a GPU; empty: it ran on one, or on the simulated one
	Assumptions   []string          `json:"assumptions,omitempty"` // of a dry run, one line each
	Imported      []Imported        `json:"imported,omitempty"`    // only if `memprof import` made the run
	Snapshot      *Snapshot         `json:"snapshot,omitempty"`    // only if the run was written while its job ran
}

// DryRun is the [Info.Source] of a recording whose job ran on fake tensors.
const DryRun = "dry run"

// Snapshot says when and why a run was written while its job ran: it holds the events up to then.
type Snapshot struct {
	Time time.Time `json:"time"`
	Why  string    `json:"why"` // "memprof snapshot", "SIGUSR1", "a request failed", "reserved.peak > 60GiB"
}

// Imported describes a process that `memprof import` made of a file of another tool.
type Imported struct {
	Process string `json:"process"`
	Format  string `json:"format"` // "torch-snapshot"

	// The first Opening events restate what was there before the first entry of the file: so many blocks, and bytes
	// of reserved memory. From event Exact on, ExactNS after the run's start, all sizes of blocks are exact; before it
	// some of those blocks may be up to 1 MiB larger than their events say.
	Opening  int64 `json:"opening_events"`
	Blocks   int64 `json:"blocks_before"`
	Reserved int64 `json:"reserved_before"`
	Exact    int64 `json:"exact_from_event"`
	ExactNS  int64 `json:"exact_from_ns"`
	Odd      int64 `json:"contradictions"` // entries and blocks that contradict others, and were left out

	Iterations string             `json:"iterations,omitempty"` // the annotation whose end ends an iteration
	Settings   *AllocatorSettings `json:"allocator_settings,omitempty"`
}

// AllocatorSettings are those of torch's caching allocator that decide the sizes of blocks.
type AllocatorSettings struct {
	Text       string   `json:"text"` // of PYTORCH_CUDA_ALLOC_CONF, where the file has it
	Expandable bool     `json:"expandable_segments"`
	MaxSplit   int64    `json:"max_split_size"`           // bytes; -1: no limit
	Roundup    []uint64 `json:"roundup_power2_divisions"` // by power of two from 1 MiB on
}

// ImportOf returns how a process was imported; nil if it was recorded.
func (i *Info) ImportOf(process string) *Imported {
	for at := range i.Imported {
		if i.Imported[at].Process == process {
			return &i.Imported[at]
		}
	}
	return nil
}

// Variable is an environment variable that `memprof record` set for the job because it was not set.
type Variable struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	Why   string `json:"why"` // reads on after "because"
}

// GPU is a device as NVML describes it.
type GPU struct {
	Index  int    `json:"index"`
	Name   string `json:"name"`
	UUID   string `json:"uuid,omitempty"`
	Memory int64  `json:"memory"` // bytes
	Driver string `json:"driver,omitempty"`
}

// NewRunID is a random id for [Info.ID]: 16 hexadecimal digits.
func NewRunID() string {
	var b [8]byte
	rand.Read(b[:]) // never fails, by its documentation
	return hex.EncodeToString(b[:])
}

// infoTemp is the name under which a new run.json is written.
func infoTemp(runID string) string { return "." + InfoName + "." + runID + ".tmp" }

// WriteInfo replaces run.json of the run in dir atomically.
func WriteInfo(dir string, info *Info) error {
	out := *info
	out.SchemaVersion = SchemaVersion
	text, err := json.MarshalIndent(&out, "", "  ")
	if err != nil {
		return fmt.Errorf("encode %s: %w", InfoName, err)
	}
	path, temp := filepath.Join(dir, InfoName), infoTemp(info.ID)
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	f, err := outfile.Create(root, temp)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	_, err = f.Write(append(text, '\n'))
	err = errors.Join(err, f.Close())
	if err == nil {
		err = root.Rename(temp, InfoName)
	}
	if err != nil {
		root.Remove(temp)
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// ReadInfo reads run.json of the run in dir and ignores unknown fields. Errors: [trace.ErrNewerSchema],
// [trace.ErrDamaged], and [fs.ErrNotExist] if there is none.
func ReadInfo(dir string) (*Info, error) {
	path := filepath.Join(dir, InfoName)
	text, err := readInfoFile(path)
	if err != nil {
		return nil, err
	}
	info := new(Info)
	err = json.Unmarshal(text, info) // has the version also if a newer one has fields of other types
	if info.SchemaVersion > SchemaVersion {
		return nil, newerSchema(path, info.SchemaVersion)
	}
	if err != nil {
		return nil, damagedInfo(path, err.Error())
	}
	return info, nil
}

func damagedInfo(path, detail string) error {
	return &trace.PathError{Path: path, Err: trace.ErrDamaged, Detail: detail, Remedy: "restore it from a copy, or delete it: the parts can be read without it"}
}

// infoBytes is the largest run.json that is read.
const infoBytes = 64 << 20

func readInfoFile(path string) ([]byte, error) {
	f, err := openFile(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	stat, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !stat.Mode().IsRegular() || stat.Size() > infoBytes {
		return nil, damagedInfo(path, fmt.Sprintf("it is not a regular file of at most %d bytes", infoBytes))
	}
	return io.ReadAll(io.LimitReader(f, infoBytes))
}

// readInfoIfAny is ReadInfo, but returns nil for a missing file.
func readInfoIfAny(dir string) (*Info, error) {
	info, err := ReadInfo(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return info, err
}

func newerSchema(path string, version int) error {
	return &trace.PathError{
		Path: path, Err: trace.ErrNewerSchema,
		Detail: fmt.Sprintf("schema version %d, this memprof knows up to %d", version, SchemaVersion),
		Remedy: "use a newer memprof to read it",
	}
}
