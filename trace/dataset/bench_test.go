package dataset_test

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/tracetest"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// BenchmarkRead reads a training-like trace with all columns.
func BenchmarkRead(b *testing.B) {
	const n = 4 << 20
	dir := b.TempDir()
	events, texts := tracetest.Training(n)
	tracetest.WriteRun(b, dir, tracetest.Process{Events: events, Texts: texts})
	bytes := int64(0)
	parts, _ := filepath.Glob(filepath.Join(dir, "*.parquet"))
	for _, p := range parts {
		stat, err := os.Stat(p)
		assert.NoError(b, err)
		bytes += stat.Size()
	}
	b.ReportMetric(float64(bytes)/n, "B/event")
	run, err := dataset.Open(dir)
	assert.NoError(b, err)
	b.ReportAllocs()
	b.ResetTimer()
	for b.Loop() {
		r, err := run.Processes[0].NewReader()
		assert.NoError(b, err)
		got := 0
		for {
			batch, err := r.Next()
			if err == io.EOF {
				break
			}
			assert.NoError(b, err)
			got += batch.Len()
		}
		r.Close()
		if got != n {
			b.Fatalf("read %d events, want %d", got, n)
		}
	}
	b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mevents/s")
	b.ReportMetric(float64(bytes)/n, "B/event")
}

// BenchmarkWrite writes the same trace.
func BenchmarkWrite(b *testing.B) {
	const n = 1 << 20
	events, texts := tracetest.Training(n)
	b.ReportAllocs()
	for b.Loop() {
		tracetest.WriteRun(b, b.TempDir(), tracetest.Process{Events: events, Texts: texts})
	}
	b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mevents/s")
}
