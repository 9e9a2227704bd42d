package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/memprof/memprof/hooks/nvml"
	"github.com/memprof/memprof/hooks/rerun"
)

func TestDescribeDevice(t *testing.T) {
	tests := []struct {
		device rerun.Device
		want   finding
	}{
		{
			rerun.Device{Name: "NVIDIA H200", Total: 140 << 30, Granularity: 2 << 20, VMM: true, RDMA: true},
			finding{Check: "device 0", Health: healthOK, Detail: "NVIDIA H200, 140 GiB, granularity 2 MiB, GPUDirect RDMA"},
		},
		{
			rerun.Device{Name: "Old", Total: 8 << 30, Granularity: -1},
			finding{
				Check: "device 0", Health: healthFail, Detail: "Old, 8 GiB, no virtual memory management",
				Remedy: "the bfc allocator needs cuMemMap and its kin: a newer driver, or a GPU that is not a vGPU without them",
			},
		},
	}
	for _, test := range tests {
		if diff := cmp.Diff(test.want, describeDevice("device 0", test.device)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.device.Name, diff)
		}
	}
}

func TestCheckSpace(t *testing.T) {
	if got := checkSpace("disk", t.TempDir(), 1); got.Health != healthOK {
		t.Errorf("one byte wanted: %+v", got)
	}
	if got := checkSpace("disk", t.TempDir(), 1<<62); got.Health != healthWarn || got.Remedy == "" {
		t.Errorf("4 EiB wanted: %+v", got)
	}
	if got := checkSpace("disk", "/nowhere", 1); got.Health != healthWarn {
		t.Errorf("no such directory: %+v", got)
	}
}

// TestPrintFindings: off a terminal there is no colour.
func TestPrintFindings(t *testing.T) {
	var out bytes.Buffer
	findings := []finding{{Check: "driver", Health: healthOK, Detail: "CUDA 13.0"}, {Check: "disk", Health: healthWarn, Detail: "1 GiB free", Remedy: "make room"}}
	if err := printFindings(&out, findings); err != nil {
		t.Fatal(err)
	}
	const want = "ok    driver         CUDA 13.0\nwarn  disk           1 GiB free\n                     -> make room\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestReadNVMLWithoutLibrary(t *testing.T) {
	if state, err := nvml.Read(); err == nil {
		t.Skipf("this machine has NVML: %+v", state)
	} else if err.Error() != "libnvidia-ml.so.1 is not on this machine" {
		t.Errorf("without the library: %v", err)
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
		if err := os.MkdirAll(filepath.Join(dir, "torch"), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PYTHONPATH", dir)
	found := checkTorch("python3", nil)
	if len(found) != 1 || found[0].Health != healthOK || !strings.HasPrefix(found[0].Detail, "2.11.0+cu130 of ") {
		t.Errorf("found %+v", found)
	}
}
