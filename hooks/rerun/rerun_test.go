package rerun

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/memprof/memprof/trace/tracetest/assert"
)

const simulator = "../dist/sim/libcuda.so.1"

func TestProbeSimulator(t *testing.T) {
	if _, err := os.Stat(simulator); err != nil {
		t.Fatal("hooks/dist/sim/libcuda.so.1 is missing: run `make -C hooks dist` first")
	}
	path, err := filepath.Abs(simulator)
	assert.NoError(t, err)
	version, devices, err := Probe(path)
	assert.NoError(t, err)
	assert.Must(t, version >= 12000 && len(devices) == 1, "Probe() = version %d, %d devices; want 12000 or more and 1", version, len(devices))
	got := devices[0]
	assert.That(t, got.Total == 80<<30 && got.Granularity == 2<<20 && got.VMM && got.Name != "",
		"Probe() = %+v; want a named device with 80 GiB, granularity 2 MiB and VMM", got)
}

func TestProbeRefuses(t *testing.T) {
	_, _, err := Probe("/nowhere/libcuda.so.1")
	assert.That(t, errors.Is(err, ErrNoDriver) && strings.Contains(err.Error(), "/nowhere/libcuda.so.1"), "a missing driver: %v", err)
	_, _, err = Probe("libm.so.6")
	assert.That(t, errors.Is(err, ErrNoDriver) && strings.Contains(err.Error(), "libm.so.6 is not a CUDA driver"), "a library that is no driver: %v", err)
}
