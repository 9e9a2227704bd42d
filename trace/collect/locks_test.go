package collect_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/collect"
	"github.com/memprof/memprof/trace/tracetest"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// Whatever lock the hook has on the process file, the process lives as long as it is held.
func TestLocksThatSayAlive(t *testing.T) {
	for name, lock := range map[string]func(f *os.File) error{
		"open file": func(f *os.File) error {
			return unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK})
		},
		"flock": func(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX) },
	} {
		t.Run(name, func(t *testing.T) {
			dir, spool := newRun(t)
			s := tracetest.NewSpool(t, spool, 4711, 0)
			s.Append(trace.Event{Kind: trace.KindAlloc}, "")
			f, err := os.OpenFile(filepath.Join(s.Dir, "process"), os.O_RDWR, 0)
			assert.NoError(t, err)
			assert.NoError(t, lock(f))
			for range 2 { // to look takes nothing away
				_, err := collect.Recover(context.Background(), dir, false)
				assert.That(t, errors.Is(err, trace.ErrAlive), "recover: %v, want ErrAlive", err)
			}
			f.Close()
			if _, err := collect.Recover(context.Background(), dir, false); err != nil {
				t.Error(err)
			}
		})
	}
}

// A problems file of today's hook is mapped, with room for more lines.
func TestProblemsEndWithZeros(t *testing.T) {
	dir, spool := newRun(t)
	s := tracetest.NewSpool(t, spool, 4711, 0)
	s.Append(trace.Event{Kind: trace.KindAlloc}, "")
	s.Problem("one\ntwo")
	assert.NoError(t, os.Truncate(filepath.Join(s.Dir, "problems"), 65536))
	summary := recovered(t, dir)
	got, want := summary.Problems, []string{"rank0: one", "rank0: two"}
	assert.That(t, len(got) == 2 && got[0] == want[0] && got[1] == want[1], "%q, want %q", got, want)
}
