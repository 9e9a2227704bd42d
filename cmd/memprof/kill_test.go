package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/tracetest"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// request is an allocation that succeeded: where, and how much was asked for.
type request struct{ Addr, Bytes int64 }

// bench is a machine for tests that kill: memprof, the job and a directory for both.
type bench struct {
	*testing.T
	job, cache, dir string
}

func newBench(t *testing.T) *bench {
	needHook(t)
	return &bench{T: t, job: buildJob(t), cache: cache, dir: t.TempDir()}
}

// part is the bench of a subtest that runs beside others: it has the same job and cache, and a directory of its own.
func (b *bench) part(t *testing.T) *bench {
	t.Parallel()
	return &bench{T: t, job: b.job, cache: b.cache, dir: t.TempDir()}
}

func (b *bench) path(name string) string { return filepath.Join(b.dir, name) }

// memprof prepares a command; its stderr is collected in the buffer.
func (b *bench) memprof(args ...string) (*exec.Cmd, *bytes.Buffer) {
	cmd := exec.Command("memprof", args...)
	cmd.Env = append(os.Environ(), "MEMPROF_CACHE="+b.cache)
	stderr := &bytes.Buffer{}
	cmd.Stderr = stderr
	return cmd, stderr
}

// logged are the allocations that had returned in the job, by its own account.
func (b *bench) logged(file string) []request {
	b.Helper()
	text, err := os.ReadFile(b.path(file))
	assert.NoError(b, err)
	// A line across two pages may have been cut by the kill; those before it are whole.
	text = text[:bytes.LastIndexByte(text, '\n')+1]
	var requests []request
	for line := range strings.Lines(string(text)) {
		var r request
		if _, err := fmt.Sscan(line, &r.Addr, &r.Bytes); err != nil {
			b.Fatalf("line %q of the job's log: %v", line, err)
		}
		requests = append(requests, r)
	}
	return requests
}

// recorded are the allocations in the trace.
func (b *bench) recorded(dir string) []request {
	b.Helper()
	run, err := dataset.Open(b.path(dir))
	assert.NoError(b, err)
	assert.Must(b, len(run.Processes) == 1, "%d processes recorded, want 1", len(run.Processes))
	reader, err := run.Processes[0].NewReader()
	assert.NoError(b, err)
	defer reader.Close()
	var requests []request
	for {
		batch, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return requests
		}
		assert.NoError(b, err)
		for i := range batch.Len() {
			if e := batch.Event(i); e.Kind == trace.KindAlloc {
				requests = append(requests, request{e.Addr, e.Requested})
			}
		}
	}
}

// waitUntil polls for a condition of another process, for two minutes at most.
func (b *bench) waitUntil(what string, met func() bool) {
	b.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !met(); time.Sleep(time.Millisecond) {
		assert.Must(b, !time.Now().After(deadline), "gave up waiting until %s", what)
	}
}

func (b *bench) exists(name string) bool {
	_, err := os.Stat(b.path(name))
	return err == nil
}

func (b *bench) grown(name string) bool {
	info, err := os.Stat(b.path(name))
	return err == nil && info.Size() > 0
}

// childOf is the job below a running memprof.
func (b *bench) childOf(memprof *exec.Cmd) int {
	b.Helper()
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", memprof.Process.Pid))
	assert.NoError(b, err)
	for _, task := range tasks {
		text, err := os.ReadFile(task)
		if err != nil {
			continue
		}
		if fields := strings.Fields(string(text)); len(fields) > 0 {
			pid, err := strconv.Atoi(fields[0])
			assert.NoError(b, err)
			return pid
		}
	}
	b.Fatal("memprof has no child")
	return 0
}

func exitOf(err error) int {
	var ended *exec.ExitError
	if errors.As(err, &ended) {
		return ended.ExitCode()
	}
	if err != nil {
		return -1
	}
	return 0
}

func (b *bench) mustExit(code int, args ...string) string {
	b.Helper()
	cmd, stderr := b.memprof(args...)
	if got := exitOf(cmd.Run()); got != code {
		b.Fatalf("memprof %s: exit code %d, want %d\n%s", strings.Join(args, " "), got, code, stderr)
	}
	return stderr.String()
}

// sameStart demands that the trace has everything the job was given, and at most the one
// allocation more that had not returned yet.
func (b *bench) sameStart(dir, log string, more int) {
	b.Helper()
	got, want := b.recorded(dir), b.logged(log)
	assert.Must(b, len(want) > 0, "the job has logged nothing")
	assert.Must(b, len(got) >= len(want) && len(got) <= len(want)+more, "%d allocations in the trace, %d had returned", len(got), len(want))
	if diff := cmp.Diff(want, got[:len(want)]); diff != "" {
		b.Errorf("allocations (-returned +recorded):\n%s", diff)
	}
}

func TestKilledJob(t *testing.T) {
	t.Parallel()
	long, random := tracetest.Campaign(t)
	seed := random.Uint64()
	rounds := 6
	if testing.Short() {
		rounds = 2
	}
	b := newBench(t)
	tracetest.Rounds(t, long, rounds, func(round int) {
		dir, log := fmt.Sprintf("run%d", round), fmt.Sprintf("log%d", round)
		cmd, stderr := b.memprof("record", "--device", "sim", "-o", b.path(dir), "--", b.job, "log", b.path(log), "churn", fmt.Sprint(seed), "1000000000")
		assert.NoError(t, cmd.Start())
		b.waitUntil("the job has allocated", func() bool { return b.grown(log) })
		time.Sleep(time.Duration(random.IntN(200_000)) * time.Microsecond)
		assert.NoError(t, syscall.Kill(b.childOf(cmd), syscall.SIGKILL))
		code := exitOf(cmd.Wait())
		assert.Must(t, code == 128+9, "record of a killed job: exit code %d, want 137\n%s", code, stderr)
		b.sameStart(dir, log, 1)
		b.mustExit(0, "verify", b.path(dir))
		for _, name := range []string{dir, log} { // a campaign has many
			assert.NoError(t, os.RemoveAll(b.path(name)))
		}
	})
}

func TestKilledCollector(t *testing.T) {
	for _, elsewhere := range []bool{false, true} {
		t.Run(fmt.Sprintf("spool elsewhere %v", elsewhere), func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			args := []string{"record", "--device", "sim", "-o", b.path("run")}
			if elsewhere {
				args = append(args, "--spool", b.path("spools"))
			}
			// More than one segment of 65,536 records, so that some are in a part already.
			args = append(args, "--", b.job, "log", b.path("log"), "churn", "7", "90000", "touch", b.path("half"), "wait", b.path("lock"), "churn", "8", "90000", "touch", b.path("done"))
			assert.NoError(t, os.WriteFile(b.path("lock"), nil, 0o600))
			cmd, _ := b.memprof(args...)
			cmd.Stderr = nil // a pipe would be held open by the job
			assert.NoError(t, cmd.Start())
			b.waitUntil("the job is half done", func() bool { return b.exists("half") })
			assert.NoError(t, cmd.Process.Kill())
			cmd.Wait() // killed: an error is its usual end
			assert.NoError(t, os.Remove(b.path("lock")))
			b.waitUntil("the job is done without its recorder", func() bool { return b.exists("done") })

			b.waitUntil("the job has gone", func() bool { // until then a report covers it up to now
				verify, _ := b.memprof("verify", b.path("run")) // report would complete it
				return verify.Run() != nil
			})
			message := b.mustExit(2, "verify", b.path("run"))
			assert.That(t, strings.Contains(message, "memprof record --finish"), "verify of an unfinished recording does not name recover: %s", message)
			b.waitUntil("it is recovered", func() bool {
				recover, _ := b.memprof("record", "--finish", b.path("run"))
				return recover.Run() == nil
			})
			b.sameStart("run", "log", 0)
			b.mustExit(0, "verify", b.path("run"))
			left, _ := filepath.Glob(b.path("spools/*"))
			assert.That(t, len(left) <= 0, "recover left %v", left)
		})
	}
}
