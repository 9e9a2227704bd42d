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
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// TestRecoverAfterFailedEnd: record has renamed the spool and written the job's exit status, and a process
// that began late could not be converted.
func TestRecoverAfterFailedEnd(t *testing.T) {
	dir, spool := newRun(t)
	events, texts := tracetest.Training(500)
	fill(tracetest.NewSpool(t, spool, 4711, 0), events, texts)
	assert.NoError(t, os.Rename(spool, filepath.Join(dir, "spool-finished")))
	info, err := dataset.ReadInfo(dir)
	assert.NoError(t, err)
	info.ExitStatus = new(int)
	assert.NoError(t, dataset.WriteInfo(dir, info))
	recovered(t, dir)
	p := tracetest.One(t, dir)
	assert.That(t, p.Events == 500, "%d events, want 500", p.Events)
	if _, err := os.Lstat(filepath.Join(dir, "spool-finished")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the spool is still there: %v", err)
	}
}

// TestSpoolElsewhereIsAway: the disk of the spool is not mounted. No part of the recording may be taken for all
// of it, and the link stays, by which recover finds the spool later.
func TestSpoolElsewhereIsAway(t *testing.T) {
	dir, spoolDir := newRun(t)
	assert.NoError(t, os.Remove(spoolDir))
	spools := t.TempDir()
	assert.NoError(t, spool.Make(dir, spools))
	events, texts := tracetest.Training(500)
	fill(tracetest.NewSpool(t, spoolDir, 4711, 0), events, texts)
	away := spools + ".away"
	assert.NoError(t, os.Rename(spools, away))
	for verb, err := range map[string]error{
		"recover": second(collect.Recover(context.Background(), dir, false)),
		"open":    second(dataset.Open(dir)),
	} {
		assert.That(t, errors.Is(err, trace.ErrUnfinished) && strings.Contains(err.Error(), "its spool is in "+spools), "%s: %v", verb, err)
	}
	assert.NoError(t, os.Rename(away, spools))
	recovered(t, dir)
	p := tracetest.One(t, dir)
	assert.That(t, p.Events == 500, "%d events, want 500", p.Events)
}

func second[T any](_ T, err error) error { return err }
