package dataset

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/spool"
)

// Run is a recorded run, or one part of one.
type Run struct {
	Dir       string
	Info      Info       // if the run has no run.json, only ID is set
	Processes []*Process // by rank, then by name
	Warnings  []string   // one line each; they do not prevent reading
	Live      bool       // the run is being recorded; see [collect.OpenLive]
	Detached  bool       // Dir is no directory; see [Run.Detach]

	// Readings holds the device_used events that `memprof record` wrote. It is nil if there are none, if they
	// cannot be read (ReadingsErr), and if a single part was opened.
	Readings    *Process
	ReadingsErr error

	partial bool // a single part was opened, or some processes chosen
}

// Choose leaves out the processes that wanted returns false for. No process counts as missing any more: those
// that are left were asked for.
func (r *Run) Choose(wanted func(*Process) bool) {
	r.Processes = slices.DeleteFunc(slices.Clone(r.Processes), func(p *Process) bool { return !wanted(p) })
	r.partial = true
}

// Process is one recorded process and its parts in order.
type Process struct {
	ProcessMeta
	Parts  []Part
	Events int64 // opening rows not counted
	Ending Ending
	Whole  bool // Parts are complete: from part 0, or the first that a ring kept, to the last
	Live   bool // it is being recorded; Parts hold the events up to the moment of opening

	// Advance, if set, is called by each Reader of the process with the number of events of each batch,
	// and with 0 when the Reader is closed. Several Readers may call it concurrently.
	Advance func(events int)

	strings *Strings
	cut     int64 // see CutAfter
}

// CutAfter makes Readers end after the event seq, as if the process had been recorded up to then.
func (p *Process) CutAfter(seq int64) { p.cut = seq + 1 }

// Strings holds the process's context texts; Readers add those that they come to. A text has the same number
// in all parts and for all Readers of the Process.
func (p *Process) Strings() *Strings { return p.strings }

// Checksums returns the recorded checksums of the process: one for each [BlockEvents] events and one for
// the rest; see [Rolling].
func (p *Process) Checksums() []uint64 {
	var sums []uint64
	for i := range p.Parts {
		sums = append(sums, p.Parts[i].sums...)
	}
	return sums
}

// Rolling returns the state of the running checksum before the event Parts[0].FirstSeq. Add the events from
// there on, not the opening rows, to compare with [Process.Checksums].
func (p *Process) Rolling() *Rolling {
	return resumeRolling(p.Parts[0].seed, p.Parts[0].FirstSeq)
}

// Recorded is the number of events that the collector wrote, by the parts' metadata. It differs from Events
// if rows were removed or added.
func (p *Process) Recorded() int64 {
	n := int64(0)
	for i := range p.Parts {
		n += p.Parts[i].written
	}
	return n
}

// Bytes is the size of the process's parts on disk.
func (p *Process) Bytes() int64 {
	n := int64(0)
	for i := range p.Parts {
		n += p.Parts[i].Bytes
	}
	return n
}

// Open opens a run's directory, or a single part of a run, and reads everything but the events. An error of
// the trace is a *[trace.PathError] around an error of this package; other errors are those of the file
// system.
func Open(path string) (*Run, error) {
	stat, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !stat.IsDir() {
		return openOne(path)
	}
	return openDir(path)
}

func openOne(path string) (*Run, error) {
	part, err := readPart(path)
	if err != nil {
		return nil, err
	}
	if part.Process.Name == ReadingsName {
		return nil, &trace.PathError{Path: path, Err: trace.ErrEmpty, Detail: "it holds readings of the devices' used memory, not events of a process", Remedy: "give the run's directory"}
	}
	run := &Run{Dir: filepath.Dir(path), partial: true}
	info, err := readInfoIfAny(run.Dir)
	switch {
	case err == nil && info != nil && info.ID == part.Process.RunID:
		run.Info = *info
	default:
		run.Info.ID = part.Process.RunID
		run.Warnings = append(run.Warnings, fmt.Sprintf("%s: no %s of this run in its directory: host, devices and command are unknown", path, InfoName))
	}
	run.Processes = []*Process{NewProcess([]Part{*part})}
	return run, nil
}

func openDir(dir string) (*Run, error) {
	info, err := readInfoIfAny(dir)
	if err != nil {
		return nil, err
	}
	parts, err := ReadParts(dir)
	if err != nil {
		return nil, err
	}
	// The segments of a process whose last part exists do not count: they only have not been removed.
	ended := map[string]bool{}
	for i := range parts {
		ended[parts[i].Process.Spool] = ended[parts[i].Process.Spool] || parts[i].Last
	}
	if segments, err := spool.Unconverted(dir, ended); err != nil {
		return nil, err
	} else if segments > 0 {
		return nil, &trace.PathError{Path: dir, Err: trace.ErrUnfinished,
			Detail: fmt.Sprintf("%d segments of its spool were not converted", segments),
			Remedy: fmt.Sprintf("run `memprof record --finish %s`", dir)}
	}
	if len(parts) == 0 {
		return nil, noParts(dir, info)
	}
	run := &Run{Dir: dir}
	if info != nil {
		run.Info = *info
	} else {
		run.Info.ID = parts[0].Process.RunID
		run.Warnings = append(run.Warnings, fmt.Sprintf("%s: no %s: host, devices and command are unknown", dir, InfoName))
	}
	owner := InfoName
	if info == nil {
		owner = filepath.Base(parts[0].Path)
	}
	if run.Processes, err = groupParts(dir, parts, owner, run.Info.ID, false); err != nil {
		return nil, err
	}
	for _, m := range run.Missing() {
		run.Warnings = append(run.Warnings, dir+": "+m.String())
	}
	run.AddReadings()
	return run, nil
}

// noParts says why a directory has no part: it is no recording, its job used no GPU, or the parts were lost.
func noParts(dir string, info *Info) error {
	switch {
	case info == nil:
		return &trace.PathError{Path: dir, Err: trace.ErrEmpty, Detail: "no .parquet part", Remedy: "give a directory that `memprof record -o` wrote"}
	case len(info.Processes) == 0:
		return &trace.PathError{Path: dir, Err: trace.ErrEmpty, Detail: "the run has no events: no process of it used a GPU", Remedy: "`memprof doctor -- COMMAND` lists what may be missing"}
	}
	const named = 4
	names := strings.Join(info.Processes[:min(len(info.Processes), named)], ", ")
	if more := len(info.Processes) - named; more > 0 {
		names += fmt.Sprintf(" and %d more", more)
	}
	return &trace.PathError{Path: dir, Err: trace.ErrMissingPart, Detail: fmt.Sprintf("%s lists %s, and no .parquet part is there", InfoName, names), Remedy: "copy the parts again"}
}

// ReadParts reads the metadata of the complete parts in dir, except the readings'.
func ReadParts(dir string) ([]Part, error) {
	return readParts(dir, func(file string) bool { return !isReadings(file) })
}

// readParts reads the metadata of the complete parts in dir for whose file names wanted returns true.
func readParts(dir string, wanted func(file string) bool) ([]Part, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var parts []Part
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), partSuffix) || !wanted(e.Name()) {
			continue
		}
		p, err := readPart(filepath.Join(dir, e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue // a ring has removed it since
		}
		if err != nil {
			return nil, err
		}
		parts = append(parts, *p)
	}
	return parts, nil
}

// NewProcess is the process that consecutive parts belong to.
func NewProcess(parts []Part) *Process {
	last := &parts[len(parts)-1]
	p := &Process{
		ProcessMeta: last.Process, Parts: parts, Ending: last.Ending,
		Whole: (parts[0].Number == 0 || parts[0].Dropped > 0) && last.Last, strings: NewStrings(),
	}
	for i := range parts {
		p.Events += parts[i].Events
	}
	return p
}

// OpenUnfinished opens the processes of the run in dir that have complete parts, of which the last may be missing.
func OpenUnfinished(dir, runID string) ([]*Process, error) {
	parts, err := ReadParts(dir)
	if err != nil {
		return nil, err
	}
	return groupParts(dir, parts, InfoName, runID, true)
}

// groupParts sorts parts by process. It fails if one is missing, or belongs to another run than owner does; with more, the
// last ones of a process may be missing.
func groupParts(dir string, parts []Part, owner, runID string, more bool) ([]*Process, error) {
	for i := range parts {
		if id := parts[i].Process.RunID; id != runID {
			return nil, mixedRuns(parts[i].Path, fmt.Sprintf("it belongs to run %s, %s to run %s", id, owner, runID))
		}
	}
	slices.SortFunc(parts, func(a, b Part) int {
		return cmp.Or(CompareProcesses(&a.Process, &b.Process), cmp.Compare(a.Number, b.Number))
	})
	var processes []*Process
	for len(parts) > 0 {
		n := 1
		for n < len(parts) && parts[n].Process.Name == parts[0].Process.Name {
			n++
		}
		of := fromRing(parts[:n])
		if err := checkSequence(dir, of, more); err != nil {
			return nil, err
		}
		processes = append(processes, NewProcess(slices.Clone(of)))
		parts = parts[n:]
	}
	return processes, nil
}

func mixedRuns(path, detail string) error {
	return &trace.PathError{Path: path, Err: trace.ErrMixedRuns, Detail: detail, Remedy: "put each run into a directory of its own"}
}

// fromRing leaves out parts that a later one supersedes: a ring removes them once that is complete.
func fromRing(parts []Part) []Part {
	for i := len(parts) - 1; i > 0; i-- {
		if parts[i].Dropped > 0 {
			return parts[i:]
		}
	}
	return parts
}

// Dropped is how many events a ring dropped before the first one that Parts hold; 0 for a process that is recorded from its
// start. The opening rows restate what was in force then.
func (p *Process) Dropped() int64 {
	if len(p.Parts) == 0 {
		return 0
	}
	return p.Parts[0].Dropped
}

// CompareProcesses sorts by rank; processes without a rank come last.
func CompareProcesses(a, b *ProcessMeta) int {
	return cmp.Or(cmp.Compare(uint(a.Rank), uint(b.Rank)), cmp.Compare(a.Name, b.Name))
}

func checkSequence(dir string, parts []Part, more bool) error {
	name := parts[0].Process.Name
	missing := func(number int, why string) error {
		return &trace.PathError{Path: filepath.Join(dir, fmt.Sprintf("%s-%04d%s", name, number, partSuffix)), Err: trace.ErrMissingPart,
			Detail: why, Remedy: "copy it from the machine of the recording, or give single parts instead of the directory"}
	}
	next, first := int64(0), 0
	if parts[0].Dropped > 0 {
		next, first = parts[0].FirstSeq, parts[0].Number
	}
	for i := range parts {
		p := &parts[i]
		if p.Number != first+i {
			return missing(first+i, "found "+filepath.Base(p.Path))
		}
		if p.FirstSeq != next {
			return missing(first+i, fmt.Sprintf("%s starts at seq %d, but the part before it ends at %d", filepath.Base(p.Path), p.FirstSeq, next))
		}
		next += p.written
	}
	if last := &parts[len(parts)-1]; !last.Last && !more {
		return missing(first+len(parts), filepath.Base(last.Path)+" is not the last part of its process")
	}
	return nil
}
