package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/memprof/memprof/trace/tracetest/assert"
)

// startAndKill begins a recording with a job that waits before its first CUDA call, and kills the recorder there. The
// job goes on when the file lock is gone.
func (b *bench) startAndKill(job ...string) {
	b.Helper()
	mustWrite(b.T, b.path("lock"), "")
	cmd, _ := b.memprof(append([]string{"record", "--device", "sim", "-o", b.path("run"), "--"}, job...)...)
	cmd.Stderr = nil // a pipe would be held open by the job
	assert.NoError(b, cmd.Start())
	b.waitUntil("the job waits", func() bool { return b.exists("ready") })
	assert.NoError(b, cmd.Process.Kill())
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
		if message := b.mustExit(2, "record", "--finish", b.path("run")); !strings.Contains(message, "a recorded process is still running (process ") || !strings.Contains(message, name+" may still begin to record)") {
			t.Errorf("recover says %q", message)
		}
		if message := b.mustExit(2, "record", "--device", "sim", "--force", "-o", b.path("run"), "--", "true"); !strings.Contains(message, name+" is still at work): choose another directory") {
			t.Errorf("record --force says %q", message)
		}
		assert.NoError(t, os.Remove(b.path("lock")))
		b.mustExit(0, "record", "--finish", b.path("run"), "--wait")
		assert.That(t, b.exists("done"), "recover --wait did not wait for the job")
		got := len(b.recorded("run"))
		assert.That(t, got == 1, "late %v: %d allocations recorded, want 1", late, got)
		b.mustExit(0, "verify", b.path("run"))
	}
}

// TestOutlived: a process that the command leaves behind, and that has made no CUDA call yet, is not recorded from then on. The
// recording says so, and does not of one whose events it has.
func TestOutlived(t *testing.T) {
	t.Parallel()
	for _, before := range []bool{false, true} {
		b := newBench(t)
		mustWrite(t, b.path("lock"), "")
		uses := ""
		if before {
			uses = " alloc a 1M"
		}
		cmd, stderr := b.memprof("record", "--device", "sim", "-o", b.path("run"), "--", "sh", "-c",
			b.job+uses+" touch "+b.path("ready")+" wait "+b.path("lock")+" alloc b 1M </dev/null >/dev/null 2>&1 & until test -e "+b.path("ready")+"; do sleep 0.01; done")
		err := cmd.Run()
		assert.Must(t, err == nil, "%v: %s", err, stderr)
		const want = "(job) outlived the command and had not used the GPU: what it allocates from now on is not recorded"
		got := strings.Contains(stderr.String(), want)
		assert.That(t, got != before, "used the GPU before: %t, and the end says %q", before, stderr)
		assert.NoError(t, os.Remove(b.path("lock")))
	}
}

// TestRecoverNow: what lives on and is of no interest need not be waited for.
func TestRecoverNow(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.startAndKill("sh", "-c", b.job+" alloc a 1M; "+b.job+" touch "+b.path("ready")+" wait "+b.path("lock"))
	b.mustExit(2, "record", "--finish", b.path("run"), "--now", "--wait")
	b.mustExit(0, "record", "--finish", b.path("run"), "--now")
	got := len(b.recorded("run"))
	assert.That(t, got == 1 && !b.exists("run/spool"), "%d allocations recorded, want 1; the spool is there: %v", got, b.exists("run/spool"))
	assert.NoError(t, os.Remove(b.path("lock")))
}

// TestForceInProgress: a recording that is being made is not replaced, and ends whole.
func TestForceInProgress(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	mustWrite(t, b.path("lock"), "")
	cmd, _, stderr := b.start("log", b.path("log"), "alloc", "a", "1M", "touch", b.path("ready"), "wait", b.path("lock"), "alloc", "b", "2M")
	for _, force := range [][]string{nil, {"--force"}} {
		args := append(append([]string{"record", "--device", "sim"}, force...), "-o", b.path("run"), "--", "touch", b.path("started"))
		message := b.mustExit(2, args...)
		assert.That(t, strings.Contains(message, "is being recorded (its recorder is still at work)"), "record %v says %q", force, message)
	}
	assert.NoError(t, os.Remove(b.path("lock")))
	err := cmd.Wait()
	assert.Must(t, err == nil, "%v\n%s", err, stderr)
	assert.That(t, !b.exists("started"), "the job of the second recorder was started")
	b.sameStart("run", "log", 0)
	b.mustExit(0, "verify", b.path("run"))
	if err := exec.Command("memprof", "record", "--finish", b.path("run")).Run(); err != nil {
		t.Error(err)
	}
}
