package trace

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Run is a recorded run, or one part of one.
type Run struct {
	Dir       string
	Info      Info       // empty but for ID when the run has no run.json
	Processes []*Process // by rank, then by name
	Warnings  []string   // what is odd and does not hinder reading
	Live      bool       // it is being recorded; see [OpenLive]

	// Readings are those of the devices' used memory, nil if there are none, or none that
	// can be read: ReadingsErr then says what is wrong with them. With a part alone come none.
	Readings    *Process
	ReadingsErr error

	onePart bool // it is one part of a run
}

// Process is one recorded process and its parts in order.
type Process struct {
	ProcessMeta
	Parts  []Part
	Events int64 // opening rows not counted
	Ending Ending
	Whole  bool // Parts are all there are: the first to the last
	Live   bool // it is being recorded: Parts are what there was when it was opened

	// Advance, if set, gets the number of events of each batch that a Reader of the process gives,
	// and 0 when the Reader is closed. Readers in several goroutines call it from each.
	Advance func(events int)

	strings *Strings
}

// Strings are the process's context texts, filled as its events are read. The numbers
// stay the same in all parts and for all Readers of the Process.
func (p *Process) Strings() *Strings { return p.strings }

// Checksums are those recorded for the process, one for each [BlockEvents] events and one
// for the rest; see [Rolling].
func (p *Process) Checksums() []uint64 {
	var sums []uint64
	for i := range p.Parts {
		sums = append(sums, p.Parts[i].sums...)
	}
	return sums
}

// Rolling is a running checksum for the process's events from Parts[0].FirstSeq on (not
// for the opening rows before them), to be compared with [Process.Checksums].
func (p *Process) Rolling() *Rolling {
	return resumeRolling(p.Parts[0].seed, p.Parts[0].FirstSeq)
}

// Recorded is how many events the collector wrote, by the parts' metadata. It differs
// from Events in a trace that was tampered with.
func (p *Process) Recorded() int64 {
	n := int64(0)
	for i := range p.Parts {
		n += p.Parts[i].written
	}
	return n
}

// Bytes is the size of the process's parts.
func (p *Process) Bytes() int64 {
	n := int64(0)
	for i := range p.Parts {
		n += p.Parts[i].Bytes
	}
	return n
}

// Open reads what a run's directory holds, or one part of a run, without its events. The
// error is a *[PathError] around one of this package's sentinels when it is about the
// trace and not about the file system.
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
		return nil, onlyReadings(path)
	}
	run := &Run{Dir: filepath.Dir(path), onePart: true}
	info, err := readInfoIfAny(run.Dir)
	switch {
	case err == nil && info != nil && info.ID == part.Process.RunID:
		run.Info = *info
	default:
		run.Info.ID = part.Process.RunID
		run.Warnings = append(run.Warnings, fmt.Sprintf("%s: no %s of this run beside it: host, devices and command are not known", path, InfoName))
	}
	run.Processes = []*Process{newProcess([]Part{*part})}
	return run, nil
}

func openDir(dir string) (*Run, error) {
	info, err := readInfoIfAny(dir)
	if err != nil {
		return nil, err
	}
	parts, err := readParts(dir, func(file string) bool { return !isReadings(file) })
	if err != nil {
		return nil, err
	}
	if segments, err := spoolSegments(dir, parts); err != nil {
		return nil, err
	} else if segments > 0 {
		return nil, &PathError{Path: dir, Err: ErrUnfinished,
			Detail: fmt.Sprintf("%d segments of its spool were not converted", segments),
			Remedy: fmt.Sprintf("run `memprof recover %s`", dir)}
	}
	if len(parts) == 0 {
		detail := "no .parquet part"
		if info != nil {
			detail = "the run has no events: no process of it used a GPU"
		}
		return nil, &PathError{Path: dir, Err: ErrEmpty, Detail: detail, Remedy: "give a directory that `memprof record -o` wrote"}
	}
	run := &Run{Dir: dir}
	if info != nil {
		run.Info = *info
	} else {
		run.Info.ID = parts[0].Process.RunID
		run.Warnings = append(run.Warnings, fmt.Sprintf("%s: no %s: host, devices and command are not known", dir, InfoName))
	}
	for i := range parts {
		if id := parts[i].Process.RunID; id != run.Info.ID {
			other := InfoName
			if info == nil {
				other = filepath.Base(parts[0].Path)
			}
			return nil, &PathError{Path: parts[i].Path, Err: ErrMixedRuns,
				Detail: fmt.Sprintf("it belongs to run %s, %s to run %s", id, other, run.Info.ID),
				Remedy: "put each run into a directory of its own"}
		}
	}
	if run.Processes, err = groupParts(dir, parts, false); err != nil {
		return nil, err
	}
	for _, m := range run.Missing() {
		run.Warnings = append(run.Warnings, dir+": "+m.String())
	}
	run.takeReadings()
	return run, nil
}

// readParts reads the metadata of the complete parts in dir whose file names are wanted.
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
		if err != nil {
			return nil, err
		}
		parts = append(parts, *p)
	}
	return parts, nil
}

// spoolSegments counts the segment files that wait in the spool of the run in dir, whose complete parts these
// are; 0 when there is none. Those of a process that is in the parts to its end wait for nothing but their removal.
func spoolSegments(dir string, parts []Part) (int, error) {
	place, err := openPlaceOf(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer place.close()
	if place.root == nil {
		return 0, place.lost()
	}
	ended := map[string]bool{}
	for i := range parts {
		ended[parts[i].Process.Spool] = ended[parts[i].Process.Spool] || parts[i].Last
	}
	entries, err := entriesOf(place.root)
	if err != nil {
		return 0, ignoreMissing(err)
	}
	n := 0
	for _, e := range entries {
		if !e.IsDir() || ended[e.Name()] {
			continue
		}
		process, err := place.root.OpenRoot(e.Name())
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return 0, err
		}
		found, err := listSegments(process)
		process.Close()
		if err != nil {
			return 0, err
		}
		n += len(found)
	}
	return n, nil
}

func newProcess(parts []Part) *Process {
	last := &parts[len(parts)-1]
	p := &Process{
		ProcessMeta: last.Process, Parts: parts, Ending: last.Ending,
		Whole: parts[0].Number == 0 && last.Last, strings: NewStrings(),
	}
	for i := range parts {
		p.Events += parts[i].Events
	}
	return p
}

// groupParts sorts parts by process and demands that none is missing; the last one may be
// when more are to come.
func groupParts(dir string, parts []Part, more bool) ([]*Process, error) {
	slices.SortFunc(parts, func(a, b Part) int {
		return cmp.Or(compareProcesses(&a.Process, &b.Process), cmp.Compare(a.Number, b.Number))
	})
	var processes []*Process
	for len(parts) > 0 {
		n := 1
		for n < len(parts) && parts[n].Process.Name == parts[0].Process.Name {
			n++
		}
		if err := checkSequence(dir, parts[:n], more); err != nil {
			return nil, err
		}
		processes = append(processes, newProcess(slices.Clone(parts[:n])))
		parts = parts[n:]
	}
	return processes, nil
}

// compareProcesses puts ranks in their order, and processes without one behind them.
func compareProcesses(a, b *ProcessMeta) int {
	return cmp.Or(cmp.Compare(uint(a.Rank), uint(b.Rank)), cmp.Compare(a.Name, b.Name))
}

func checkSequence(dir string, parts []Part, more bool) error {
	name := parts[0].Process.Name
	missing := func(number int, why string) error {
		return &PathError{Path: filepath.Join(dir, fmt.Sprintf("%s-%04d%s", name, number, partSuffix)), Err: ErrMissingPart,
			Detail: why, Remedy: "copy it from where the run was recorded, or give single parts instead of the directory"}
	}
	next := int64(0)
	for i := range parts {
		p := &parts[i]
		if p.Number != i {
			return missing(i, "found "+filepath.Base(p.Path))
		}
		if p.FirstSeq != next {
			return missing(i, fmt.Sprintf("%s starts at seq %d, the one before it ends at %d", filepath.Base(p.Path), p.FirstSeq, next))
		}
		next += p.written
	}
	if last := &parts[len(parts)-1]; !last.Last && !more {
		return missing(len(parts), filepath.Base(last.Path)+" is not the last")
	}
	return nil
}
