package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// startAndKill begins a recording with a job that waits before its first CUDA call, and kills the recorder there. The
// job goes on when the file lock is gone.
func (b *bench) startAndKill(job ...string) {
	b.Helper()
	mustWrite(b.T, b.path("lock"), "")
	cmd, _ := b.memprof(append([]string{"record", "--device", "sim", "-o", b.path("run"), "--"}, job...)...)
	cmd.Stderr = nil // a pipe would be held open by the job
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.waitUntil("the job waits", func() bool { return b.exists("ready") })
	if err := cmd.Process.Kill(); err != nil {
		b.Fatal(err)
	}
	cmd.Wait() // killed: an error is its usual end
}

// TestRecoverBeforeFirstCall: a job that has made no CUDA call, itself or in a process that it starts late, is alive all
// the same, and nothing that it records later is lost.
func TestRecoverBeforeFirstCall(t *testing.T) {
	t.Parallel()
	for _, late := range []bool{false, true} {
		b := newBench(t)
		job := []string{b.job, "touch", b.path("ready"), "wait", b.path("lock"), "alloc", "a", "1M", "touch", b.path("done")}
		name := "(job)"
		if late {
			script := b.job + " touch " + b.path("ready") + " wait " + b.path("lock") + "; " + b.job + " alloc a 1M touch " + b.path("done")
			job, name = []string{"sh", "-c", script}, "(sh)"
		}
		b.startAndKill(job...)
		if message := b.mustExit(2, "recover", b.path("run")); !strings.Contains(message, "a recorded process is still running (process ") || !strings.Contains(message, name+" may still begin to record)") {
			t.Errorf("recover says %q", message)
		}
		if message := b.mustExit(2, "record", "--device", "sim", "--force", "-o", b.path("run"), "--", "true"); !strings.Contains(message, name+" is still at work): choose another directory") {
			t.Errorf("record --force says %q", message)
		}
		if err := os.Remove(b.path("lock")); err != nil {
			t.Fatal(err)
		}
		b.mustExit(0, "recover", "--wait", b.path("run"))
		if !b.exists("done") {
			t.Error("recover --wait did not wait for the job")
		}
		if got := len(b.recorded("run")); got != 1 {
			t.Errorf("late %v: %d allocations recorded, want 1", late, got)
		}
		b.mustExit(0, "verify", b.path("run"))
	}
}

// TestRecoverNow: what lives on and is of no interest need not be waited for.
func TestRecoverNow(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.startAndKill("sh", "-c", b.job+" alloc a 1M; "+b.job+" touch "+b.path("ready")+" wait "+b.path("lock"))
	b.mustExit(2, "recover", "--now", "--wait", b.path("run"))
	b.mustExit(0, "recover", "--now", b.path("run"))
	if got := len(b.recorded("run")); got != 1 || b.exists("run/spool") {
		t.Errorf("%d allocations recorded, want 1; the spool is there: %v", got, b.exists("run/spool"))
	}
	if err := os.Remove(b.path("lock")); err != nil {
		t.Fatal(err)
	}
}

// TestForceInProgress: a recording that is being made is not replaced, and ends whole.
func TestForceInProgress(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	mustWrite(t, b.path("lock"), "")
	cmd, _, stderr := b.start("log", b.path("log"), "alloc", "a", "1M", "touch", b.path("ready"), "wait", b.path("lock"), "alloc", "b", "2M")
	for _, force := range [][]string{nil, {"--force"}} {
		args := append(append([]string{"record", "--device", "sim"}, force...), "-o", b.path("run"), "--", "touch", b.path("started"))
		if message := b.mustExit(2, args...); !strings.Contains(message, "is being recorded (its recorder is still at work)") {
			t.Errorf("record %v says %q", force, message)
		}
	}
	if err := os.Remove(b.path("lock")); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, stderr)
	}
	if b.exists("started") {
		t.Error("the job of the second recorder was started")
	}
	b.sameStart("run", "log", 0)
	b.mustExit(0, "verify", b.path("run"))
	if err := exec.Command("memprof", "recover", b.path("run")).Run(); err != nil {
		t.Error(err)
	}
}
