package nvml

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// family knows the processes of a job: the one that was started and what it started in turn.
type family struct {
	proc string // where processes are listed: /proc
	root int
	// known are those that belonged once: a process whose parent has died still does.
	known map[int]bool
}

func newFamily(root int) *family { return &family{proc: "/proc", root: root, known: map[int]bool{}} }

// has says whether a process that the driver names is one of the job's. In a container
// the driver may give ids as they are outside, and one of those may happen to be that of
// some other process of the job in here: so the process must have the driver open.
func (f *family) has(pid int) bool {
	if !f.known[pid] && f.descends(pid) && f.usesDriver(pid) {
		f.known[pid] = true
	}
	return f.known[pid]
}

func (f *family) descends(pid int) bool {
	for pid > 1 {
		if pid == f.root || f.known[pid] {
			return true
		}
		pid = f.parent(pid)
	}
	return false
}

// parent is 0 for a process that is not there.
func (f *family) parent(pid int) int {
	stat, err := os.ReadFile(filepath.Join(f.proc, strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0
	}
	// "4711 (name with ) and blanks) S 4710 ..."
	fields := strings.Fields(string(stat)[strings.LastIndexByte(string(stat), ')')+1:])
	if len(fields) < 2 {
		return 0
	}
	parent, err := strconv.Atoi(fields[1])
	if err != nil || parent == pid {
		return 0
	}
	return parent
}

func (f *family) usesDriver(pid int) bool {
	dir := filepath.Join(f.proc, strconv.Itoa(pid), "fd")
	open, err := os.ReadDir(dir)
	if err != nil {
		return false
	}
	for _, file := range open {
		if target, err := os.Readlink(filepath.Join(dir, file.Name())); err == nil && strings.HasPrefix(target, "/dev/nvidia") {
			return true
		}
	}
	return false
}
