package trace

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
)

// spoolVariable begins the environment entry of a process with the path of the spool; see package hooks.
const spoolVariable = "MEMPROF_SPOOL="

// Starter is a process that has not begun to record, because it has made no CUDA call, and may do so later.
type Starter struct {
	pid  int
	name string // of its program
}

func (s Starter) String() string { return fmt.Sprintf("process %d (%s)", s.pid, s.name) }

// Starters returns the processes on this machine that have the spool in their environment, except the caller. It does not
// find processes of other users, nor those that overwrote their environment.
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
		if path, ok := bytes.CutPrefix(entry, []byte(spoolVariable)); ok {
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
