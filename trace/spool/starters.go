package spool

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
)

// variable begins the environment entry of a process with the path of the spool; see package hooks.
const variable = "MEMPROF_SPOOL="

// Starter is a process that may begin to record.
type Starter struct {
	PID     int
	Command string
}

// String is "process 4711 (python3)".
func (s Starter) String() string { return fmt.Sprintf("process %d (%s)", s.PID, s.Command) }

// Starters are the processes on this machine that have the spool in their environment, except the
// caller: those that have not begun to record, because they have made no CUDA call, may do so later. It does not find processes
// of other users, nor those that overwrote their environment.
func (p *Spool) Starters() []Starter {
	if p.root == nil || p.Finished() {
		return nil // no process can find the spool any more
	}
	spool, err := p.root.Stat(".")
	if err != nil {
		return nil
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var found []Starter
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		dir := filepath.Join("/proc", e.Name())
		if path := spoolOf(dir); path != "" && leadsTo(dir, path, spool) {
			name, _ := os.ReadFile(filepath.Join(dir, "comm"))
			found = append(found, Starter{pid, string(bytes.TrimSpace(name))})
		}
	}
	return found
}

// spoolOf returns the spool in the environment of the process in dir, a directory of /proc; "" for none.
func spoolOf(dir string) string {
	environment, err := os.ReadFile(filepath.Join(dir, "environ"))
	if err != nil {
		return ""
	}
	for entry := range bytes.SplitSeq(environment, []byte{0}) {
		if path, ok := bytes.CutPrefix(entry, []byte(variable)); ok {
			return string(path)
		}
	}
	return ""
}

// leadsTo says whether a path of the process in dir names the spool. The process may be in a container with other
// paths.
func leadsTo(dir, path string, spool fs.FileInfo) bool {
	if !filepath.IsAbs(path) {
		return false
	}
	stat, err := os.Stat(filepath.Join(dir, "root", path))
	if err != nil {
		stat, err = os.Stat(path)
	}
	return err == nil && os.SameFile(stat, spool)
}
