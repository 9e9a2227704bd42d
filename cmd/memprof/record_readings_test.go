package main

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/memprof/memprof/cmd/memprof/internal/recorder"
	"github.com/memprof/memprof/hooks/nvml"
	"github.com/memprof/memprof/hooks/nvml/nvmltest"
	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// recordOnCards records a job on the simulated device of a machine with made-up cards.
func recordOnCards(t *testing.T, fake *nvmltest.Cards, command ...string) (dir string, err error) {
	t.Helper()
	return recordWith(t, func(*recorder.Device) (nvml.Cards, string) { return fake, dataset.ReadingsOfNVML }, command...)
}

// recordWith records a job on the simulated device, as if that were a real one.
func recordWith(t *testing.T, readable func(*recorder.Device) (nvml.Cards, string), command ...string) (dir string, err error) {
	t.Helper()
	needHook(t)
	t.Setenv("MEMPROF_CACHE", t.TempDir())
	installed, err := installHook()
	assert.NoError(t, err)
	device, err := recorder.ChooseDevice("sim", 1<<30, installed)
	assert.NoError(t, err)
	dir = filepath.Join(t.TempDir(), "run")
	place, err := recorder.NewPlace(dir, "", "job", false)
	assert.NoError(t, err)
	opts := recordOptions{Device: "sim", SimMemory: 1 << 30, Quiet: true}
	rec := &recorder.Recorder{Place: place, Device: device, Stderr: io.Discard, Quiet: true, Readable: readable}
	environment := func(base []string, readings bool) []string {
		options := opts.hookOptions(place.Spool, true)
		options.Readings = readings
		return installed.Environment(base, options)
	}
	return dir, rec.Run(command[0], command, opts.settings(), environment)
}

func TestRecordTakesReadings(t *testing.T) {
	job := buildJob(t)
	cards := &nvmltest.Cards{Used: []int64{7 << 30}, Shown: []map[int]int64{{1: 1}}}
	dir, err := recordOnCards(t, cards, job, "alloc", "a", "64M", "sleep", "2000", "library", "16M", "sleep", "2000")
	assert.NoError(t, err)
	assert.That(t, cards.Closed, "the library was left open")
	found, _ := reportAccounting(t, dir)
	b := found[0].Account
	assert.Must(t, len(found) == 1 && b.Scope == "device" && b.Missing == "" && b.Peak.Used != nil, "accounting %s", jsonText(found))
	// The driver did not tell the job's process apart, so that nothing of the rest is known.
	sum := b.Peak.Tensors + b.Peak.Reserve + b.Peak.Context + b.Peak.Other
	assert.That(t, *b.Peak.Used == 7<<30 && b.Peak.Tensors == 64*mebi && sum >= 64*mebi && *b.Peak.Rest == 7<<30-sum && b.Peak.Unexplained == nil,
		"accounting %s", jsonText(found))
	code, out, stderr := memprof("verify", dir)
	assert.That(t, code == 0 && strings.Contains(out, "ok     device: "), "verify ended with %d: %s%s", code, out, stderr)
}

// Without NVML the job's processes read for themselves, and only then.
func TestRecordHasProcessesRead(t *testing.T) {
	job := buildJob(t)
	const why = "no library here"
	tests := []struct {
		readings, scope, missing string
	}{
		{dataset.ReadingsOfDriver + why, "card", ""},
		{"none: " + why, "process", why},
	}
	for _, test := range tests {
		t.Run(test.scope, func(t *testing.T) {
			readable := func(*recorder.Device) (nvml.Cards, string) { return nil, test.readings }
			dir, err := recordWith(t, readable, job, "alloc", "a", "64M", "sleep", "2000", "library", "16M", "sleep", "2000")
			assert.NoError(t, err)
			found, _ := reportAccounting(t, dir)
			b := found[0].Account
			assert.Must(t, len(found) == 1 && b.Scope == test.scope && b.Missing == test.missing && (b.Peak.Used != nil) == (test.missing == ""),
				"accounting %s", jsonText(found))
			// The simulated card has nothing on it that is in no event.
			if b.Peak.Used != nil && (*b.Peak.Unexplained != 0 || *b.Peak.Used < 64*mebi || b.Peak.Tensors != 64*mebi) {
				t.Errorf("accounting %s", jsonText(found))
			}
			code, out, stderr := memprof("verify", dir)
			assert.That(t, code == 0, "verify ended with %d: %s%s", code, out, stderr)
		})
	}
}

// Where NVML hangs they read for themselves, too.
func TestRecordGivesUpOnCards(t *testing.T) {
	stuck := make(chan struct{})
	t.Cleanup(func() { close(stuck) })
	silent := &nvmltest.Cards{Used: []int64{7 << 30}}
	silent.Stuck.Store(&stuck)
	dir, err := recordOnCards(t, silent, buildJob(t), "alloc", "a", "64M", "sleep", "2000")
	assert.NoError(t, err)
	found, _ := reportAccounting(t, dir)
	b := found[0].Account
	assert.That(t, b.Scope == "card" && b.Missing == "", "accounting %s", jsonText(found))
	info, err := dataset.ReadInfo(dir)
	assert.NoError(t, err)
	got, want := info.Options[dataset.OptionReadings], dataset.ReadingsOfDriver+nvml.ErrNoAnswer.Error()
	assert.That(t, got == want, "run.json has readings %q, want %q", got, want)
}

// A command that cannot be started leaves nothing behind.
func TestRecordAbandonsReadings(t *testing.T) {
	cards := &nvmltest.Cards{Used: []int64{7 << 30}}
	dir, err := recordOnCards(t, cards, filepath.Join(t.TempDir(), "nothing"))
	assert.That(t, err != nil && cards.Closed, "error %v, closed %v", err, cards.Closed)
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is left behind: %v", dir, err)
	}
}
