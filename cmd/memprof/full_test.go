package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// TestFullDisk records to a disk too small for the trace: the job ends as it would have,
// its first events are there, and what cannot be converted waits for room.
func TestFullDisk(t *testing.T) {
	b := newBench(t)
	disk := b.path("disk")
	if err := os.Mkdir(disk, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("none", disk, "tmpfs", 0, "size=20m"); err != nil {
		t.Skipf("no tmpfs may be mounted here (%v): the spool's limit in testdata/script/record/spool.txtar has to do", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(disk, 0); err != nil {
			t.Error(err)
		}
	})
	run := filepath.Join(disk, "run")
	cmd, stderr := b.memprof("record", "--device", "sim", "-o", run, "--", b.job, "log", b.path("log"), "churn", "5", "600000", "exit", "5")
	if code := exitOf(cmd.Run()); code != 5 {
		t.Fatalf("exit code %d, want the job's 5\n%s", code, stderr)
	}
	if !regexp.MustCompile(`recording ended at seq \d+|the disk is full`).MatchString(stderr.String()) {
		t.Errorf("stderr names no point up to which the trace holds:\n%s", stderr)
	}
	if strings.Contains(stderr.String(), "memprof recover") {
		// The spool could not be converted where it lies; with room it can.
		if err := syscall.Mount("none", disk, "tmpfs", syscall.MS_REMOUNT, "size=200m"); err != nil {
			t.Fatal(err)
		}
		b.mustExit(0, "recover", run)
	}
	got, want := b.recorded("disk/run"), b.logged("log")
	if len(got) == 0 || len(got) >= len(want) {
		t.Fatalf("%d allocations recorded of %d: the disk was not full", len(got), len(want))
	}
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("allocation %d is %+v in the trace, %+v in the job", i, got[i], want[i])
		}
	}
	b.mustExit(0, "verify", run)
}
