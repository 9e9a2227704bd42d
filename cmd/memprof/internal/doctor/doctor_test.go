package doctor

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/memprof/memprof/hooks/rerun"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

func TestDescribeDevice(t *testing.T) {
	tests := []struct {
		device rerun.Device
		want   Finding
	}{
		{
			rerun.Device{Name: "NVIDIA H200", Total: 140 << 30, Granularity: 2 << 20, VMM: true, RDMA: true},
			Finding{Check: "device 0", Health: OK, Detail: "NVIDIA H200, 140 GiB, granularity 2 MiB, GPUDirect RDMA"},
		},
		{
			rerun.Device{Name: "Old", Total: 8 << 30, Granularity: -1},
			Finding{
				Check: "device 0", Health: Fail, Detail: "Old, 8 GiB, no virtual memory management",
				Remedy: "memprof's allocator needs cuMemMap: use a newer driver, or a GPU that is no vGPU without it",
			},
		},
	}
	for _, test := range tests {
		assert.Diff(t, test.want, describeDevice("device 0", test.device), "%s", test.device.Name)
	}
}

func TestCheckSpace(t *testing.T) {
	got := checkSpace("disk", t.TempDir(), 1)
	assert.That(t, got.Health == OK, "one byte wanted: %+v", got)
	if got := checkSpace("disk", t.TempDir(), 1<<62); got.Health != Warn || got.Remedy == "" {
		t.Errorf("4 EiB wanted: %+v", got)
	}
	if got := checkSpace("disk", "/nowhere", 1); got.Health != Warn {
		t.Errorf("no such directory: %+v", got)
	}
}

// The version is the one that torch tells, which names the shim, not the package's; and torch
// is not imported for it.
func TestCheckTorch(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("no python3 here")
	}
	dir := t.TempDir()
	for name, text := range map[string]string{
		"torch/__init__.py": "raise RuntimeError('torch was imported')\n",
		"torch/version.py":  "__version__ = '2.11.0+cu130'\n",
	} {
		assert.NoError(t, os.MkdirAll(filepath.Join(dir, "torch"), 0o777))
		assert.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666))
	}
	t.Setenv("PYTHONPATH", dir)
	found := checkTorch("python3", nil)
	assert.That(t, len(found) == 1 && found[0].Health == OK && strings.HasPrefix(found[0].Detail, "2.11.0+cu130 of "), "found %+v", found)
}
