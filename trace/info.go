package trace

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

	"github.com/memprof/memprof/trace/outfile"
)

// InfoName is the file in a run's directory that [Info] is kept in.
const InfoName = "run.json"

// Info is what is known of a run as a whole: the contents of run.json.
type Info struct {
	SchemaVersion int               `json:"schema_version"`
	ID            string            `json:"id"` // random; every part carries it too
	Version       string            `json:"memprof_version"`
	Command       []string          `json:"command"`
	Host          string            `json:"host"`
	OS            string            `json:"os"`     // "Debian GNU/Linux 12"
	Kernel        string            `json:"kernel"` // "6.1.0-18-amd64"
	GPUs          []GPU             `json:"gpus"`
	Frameworks    []string          `json:"frameworks"`            // "torch 2.11.0+cu130"
	Options       map[string]string `json:"options"`               // of record, by name
	Environment   []Variable        `json:"environment,omitempty"` // set by record for the sake of frameworks
	Start         time.Time         `json:"start"`
	ClockBase     int64             `json:"clock_base_ns"`         // CLOCK_MONOTONIC at time 0 of the events
	ExitStatus    *int              `json:"exit_status,omitempty"` // of the command, 128+n for a signal; nil while it runs or when not known
	Problems      []string          `json:"problems,omitempty"`    // troubles of memprof's own, one a line
	Recovered     bool              `json:"recovered,omitempty"`   // finished by `memprof recover`
	DurationNS    int64             `json:"duration_ns,omitempty"` // of the command
	Processes     []string          `json:"processes,omitempty"`   // names of those that were recorded; nil while they are, and from an older memprof
}

// Variable is an environment variable that record set for the job, which had none of that name.
type Variable struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	Why   string `json:"why"` // to be read after "because"
}

// GPU is one device as NVML names it.
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

// infoTemp is the name of a run.json in the making.
func infoTemp(runID string) string { return "." + InfoName + "." + runID + ".tmp" }

// WriteInfo writes run.json of the run in dir at once: a reader sees the old one or the
// new one, whole.
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

// ReadInfo reads run.json of the run in dir. Fields it does not know are passed over; a
// file of a newer schema is an [ErrNewerSchema], a missing one an [fs.ErrNotExist].
func ReadInfo(dir string) (*Info, error) {
	path := filepath.Join(dir, InfoName)
	text, err := readInfoFile(path)
	if err != nil {
		return nil, err
	}
	var version struct {
		SchemaVersion int `json:"schema_version"`
	}
	if err := json.Unmarshal(text, &version); err != nil {
		return nil, &PathError{Path: path, Err: ErrDamaged, Detail: err.Error(), Remedy: "restore it from a copy, or delete it: the parts can be read without"}
	}
	if version.SchemaVersion > SchemaVersion {
		return nil, newerSchema(path, version.SchemaVersion)
	}
	info := new(Info)
	if err := json.Unmarshal(text, info); err != nil {
		return nil, &PathError{Path: path, Err: ErrDamaged, Detail: err.Error(), Remedy: "restore it from a copy, or delete it: the parts can be read without"}
	}
	return info, nil
}

// infoBytes is more than any run.json has.
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
		return nil, &PathError{Path: path, Err: ErrDamaged, Detail: fmt.Sprintf("it is no regular file of at most %d bytes", infoBytes), Remedy: "restore it from a copy, or delete it: the parts can be read without"}
	}
	return io.ReadAll(io.LimitReader(f, infoBytes))
}

// readInfoIfAny is ReadInfo with nil for a missing file.
func readInfoIfAny(dir string) (*Info, error) {
	info, err := ReadInfo(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return info, err
}

func newerSchema(path string, version int) error {
	return &PathError{
		Path: path, Err: ErrNewerSchema,
		Detail: fmt.Sprintf("schema version %d, this memprof knows up to %d", version, SchemaVersion),
		Remedy: "use a newer memprof to read it",
	}
}
