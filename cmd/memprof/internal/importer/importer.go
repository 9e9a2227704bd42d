// Package importer makes recordings of other tools' files, into a directory for the import verb, or without
// one for verbs that are given such a file instead of a recording.
package importer

import (
	"bytes"
	"errors"
	"io"
	"os"

	"github.com/memprof/memprof/analysis/rmmlog"
	"github.com/memprof/memprof/analysis/snapshot"
	"github.com/memprof/memprof/trace"
)

// Process describes a process that was made of a file.
type Process struct {
	Name    string
	File    string
	Device  int
	Entries int64 // of the file
	Blocks  int64 // that existed before the first entry
	Bytes   int64 // reserved before it
	Odd     int64 // entries that contradict others, and were left out
}

// Format is a kind of file.
type Format struct {
	Name  string
	About string
	is    func(head []byte) bool
	make  func(dir string, files []string, version string) ([]Process, error)
}

// Formats are those that can be imported.
var Formats = []Format{
	{
		Name: "torch-snapshot", About: "a memory snapshot of PyTorch",
		is: func(head []byte) bool {
			return len(head) > 1 && (head[0] == 0x80 && 2 <= head[1] && head[1] <= 5 || head[0] == 0x1f && head[1] == 0x8b)
		},
		make: func(dir string, files []string, version string) (all []Process, err error) {
			made, err := snapshot.Import(dir, files, version)
			for _, p := range made {
				all = append(all, Process(p))
			}
			return all, err
		},
	},
	{
		Name: rmmlog.Format, About: "a log of RMM",
		is: func(head []byte) bool { return bytes.HasPrefix(head, []byte(rmmlog.Header)) },
		make: func(dir string, files []string, version string) (all []Process, err error) {
			made, err := rmmlog.Import(dir, files, version)
			for _, p := range made {
				all = append(all, Process{Name: p.Name, File: p.File, Entries: p.Entries, Blocks: p.Blocks, Bytes: p.Bytes, Odd: p.Odd})
			}
			return all, err
		},
	},
}

// Named returns the format of a name.
func Named(name string) (Format, bool) {
	for _, f := range Formats {
		if f.Name == name {
			return f, true
		}
	}
	return Format{}, false
}

// Import writes files as one recording into dir, which exists. Several files are ranks, in their order. After
// an error nothing of it is left.
func (f Format) Import(dir string, files []string, version string) ([]Process, error) {
	return f.make(dir, files, version)
}

// FormatOf returns the format of a regular file by its first bytes.
func FormatOf(path string) (Format, bool) {
	if stat, err := os.Stat(path); err != nil || !stat.Mode().IsRegular() {
		return Format{}, false
	}
	file, err := os.Open(path)
	if err != nil {
		return Format{}, false
	}
	defer file.Close()
	head := make([]byte, 64)
	n, err := io.ReadFull(file, head)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return Format{}, false
	}
	for _, f := range Formats {
		if f.is(head[:n]) {
			return f, true
		}
	}
	return Format{}, false
}

// Open imports a file and opens the recording, which has no directory: its parts exist as long as this
// process does.
func (f Format) Open(path, version string) (run *trace.Run, err error) {
	dir, err := os.MkdirTemp("", "memprof-import-*")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if _, err := f.Import(dir, []string{path}, version); err != nil {
		return nil, err
	}
	if run, err = trace.Open(dir); err != nil {
		return nil, err
	}
	return run, run.Detach(path)
}
