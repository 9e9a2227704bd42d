package spool

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/memprof/memprof/trace"
)

const (
	processName  = "process"
	problemsName = "problems"
	stringsName  = "strings"
	segSuffix    = ".seg"
)

// Process reads the records of one process while the process writes them. Its exported fields are for reading.
type Process struct {
	Dir    string // path of its directory, for messages
	Name   string // of that directory
	Header Header // as of the last Refresh

	Lost   int64  // slots lost so far
	Damage string // why the rest of the spool cannot be read; "" if it can
	Ended  bool   // all records are read, and no further ones can come

	root *os.Root
	file *os.File // "process"
	slot int64    // next slot to read

	seg      *os.File
	segIndex int64
	buf      []byte

	texts  texts
	kept   int64  // segments with smaller indices are deleted
	run    int64  // unfilled slots just before slot that were not visited as lost events yet
	lastNS uint64 // time of the last event
}

// openProcess opens a process's directory in the spool; nil without an error if its process file is
// missing or incomplete.
func openProcess(spool *os.Root, name string) (*Process, error) {
	stat, err := spool.Lstat(name)
	if err != nil || !stat.IsDir() { // opening a pipe would block
		return nil, trace.IgnoreMissing(err)
	}
	root, err := spool.OpenRoot(name)
	if err != nil {
		return nil, trace.IgnoreMissing(err)
	}
	f, err := trace.OpenRegular(root, processName)
	if err != nil {
		root.Close()
		return nil, trace.IgnoreMissing(err)
	}
	p := &Process{
		Dir: filepath.Join(spool.Name(), name), Name: name, root: root,
		file: f, segIndex: -1, buf: make([]byte, blockRecords*recordBytes),
	}
	ok, err := p.Refresh()
	if err == nil && ok {
		err = p.Header.check(filepath.Join(p.Dir, processName))
	}
	if err == nil && ok {
		p.texts, err = loadTexts(root)
	}
	if err != nil || !ok {
		p.Close()
		return nil, err
	}
	return p, nil
}

// Refresh reads the process file again; ok is false while it is incomplete.
func (p *Process) Refresh() (ok bool, err error) {
	var b [processBytes]byte
	if _, err := p.file.ReadAt(b[:], 0); err != nil {
		if errors.Is(err, io.EOF) {
			return false, nil
		}
		return false, err
	}
	h, ok := parseProcess(b[:])
	if ok {
		p.Header = h
	}
	return ok, nil
}

// Overtaken says whether the collector has deleted the segment that is to be read next; its events are in a part.
func (p *Process) Overtaken() bool {
	present, err := p.Segments()
	switch {
	case err != nil:
		return false
	case len(present) > 0:
		return present[0] > p.slot/SegmentRecords
	}
	_, err = p.root.Lstat(processName)
	return errors.Is(err, fs.ErrNotExist)
}

// Close closes all files.
func (p *Process) Close() {
	p.file.Close()
	p.closeSegment()
	p.root.Close()
}

func (p *Process) closeSegment() {
	if p.seg != nil {
		p.seg.Close()
		p.seg, p.segIndex = nil, -1
	}
}

// Problems returns the lines of the hook's problems file.
func (p *Process) Problems() []string { return problemLines(p.root) }

func problemLines(dir *os.Root) []string {
	f, err := trace.OpenRegular(dir, problemsName)
	if err != nil {
		return nil
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 64<<10))
	if err != nil {
		return nil
	}
	var lines []string
	for line := range strings.Lines(trace.ValidText(string(bytes.TrimRight(text, "\x00")))) { // the hook maps the file, and leaves zeros at its end
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

func segmentName(index int64) string { return fmt.Sprintf("%06d%s", index, segSuffix) }

// Segments returns the indices of the segment files, ascending.
func (p *Process) Segments() ([]int64, error) { return listSegments(p.root) }

// DeleteBefore deletes the segments with no slot from slot on, whose events are all in complete parts. It first saves their
// strings, which later events may name, and keeps the segments if it cannot. It says whether it deleted any.
func (p *Process) DeleteBefore(slot int64) (deleted bool, err error) {
	limit := p.texts.firstNeeded(slot) / SegmentRecords
	if limit <= p.kept {
		return false, nil
	}
	if err := p.texts.save(p.root); err != nil {
		return false, nil // the segments stay, with the only copy of their strings: this costs room and no event
	}
	present, err := p.Segments()
	if err != nil {
		return false, err
	}
	for _, index := range present {
		if index >= limit {
			break
		}
		if err := p.root.Remove(segmentName(index)); err != nil {
			return false, err
		}
	}
	p.kept = limit
	return true, nil
}

// listSegments returns the indices of the segment files in a process's directory, ascending.
func listSegments(dir *os.Root) ([]int64, error) {
	entries, err := entriesOf(dir)
	if err != nil {
		return nil, trace.IgnoreMissing(err)
	}
	var found []int64
	for _, e := range entries {
		base, ok := strings.CutSuffix(e.Name(), segSuffix)
		if !ok {
			continue
		}
		if n, err := strconv.ParseInt(base, 10, 64); err == nil && n >= 0 && n < 1<<40 {
			found = append(found, n)
		}
	}
	slices.Sort(found)
	return found, nil
}

// entriesOf lists an open directory, sorted by name.
func entriesOf(dir *os.Root) ([]fs.DirEntry, error) { return fs.ReadDir(dir.FS(), ".") }

// hasRecords says whether the first slot of any segment in a process's directory is committed.
func hasRecords(dir *os.Root) (bool, error) {
	present, err := listSegments(dir)
	if err != nil {
		return false, err
	}
	var first [recordBytes]byte
	for _, index := range present {
		f, err := trace.OpenRegular(dir, segmentName(index))
		if err != nil {
			return false, err
		}
		n, _ := f.ReadAt(first[:], 0)
		f.Close()
		if n == recordBytes && committedPrefix(first[:]) == 1 {
			return true, nil
		}
	}
	return false, nil
}
