package analysis

import (
	"errors"
	"io"
	"testing"

	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/tracetest"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

const benchEvents = 2 << 20

// columns are events as batches of the size a dataset.Reader gives.
type columns struct {
	batches []trace.Batch
	next    int
}

func newColumns(events []trace.Event) *columns {
	const rows = 32 << 10
	c := &columns{}
	for start := 0; start < len(events); start += rows {
		var b trace.Batch
		for i := start; i < min(start+rows, len(events)); i++ {
			b.Append(&events[i])
		}
		c.batches = append(c.batches, b)
	}
	return c
}

func (c *columns) Next() (*trace.Batch, error) {
	if c.next == len(c.batches) {
		return nil, io.EOF
	}
	c.next++
	return &c.batches[c.next-1], nil
}

// random is a heap of about 5,000 live blocks that come and go in no order: many free chunks,
// and no two events beside each other touch the same addresses. It has no marks.
func random(n int) []trace.Event {
	const slots, stride = 10_000, 1 << 20
	events := []trace.Event{
		{Kind: trace.KindArena, Addr: 1 << 40, Provided: slots * stride, Requested: -1},
		{Kind: trace.KindMap, Addr: 1 << 40, Provided: slots * stride, Requested: slots * stride},
	}
	var live [slots]int64
	state := uint64(1)
	for len(events) < n {
		state = state*6364136223846793005 + 1442695040888963407
		slot := int(state >> 33 % slots)
		e := trace.Event{Kind: trace.KindFree, Addr: 1<<40 + int64(slot)*stride, Requested: live[slot]}
		if live[slot] == 0 {
			live[slot] = int64(state>>40)%stride + 1
			e.Kind, e.Requested = trace.KindAlloc, live[slot]
			e.Context = int32(slot % 300)
		}
		e.Provided = (e.Requested + 256 - 1) &^ (256 - 1)
		if e.Kind == trace.KindFree {
			live[slot] = 0
		}
		events = append(events, e)
	}
	for i := range events {
		events[i].Seq, events[i].Time = int64(i), int64(i)*700
	}
	return events
}

// BenchmarkRun is the pass alone, over events in memory.
func BenchmarkRun(b *testing.B) {
	training, _ := tracetest.Training(benchEvents)
	for _, bench := range []struct {
		name   string
		events []trace.Event
	}{{"training", training}, {"random", random(benchEvents)}} {
		b.Run(bench.name, func(b *testing.B) {
			src := newColumns(bench.events)
			b.ReportAllocs()
			for b.Loop() {
				src.next = 0
				if _, err := Run(src, Options{}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/benchEvents, "ns/event")
		})
	}
}

// BenchmarkTrace is the pass together with reading the Parquet parts.
func BenchmarkTrace(b *testing.B) {
	dir := b.TempDir()
	events, texts := tracetest.Training(benchEvents)
	tracetest.WriteRun(b, dir, tracetest.Process{Events: events, Texts: texts})
	benchmarkTrace(b, dir, len(events))
}

// benchmarkTrace analyzes the one process of a run.
func benchmarkTrace(b *testing.B, dir string, events int) {
	opened, err := dataset.Open(dir)
	assert.NoError(b, err)
	process := opened.Processes[0]
	for b.Loop() {
		reader, err := process.NewReader()
		assert.NoError(b, err)
		_, err = Run(reader, Options{Text: process.Strings().Text})
		assert.NoError(b, errors.Join(err, reader.Close()))
	}
	b.ReportMetric(float64(events)*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mevents/s")
}
