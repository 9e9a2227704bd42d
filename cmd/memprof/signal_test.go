package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"

	"github.com/memprof/memprof/trace/tracetest/assert"
)

// start begins a recording and returns when the job has done what stands before `touch
// ready` on its command line.
func (b *bench) start(words ...string) (cmd *exec.Cmd, stdout, stderr *bytes.Buffer) {
	b.Helper()
	args := append([]string{"record", "--device", "sim", "-o", b.path("run"), "--", b.job}, words...)
	cmd, stderr = b.memprof(args...)
	stdout = &bytes.Buffer{}
	cmd.Stdout = stdout
	// A signal ignored here would be ignored in memprof, too, as under nohup. A caught one has
	// its default action there.
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGHUP)
	b.Cleanup(func() { signal.Stop(caught) })
	// Away from the terminal: without a terminal every signal is forwarded.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	assert.NoError(b, cmd.Start())
	b.waitUntil("the job is ready", func() bool { return b.exists("ready") })
	return cmd, stdout, stderr
}

func TestSignalsAreForwarded(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGUSR1} {
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			// The first sleep ends early when the signal arrives.
			cmd, stdout, stderr := b.start("catch", "alloc", "a", "1M", "touch", b.path("ready"), "sleep", "60000", "exit", "5")
			assert.NoError(t, cmd.Process.Signal(signal))
			code := exitOf(cmd.Wait())
			assert.That(t, code == 5, "exit code %d, want the job's 5\n%s", code, stderr)
			want := fmt.Sprintf("signal %d\n", signal)
			assert.That(t, stdout.String() == want, "the job printed %q, want %q", stdout, want)
			got := b.recorded("run")
			assert.That(t, len(got) == 1, "%d allocations recorded, want 1", len(got))
		})
	}
}

func TestSignalEndsJob(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR2} {
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			cmd, _, stderr := b.start("alloc", "a", "1M", "touch", b.path("ready"), "sleep", "60000")
			assert.NoError(t, cmd.Process.Signal(signal))
			code := exitOf(cmd.Wait())
			assert.That(t, code == 128+int(signal), "exit code %d, want %d\n%s", code, 128+int(signal), stderr)
			b.mustExit(0, "verify", b.path("run"))
		})
	}
}

// TestClosedStderr is `memprof record … 2>&1 | head -1`: the job goes on.
func TestClosedStderr(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	cmd, _ := b.memprof("record", "--device", "sim", "-o", b.path("run"), "--", b.job, "alloc", "a", "1M", "exit", "6")
	cmd.Stderr = nil
	pipe, err := cmd.StderrPipe()
	assert.NoError(t, err)
	assert.NoError(t, cmd.Start())
	pipe.Close()
	assert.Equal(t, exitOf(cmd.Wait()), 6, "exit code")
	got := b.recorded("run")
	assert.That(t, len(got) == 1, "%d allocations recorded, want 1", len(got))
}

// TestPipeOfJob: a job that writes into a closed pipe is ended by it, as without memprof.
func TestPipeOfJob(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	cmd, stderr := b.memprof("record", "--device", "sim", "-o", b.path("run"), "--", "sh", "-c", "sleep 0.1; exec yes")
	reader, writer, err := os.Pipe()
	assert.NoError(t, err)
	cmd.Stdout = writer
	reader.Close()
	err = cmd.Run()
	writer.Close()
	code := exitOf(err)
	assert.That(t, code == 128+int(syscall.SIGPIPE), "exit code %d, want that of SIGPIPE\n%s", code, stderr)
}
