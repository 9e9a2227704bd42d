package collect_test

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/collect"
	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/tracetest"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// TestCollectorFollowsNoLink: links with the names of what a collector writes lead it nowhere.
func TestCollectorFollowsNoLink(t *testing.T) {
	const n = 90_000
	dir, spool := newRun(t)
	s := tracetest.NewSpool(t, spool, 4711, 0)
	events, texts := tracetest.Training(n)
	fill(s, events, texts)
	precious := filepath.Join(t.TempDir(), "precious")
	assert.NoError(t, os.WriteFile(precious, []byte("precious"), 0o600))
	for _, path := range []string{
		filepath.Join(s.Dir, "strings.tmp"),
		filepath.Join(dir, ".ballast."+tracetest.RunID),
		filepath.Join(dir, ".run.json."+tracetest.RunID+".tmp"),
		filepath.Join(dir, "rank0-0000."+tracetest.RunID+".parquet.tmp"),
		filepath.Join(dir, "rank0-0001."+tracetest.RunID+".parquet.tmp"),
	} {
		assert.NoError(t, os.Symlink(precious, path))
	}
	c := newCollector(t, dir, dataset.WriterOptions{PartEvents: 40_000})
	assert.NoError(t, os.Symlink(precious, filepath.Join(dir, "rank0-0002."+tracetest.RunID+".parquet.tmp")))
	must(t, c.Poll)
	got := segments(t, s)
	assert.That(t, got == 1, "%d segments are left, want 1: strings was not written", got)
	c.Kill()
	recovered(t, dir)
	assert.Equal(t, tracetest.One(t, dir).Events, n)
	text, err := os.ReadFile(precious)
	assert.That(t, err == nil && string(text) == "precious", "the file that the links lead to: %.60q, %v", text, err)
}

// TestPipesInPlace: a pipe is refused and not waited for.
func TestPipesInPlace(t *testing.T) {
	for _, name := range []string{"run.json", "rank0-0000.parquet"} {
		dir := t.TempDir()
		tracetest.WriteRun(t, dir, tracetest.Process{})
		path := filepath.Join(dir, name)
		assert.NoError(t, os.Remove(path))
		mkfifo(t, path)
		_, err := dataset.Open(dir)
		assert.That(t, err != nil, "%s may be a pipe", name)
	}
	for _, name := range []string{"process", "strings", "000000.seg"} {
		dir, spool := newRun(t)
		s := tracetest.NewSpool(t, spool, 4711, 0)
		s.Append(trace.Event{Kind: trace.KindAlloc}, "")
		s.Close()
		os.Remove(filepath.Join(s.Dir, name))
		mkfifo(t, filepath.Join(s.Dir, name))
		_, err := collect.Recover(context.Background(), dir, false)
		assert.That(t, err != nil, "%s in the spool may be a pipe", name)
	}
}

// TestPipeInPlaceOfProcess: a Follower does not block on a pipe either.
func TestPipeInPlaceOfProcess(t *testing.T) {
	dir, spool := newRun(t)
	s := tracetest.NewSpool(t, spool, 4711, 0)
	s.Append(trace.Event{Kind: trace.KindAlloc}, "")
	follower, err := collect.Follow(dir)
	assert.NoError(t, err)
	defer follower.Close()
	processes, err := follower.Processes()
	assert.Must(t, err == nil && len(processes) == 1, "%v, %v, want one process", processes, err)
	assert.NoError(t, os.RemoveAll(s.Dir))
	mkfifo(t, s.Dir)
	if err := processes[0].Poll(func(int64) {}, func(*trace.Event) error { return nil }); err != nil || !processes[0].Ended() {
		t.Errorf("%v, want that the process has ended", err)
	}
}

func mkfifo(t *testing.T, path string) {
	t.Helper()
	assert.NoError(t, syscall.Mkfifo(path, 0o600))
}
