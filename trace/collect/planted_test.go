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
)

// TestCollectorFollowsNoLink: links with the names of what a collector writes lead it nowhere.
func TestCollectorFollowsNoLink(t *testing.T) {
	const n = 90_000
	dir, spool := newRun(t)
	s := tracetest.NewSpool(t, spool, 4711, 0)
	events, texts := tracetest.Training(n)
	fill(s, events, texts)
	precious := filepath.Join(t.TempDir(), "precious")
	if err := os.WriteFile(precious, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{
		filepath.Join(s.Dir, "strings.tmp"),
		filepath.Join(dir, ".ballast."+tracetest.RunID),
		filepath.Join(dir, ".run.json."+tracetest.RunID+".tmp"),
		filepath.Join(dir, "rank0-0000."+tracetest.RunID+".parquet.tmp"),
		filepath.Join(dir, "rank0-0001."+tracetest.RunID+".parquet.tmp"),
	} {
		if err := os.Symlink(precious, path); err != nil {
			t.Fatal(err)
		}
	}
	c := newCollector(t, dir, dataset.WriterOptions{PartEvents: 40_000})
	if err := os.Symlink(precious, filepath.Join(dir, "rank0-0002."+tracetest.RunID+".parquet.tmp")); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Poll(); err != nil {
		t.Fatal(err)
	}
	if got := segments(t, s); got != 1 {
		t.Errorf("%d segments are left, want 1: strings was not written", got)
	}
	c.Kill()
	if _, err := collect.Recover(context.Background(), dir, false); err != nil {
		t.Fatal(err)
	}
	if got := tracetest.One(t, dir).Events; got != n {
		t.Errorf("%d events, want %d", got, n)
	}
	if text, err := os.ReadFile(precious); err != nil || string(text) != "precious" {
		t.Errorf("the file that the links lead to: %.60q, %v", text, err)
	}
}

// TestPipesInPlace: a pipe is refused and not waited for.
func TestPipesInPlace(t *testing.T) {
	for _, name := range []string{"run.json", "rank0-0000.parquet"} {
		dir := t.TempDir()
		tracetest.WriteRun(t, dir, tracetest.Process{})
		path := filepath.Join(dir, name)
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		mkfifo(t, path)
		if _, err := dataset.Open(dir); err == nil {
			t.Errorf("%s may be a pipe", name)
		}
	}
	for _, name := range []string{"process", "strings", "000000.seg"} {
		dir, spool := newRun(t)
		s := tracetest.NewSpool(t, spool, 4711, 0)
		s.Append(trace.Event{Kind: trace.KindAlloc}, "")
		s.Close()
		os.Remove(filepath.Join(s.Dir, name))
		mkfifo(t, filepath.Join(s.Dir, name))
		if _, err := collect.Recover(context.Background(), dir, false); err == nil {
			t.Errorf("%s in the spool may be a pipe", name)
		}
	}
}

// TestPipeInPlaceOfProcess: a Follower does not block on a pipe either.
func TestPipeInPlaceOfProcess(t *testing.T) {
	dir, spool := newRun(t)
	s := tracetest.NewSpool(t, spool, 4711, 0)
	s.Append(trace.Event{Kind: trace.KindAlloc}, "")
	follower, err := collect.Follow(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer follower.Close()
	processes, err := follower.Processes()
	if err != nil || len(processes) != 1 {
		t.Fatalf("%v, %v, want one process", processes, err)
	}
	if err := os.RemoveAll(s.Dir); err != nil {
		t.Fatal(err)
	}
	mkfifo(t, s.Dir)
	if err := processes[0].Poll(func(int64) {}, func(*trace.Event) error { return nil }); err != nil || !processes[0].Ended() {
		t.Errorf("%v, want that the process has ended", err)
	}
}

func mkfifo(t *testing.T, path string) {
	t.Helper()
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
}
