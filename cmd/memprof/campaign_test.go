package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/memprof/memprof/trace/tracetest"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// killer runs memprof and kills it at a system call; see testdata/killer.c.
type killer struct {
	program, out string
}

func newKiller(t *testing.T) *killer {
	t.Helper()
	k := &killer{program: compile(t, "killer", "testdata/killer.c"), out: filepath.Join(t.TempDir(), "out")}
	if out, err := exec.Command(k.program, k.out, "every", "0", "true").CombinedOutput(); err != nil {
		t.Skipf("no process may be traced here: %v\n%s", err, out)
	}
	return k
}

// run starts memprof, kills it at the call with this number, from 1 on, or lets it run with 0, and waits until its job has
// ended, too. It returns whether it was killed, how many calls there were, and what it printed.
func (k *killer) run(t *testing.T, calls string, at int, env []string, args ...string) (killed bool, count int, said string) {
	t.Helper()
	cmd := exec.Command(k.program, append([]string{k.out, calls, strconv.Itoa(at), "memprof"}, args...)...)
	cmd.Env = append(os.Environ(), env...)
	// A file, not a pipe, which the job of a killed recorder would hold open.
	log, err := os.Create(k.out + ".log")
	assert.NoError(t, err)
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	code := exitOf(cmd.Run())
	text, err := os.ReadFile(k.out + ".log")
	assert.NoError(t, err)
	assert.Must(t, code == 0 || code == 128+9, "memprof %q, to be killed at call %d: exit code %d\n%s", args, at, code, text)
	counted, err := os.ReadFile(k.out)
	assert.NoError(t, err)
	var last int
	if _, err := fmt.Sscan(string(counted), &count, &last); err != nil {
		t.Fatalf("%q: %v", counted, err)
	}
	return code != 0, count, fmt.Sprintf("%s(the last system call was number %d)", text, last)
}

// A command that was killed may have started its job just before, and the test that follows must find it gone.
func TestKillerWaits(t *testing.T) {
	notShort(t)
	k := newKiller(t)
	done := k.out + ".done"
	out, err := exec.Command(k.program, k.out, "every", "0", "sh", "-c", "(sleep 0.2; touch "+done+") >/dev/null 2>&1 &").CombinedOutput()
	assert.Must(t, err == nil, "%v\n%s", err, out)
	if _, err := os.Stat(done); err != nil {
		t.Errorf("a process that the command has started still runs: %v", err)
	}
}

// each calls try with the numbers of calls at which memprof is to be killed: in the short form with every third call
// that changes files, from one of the first three on; in the long one with all of these, and as many of all calls as there is time
// for, in random order.
func (k *killer) each(t *testing.T, count func(calls string) int, try func(calls string, at int)) {
	t.Helper()
	long, random := tracetest.Campaign(t)
	tried, first, step := 0, 1, 1
	if long == 0 {
		first, step = 1+random.IntN(3), 3
	}
	n := count("changing")
	for at := first; at <= n && !t.Failed(); at += step {
		try("changing", at)
		tried++
	}
	if long == 0 {
		t.Logf("killed at %d of %d system calls that change files", tried, n)
		return
	}
	tried = 0
	n = count("every")
	end := time.Now().Add(long)
	for _, i := range random.Perm(n) {
		if t.Failed() || time.Now().After(end) {
			break
		}
		try("every", i+1)
		tried++
	}
	t.Logf("killed at %d of %d system calls", tried, n)
}
