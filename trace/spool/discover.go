package spool

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/memprof/memprof/trace"
)

// Names are the directories of processes, sorted.
func (p *Spool) Names() ([]string, error) {
	entries, err := entriesOf(p.root)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// Process opens a process's directory; nil without an error if its process file is missing or incomplete.
func (p *Spool) Process(name string) (*Process, error) { return openProcess(p.root, name) }

// Readable is Process for a reader: nil without an error also if the directory is damaged, which the collector reports.
func (p *Spool) Readable(name string) (*Process, error) {
	process, err := p.Process(name)
	if isLasting(err) {
		return nil, nil
	}
	return process, err
}

// isLasting says whether another attempt to open a process would give the same error.
func isLasting(err error) bool {
	return errors.Is(err, trace.ErrDamaged) || errors.Is(err, trace.ErrNewerSchema) || errors.Is(err, fs.ErrPermission)
}

// New returns the processes that are new since the last call, by name. A directory without a complete process file is left for
// a later call, as is one that could not be opened for want of something that may come, as file descriptors. A damaged
// one is reported once, in bad; the readable ones are returned all the same.
func (p *Spool) New() (found []*Process, bad []error) {
	names, err := p.Names()
	if err != nil {
		return nil, []error{err}
	}
	for _, name := range names {
		if _, known := p.known[name]; known {
			continue
		}
		process, err := p.Process(name)
		if err != nil {
			bad = append(bad, err)
		}
		if process != nil {
			found = append(found, process)
		}
		if process != nil || isLasting(err) {
			p.known[name] = err
		}
	}
	return found, bad
}

// Forget has New return a process again.
func (p *Spool) Forget(name string) { delete(p.known, name) }

// RemoveProcess removes a process's directory.
func (p *Spool) RemoveProcess(name string) error { return p.root.RemoveAll(name) }

// NeverRecorded returns lines about the processes that made a directory in the spool and recorded nothing. Call it when all
// others are converted: ended has their names. A directory with records that New could not open is an error.
func (p *Spool) NeverRecorded(ended map[string]bool) (lines []string, err error) {
	names, err := p.Names()
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if ended[name] { // converted, and not removed by an earlier collector
			continue
		}
		if err := p.known[name]; err != nil {
			return nil, err
		}
		dir, err := p.root.OpenRoot(name)
		if err != nil {
			return nil, err
		}
		records, err := hasRecords(dir)
		lines = append(lines, whyNotRecorded(dir, name)...)
		dir.Close()
		if err != nil {
			return nil, err
		}
		if records {
			return nil, &trace.PathError{Path: filepath.Join(p.path(), name, processName), Err: trace.ErrDamaged, Detail: "missing or truncated, although there are segments with records",
				Remedy: "delete the directory if the events of its process are not needed"}
		}
	}
	return lines, nil
}

// whyNotRecorded returns the problems of a process that made its directory but no segment.
func whyNotRecorded(dir *os.Root, name string) []string {
	name, _, _ = strings.Cut(name, ".")
	name = "pid" + strings.TrimPrefix(name, "p")
	lines := problemLines(dir)
	if len(lines) == 0 {
		lines = []string{"it could not start to record"}
	}
	for i, line := range lines {
		lines[i] = name + ": " + line
	}
	return lines
}

// Unconverted counts the segments of the processes that are not in ended, in the spool of the run in dir.
func Unconverted(dir string, ended map[string]bool) (int, error) {
	p, err := Open(dir)
	if err != nil {
		return 0, trace.IgnoreMissing(err)
	}
	defer p.Close()
	if !p.Present() {
		return 0, p.CheckPresent()
	}
	names, err := p.Names()
	if err != nil {
		return 0, trace.IgnoreMissing(err)
	}
	n := 0
	for _, name := range names {
		if ended[name] {
			continue
		}
		process, err := p.root.OpenRoot(name)
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
