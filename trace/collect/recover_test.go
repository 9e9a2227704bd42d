package collect_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/collect"
	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/spool"
	"github.com/memprof/memprof/trace/tracetest"
)

// TestRecoverAfterFailedEnd: record has renamed the spool and written the job's exit status, and a process
// that began late could not be converted.
func TestRecoverAfterFailedEnd(t *testing.T) {
	dir, spool := newRun(t)
	events, texts := tracetest.Training(500)
	fill(tracetest.NewSpool(t, spool, 4711, 0), events, texts)
	if err := os.Rename(spool, filepath.Join(dir, "spool-finished")); err != nil {
		t.Fatal(err)
	}
	info, err := dataset.ReadInfo(dir)
	if err != nil {
		t.Fatal(err)
	}
	info.ExitStatus = new(int)
	if err := dataset.WriteInfo(dir, info); err != nil {
		t.Fatal(err)
	}
	if _, err := collect.Recover(context.Background(), dir, false); err != nil {
		t.Fatal(err)
	}
	if p := tracetest.One(t, dir); p.Events != 500 {
		t.Errorf("%d events, want 500", p.Events)
	}
	if _, err := os.Lstat(filepath.Join(dir, "spool-finished")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the spool is still there: %v", err)
	}
}

// TestSpoolElsewhereIsAway: the disk of the spool is not mounted. No part of the recording may be taken for all
// of it, and the link stays, by which recover finds the spool later.
func TestSpoolElsewhereIsAway(t *testing.T) {
	dir, spoolDir := newRun(t)
	if err := os.Remove(spoolDir); err != nil {
		t.Fatal(err)
	}
	spools := t.TempDir()
	if err := spool.Make(dir, spools); err != nil {
		t.Fatal(err)
	}
	events, texts := tracetest.Training(500)
	fill(tracetest.NewSpool(t, spoolDir, 4711, 0), events, texts)
	away := spools + ".away"
	if err := os.Rename(spools, away); err != nil {
		t.Fatal(err)
	}
	for verb, err := range map[string]error{
		"recover": second(collect.Recover(context.Background(), dir, false)),
		"open":    second(dataset.Open(dir)),
	} {
		if !errors.Is(err, trace.ErrUnfinished) || !strings.Contains(err.Error(), "its spool is in "+spools) {
			t.Errorf("%s: %v", verb, err)
		}
	}
	if err := os.Rename(away, spools); err != nil {
		t.Fatal(err)
	}
	if _, err := collect.Recover(context.Background(), dir, false); err != nil {
		t.Fatal(err)
	}
	if p := tracetest.One(t, dir); p.Events != 500 {
		t.Errorf("%d events, want 500", p.Events)
	}
}

func second[T any](_ T, err error) error { return err }
