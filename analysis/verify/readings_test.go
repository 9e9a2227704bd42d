package verify_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/memprof/memprof/analysis/verify"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/tracetest"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

func TestReadings(t *testing.T) {
	const events = 10_000 // three blocks of checksums
	tests := []struct {
		name   string
		change func(rows []trace.Event) []trace.Event
		wrong  bool
		seq    int64 // of the mismatch, -1 where only the block is known
		first  int64 // of the block
	}{
		{name: "untouched"},
		{name: "a byte more", change: func(rows []trace.Event) []trace.Event {
			rows[5000].Provided++
			return rows
		}, wrong: true, seq: -1, first: dataset.BlockEvents},
		{name: "one left out", change: func(rows []trace.Event) []trace.Event {
			return append(rows[:9000], rows[9001:]...)
		}, wrong: true, seq: 9000, first: 2 * dataset.BlockEvents},
		{name: "none of ours", change: func(rows []trace.Event) []trace.Event {
			rows[7].Kind = trace.KindAlloc
			return rows
		}, wrong: true, seq: 7, first: 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			job, texts := tracetest.Training(10)
			readings := make([]trace.Event, events)
			for i := range readings {
				readings[i] = trace.Event{Kind: trace.KindDeviceUsed, Time: int64(i) << 20, Arena: trace.NoArena, Requested: 80 << 30, Provided: int64(i % 7), Context: 1}
			}
			tracetest.WriteRun(t, dir, tracetest.Process{Events: job, Texts: texts}, tracetest.Process{
				Meta: dataset.ProcessMeta{Name: dataset.ReadingsName}, Events: readings, Texts: []string{"", "all=1"},
			})
			if test.change != nil {
				tracetest.Rewrite(t, filepath.Join(dir, "device-0000.parquet"), test.change)
			}
			run, err := dataset.Open(dir)
			assert.NoError(t, err)
			n, err := verify.Readings(context.Background(), run.Readings)
			var mismatch *verify.Mismatch
			assert.Must(t, errors.As(err, &mismatch) == test.wrong && (test.wrong || err == nil && n == events), "%d events, error %v", n, err)
			if test.wrong && (mismatch.Process != dataset.ReadingsName || mismatch.Seq != test.seq || mismatch.FirstSeq != test.first) {
				t.Errorf("mismatch %+v, want seq %d in the block from %d", mismatch, test.seq, test.first)
			}
		})
	}
}
