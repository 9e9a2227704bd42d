package nvml

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// family is the processes of a job: the one that was started, and its descendants.
type family struct {
	proc string // where processes are listed: /proc
	root int
	// known are processes found to belong: after the death of its parent a process no longer descends from root
	known map[int]bool
}

func newFamily(root int) *family { return &family{proc: "/proc", root: root, known: map[int]bool{}} }

// has says whether a process id of the driver is one of the job's. In a container the driver may use ids from
// outside, which could be those of other processes of the job inside. So the process must also have the driver
// open.
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

// parent returns the id of a process's parent; 0 if there is no such process.
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
