package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/memprof/memprof/trace"
)

// cards answers for the GPUs of the machine, in the order of run.json's list.
type cards interface {
	count() int
	// memory is what a GPU has in use, whoever uses it, and its size, in bytes.
	memory(gpu int) (used, total int64, err error)
	// processes are the bytes of each process on a GPU by its id, as far as the driver
	// shows any: in a container it may show none, or ids that mean nothing there. It is nil
	// if they could not be listed.
	processes(gpu int) map[int]int64
	close()
}

// readable opens the cards that a job's books can be held against, and says where the
// readings come from. Without NVML those are the processes of the job, each of which reads
// for itself. There will be none of the simulated device: its memory is its processes', and
// nothing beside it could be found out.
func readable(device *chosenDevice) (found cards, readings string) {
	if device.simulated {
		return nil, "none: the device is simulated"
	}
	c, err := openCards()
	if err != nil {
		return nil, trace.ReadingsOfDriver + err.Error()
	}
	return c, trace.ReadingsOfNVML
}

// nvmlCards asks the management library.
type nvmlCards struct {
	devices []nvml.Device
	second  bool // the driver tells used memory without what it keeps for itself
}

func openCards() (*nvmlCards, error) {
	if ret := nvml.Init(); ret != nvml.SUCCESS {
		if ret == nvml.ERROR_LIBRARY_NOT_FOUND {
			return nil, fmt.Errorf("libnvidia-ml.so.1 is not on this machine")
		}
		return nil, fmt.Errorf("NVML: %s", nvml.ErrorString(ret))
	}
	// A call of a function that an old driver lacks would end memprof, so look first.
	c := &nvmlCards{second: nvml.Extensions().LookupSymbol("nvmlDeviceGetMemoryInfo_v2") == nil}
	count, ret := nvml.DeviceGetCount()
	if ret != nvml.SUCCESS {
		c.close()
		return nil, fmt.Errorf("NVML: counting devices: %s", nvml.ErrorString(ret))
	}
	for i := range count {
		device, ret := nvml.DeviceGetHandleByIndex(i)
		if ret != nvml.SUCCESS {
			c.close()
			return nil, fmt.Errorf("NVML: device %d: %s", i, nvml.ErrorString(ret))
		}
		c.devices = append(c.devices, device)
	}
	return c, nil
}

func (c *nvmlCards) count() int { return len(c.devices) }

func (c *nvmlCards) memory(gpu int) (used, total int64, err error) {
	if c.second {
		if m, ret := c.devices[gpu].GetMemoryInfo_v2(); ret == nvml.SUCCESS {
			return int64(m.Used), int64(m.Total), nil
		}
	}
	m, ret := c.devices[gpu].GetMemoryInfo()
	if ret != nvml.SUCCESS {
		return 0, 0, fmt.Errorf("NVML: used memory of device %d: %s", gpu, nvml.ErrorString(ret))
	}
	return int64(m.Used), int64(m.Total), nil
}

func (c *nvmlCards) processes(gpu int) map[int]int64 {
	found, ret := c.devices[gpu].GetComputeRunningProcesses()
	if ret != nvml.SUCCESS {
		return nil
	}
	used := map[int]int64{}
	for _, p := range found {
		if p.UsedGpuMemory <= math.MaxInt64 { // else the driver would not say
			used[int(p.Pid)] += int64(p.UsedGpuMemory)
		}
	}
	return used
}

func (c *nvmlCards) close() { nvml.Shutdown() }

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
