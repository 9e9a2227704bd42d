package dataset_test

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

// writeReadings makes a run of one rank with readings of three events beside it.
func writeReadings(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	events, texts := tracetest.Training(100)
	used := func(time, bytes int64, context int32) trace.Event {
		return trace.Event{Kind: trace.KindDeviceUsed, Time: time, Requested: 80 << 30, Provided: bytes, Arena: trace.NoArena, Context: context}
	}
	tracetest.WriteRun(t, dir,
		tracetest.Process{Events: events, Texts: texts, Meta: dataset.ProcessMeta{Rank: 0, PID: 4711}},
		tracetest.Process{
			Meta:    dataset.ProcessMeta{Name: dataset.ReadingsName, Rank: -1, LocalRank: -1, WorldSize: -1},
			Events:  []trace.Event{used(0, 500, 1), used(256, 900, 1), used(256, 400, 2)},
			Texts:   []string{"", "all=1", "pid=4711"},
			Options: dataset.WriterOptions{PartEvents: 2},
		})
	return dir
}

func readingsPart(dir string, number string) string {
	return filepath.Join(dir, "device-000"+number+".parquet")
}

func TestReadingsAreNoProcess(t *testing.T) {
	dir := writeReadings(t)
	run, err := dataset.Open(dir)
	assert.NoError(t, err)
	assert.Must(t, len(run.Processes) == 1 && run.Processes[0].Name == "rank0", "processes %v, want rank0 alone", run.Processes)
	assert.Must(t, run.ReadingsErr == nil && run.Readings != nil, "no readings: %v", run.ReadingsErr)
	rows, err := run.Readings.ReadAll()
	assert.NoError(t, err)
	assert.That(t, len(rows) == 3 && rows[2].Provided == 400 && run.Readings.Strings().Text(rows[2].Context) == "pid=4711", "readings %+v", rows)
	if _, err := dataset.Open(readingsPart(dir, "0")); !errors.Is(err, trace.ErrEmpty) {
		t.Errorf("a part of readings alone: %v, want ErrEmpty", err)
	}
	assert.NoError(t, os.Remove(filepath.Join(dir, "rank0-0000.parquet")))
	if _, err := dataset.Open(dir); !errors.Is(err, trace.ErrEmpty) {
		t.Errorf("a run of readings alone: %v, want ErrEmpty", err)
	}
}

func TestReadingsTroubleHindersNothing(t *testing.T) {
	tests := []struct {
		name   string
		damage func(dir string) error
		want   error // nil: no error, and no readings
	}{
		{"cut", func(dir string) error { return os.Truncate(readingsPart(dir, "1"), 100) }, trace.ErrTruncated},
		{"no parquet", func(dir string) error { return os.WriteFile(readingsPart(dir, "0"), []byte("nonsense"), 0o644) }, trace.ErrNotParquet},
		{"gap", func(dir string) error { return os.Remove(readingsPart(dir, "0")) }, trace.ErrMissingPart},
		{"another process", func(dir string) error {
			text, err := os.ReadFile(filepath.Join(dir, "rank0-0000.parquet"))
			if err != nil {
				return err
			}
			return os.WriteFile(readingsPart(dir, "0"), text, 0o644)
		}, trace.ErrNotTrace},
		{"none", func(dir string) error {
			return errors.Join(os.Remove(readingsPart(dir, "0")), os.Remove(readingsPart(dir, "1")))
		}, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			dir := writeReadings(t)
			assert.NoError(t, test.damage(dir))
			run, err := dataset.Open(dir)
			assert.NoError(t, err)
			if len(run.Processes) != 1 || run.Readings != nil || !errors.Is(run.ReadingsErr, test.want) {
				t.Errorf("%d processes, readings %v, error %v; want one, none and %v", len(run.Processes), run.Readings, run.ReadingsErr, test.want)
			}
			warned := strings.Contains(strings.Join(run.Warnings, "\n"), "readings")
			assert.That(t, warned == (test.want != nil), "warnings: %q", run.Warnings)
		})
	}
}

// A recorder that was killed leaves readings without a last part; recovery keeps them, and
// does without them where they are damaged.
func TestReadingsOfKilledRecorder(t *testing.T) {
	for _, damaged := range []bool{false, true} {
		dir := writeReadings(t)
		assert.NoError(t, os.Remove(readingsPart(dir, "1")))
		if damaged {
			assert.NoError(t, os.Truncate(readingsPart(dir, "0"), 100))
		}
		assert.NoError(t, os.Mkdir(filepath.Join(dir, spool.Name), 0o700))
		if _, err := collect.Recover(context.Background(), dir, false); err != nil {
			t.Fatalf("damaged %v: %v", damaged, err)
		}
		run, err := dataset.Open(dir)
		assert.NoError(t, err)
		assert.Must(t, (run.ReadingsErr != nil) == damaged, "damaged %v: error %v", damaged, run.ReadingsErr)
		if !damaged && (run.Readings.Events != 2 || run.Readings.Ending.State != dataset.StateKilled) {
			t.Errorf("readings of %d events, %+v", run.Readings.Events, run.Readings.Ending)
		}
	}
}
