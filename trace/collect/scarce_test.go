package collect_test

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/collect"
	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/tracetest"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// withDescriptors runs a function while this process can open so many files more.
func withDescriptors(t *testing.T, more int, run func()) {
	t.Helper()
	next, err := os.Open(os.DevNull)
	assert.NoError(t, err)
	lowest := int(next.Fd())
	next.Close()
	var limit unix.Rlimit
	assert.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	defer func() {
		assert.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &limit))
	}()
	assert.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(lowest + more), Max: limit.Max}))
	run()
}

// Wherever file descriptors run out, the collector loses nothing: what it could not open it opens later, and an end without
// any says what to do.
func TestOutOfDescriptors(t *testing.T) {
	const n = 3000
	events, texts := tracetest.Training(n)
	for more := range 12 {
		dir, spool := newRun(t)
		s := tracetest.NewSpool(t, spool, 4711, 0)
		fill(s, events, texts)
		c := newCollector(t, dir, dataset.WriterOptions{PartEvents: 1000})
		withDescriptors(t, more, func() {
			for range 4 { // the process is dead: the third poll completes its last part
				c.Poll()
			}
		})
		summary, err := c.Finish()
		assert.Must(t, err == nil, "%d descriptors: %v", more, err)
		assert.That(t, len(summary.Problems) <= 0, "%d descriptors: %q", more, summary.Problems)
		p := tracetest.One(t, dir)
		tracetest.Same(t, p, events, texts)
		assert.Must(t, !t.Failed() && p.Name == "rank0", "with %d descriptors, of %s", more, p.Name)
	}
}

// A recording that ends without descriptors stays recoverable, and says so.
func TestEndOutOfDescriptors(t *testing.T) {
	events, texts := tracetest.Training(100)
	for more := range 6 {
		dir, spool := newRun(t)
		s := tracetest.NewSpool(t, spool, 4711, 0)
		fill(s, events, texts)
		c := newCollector(t, dir, dataset.WriterOptions{})
		var err error
		withDescriptors(t, more, func() { _, err = c.Convert() })
		if err == nil {
			t.Logf("%d descriptors are enough", more)
			continue
		}
		assert.That(t, errors.Is(err, trace.ErrScarce) && !errors.Is(err, trace.ErrDamaged), "%d descriptors: %v, want ErrScarce", more, err)
		if _, err := collect.Recover(t.Context(), dir, false); err != nil {
			t.Fatalf("%d descriptors: %v", more, err)
		}
		p := tracetest.One(t, dir)
		assert.That(t, p.Events == 100, "%d descriptors: %d events, want 100", more, p.Events)
	}
}
