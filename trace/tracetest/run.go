// Package tracetest makes traces and spools for tests: runs of lists of events, damaged parts, and spool
// directories as the capture hook writes them.
package tracetest

import (
	"testing"

	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// RunID is the ID of the runs that WriteRun writes.
const RunID = "0123456789abcdef"

// Process is what WriteRun writes as one process.
type Process struct {
	Meta    dataset.ProcessMeta // RunID is filled in; an empty Name becomes "rank0"
	Events  []trace.Event       // Seq is filled in; Context indexes Texts
	Texts   []string            // Texts[0] is ""
	Options dataset.WriterOptions
	Ending  dataset.Ending // the zero one becomes StateClosed
}

// WriteRun writes a run with the given processes and a run.json into dir.
func WriteRun(t testing.TB, dir string, processes ...Process) {
	t.Helper()
	exit := 0
	info := &dataset.Info{ID: RunID, Command: []string{"job"}, ExitStatus: &exit}
	assert.NoError(t, dataset.WriteInfo(dir, info))
	for _, p := range processes {
		writeProcess(t, dir, p)
	}
}

func writeProcess(t testing.TB, dir string, p Process) {
	t.Helper()
	p.Meta.RunID = RunID
	if p.Meta.Name == "" {
		p.Meta.Name = "rank0"
	}
	if p.Ending.State == "" {
		p.Ending.State = dataset.StateClosed
	}
	w := dataset.NewWriter(dir, p.Meta, p.Options)
	ids := make([]int32, max(len(p.Texts), 1))
	for i, text := range p.Texts {
		ids[i] = w.Intern(text)
	}
	for i, e := range p.Events {
		e.Seq = int64(i)
		e.Context = ids[e.Context]
		assert.NoError(t, w.Append(&e))
	}
	assert.NoError(t, w.Finish(p.Ending))
}

// Rewrite replaces the rows of a part, opening rows included, and keeps its metadata and checksums, as damage or
// manipulation of a trace does.
func Rewrite(t testing.TB, part string, change func(rows []trace.Event) []trace.Event) {
	t.Helper()
	err := dataset.RewritePart(part, func(rows []trace.Event, _ *dataset.Strings) []trace.Event { return change(rows) })
	assert.NoError(t, err)
}

// Training returns n events like those of a training job: one arena, which grows in the first iteration, weights that
// stay, activations that are freed in reverse order, and times that jitter. Contexts index texts.
func Training(n int) (events []trace.Event, texts []string) {
	const (
		layers    = 120
		base      = int64(0x7f2c00000000)
		perLayer  = 3
		iteration = 0x7fff
	)
	texts = []string{"", "growth=double headroom=2147483648 fraction=0 gc=0 granularity=2097152 coalesces=1 pool=0 tag= main=1"}
	for i := range layers {
		texts = append(texts, "forward/model.layers."+string(rune('a'+i%26))+string(rune('a'+i/26)))
	}
	random := uint64(1)
	clock := int64(1_000_000)
	add := func(e trace.Event) {
		random = random*6364136223846793005 + 1442695040888963407
		clock += 600 + int64(random>>33)%2400
		if random>>60 == 0 {
			clock += int64(random >> 40 % 60_000)
		}
		e.Time, e.Thread = clock&^(dataset.TimeStep-1), 4711
		events = append(events, e)
	}
	add(trace.Event{Kind: trace.KindArena, Addr: base, Provided: 80 << 30, Requested: -1, Context: 1})
	add(trace.Event{Kind: trace.KindMap, Addr: base, Requested: 20 << 30, Provided: 20 << 30})
	size := func(layer, k int) int64 { return int64(layer%17+1) * int64(4096*(k+1)*(layer%5+1)) * 10 }
	round := func(n int64) int64 { return (n + 255) &^ 255 }
	for number := int64(0); len(events) < n; number++ {
		var live []trace.Event
		at := base
		for layer := range layers {
			for k := range perLayer {
				req := size(layer, k)
				e := trace.Event{Kind: trace.KindAlloc, Addr: at, Requested: req, Provided: round(req), Context: int32(2 + layer)}
				add(e)
				if k == 1 { // workspace
					e.Kind, e.Context = trace.KindFree, 0
					add(e)
					continue
				}
				at += e.Provided
				live = append(live, e)
			}
		}
		for i := len(live) - 1; i >= 0; i-- {
			grad := trace.Event{Kind: trace.KindAlloc, Addr: at + int64(i%7)<<20, Requested: live[i].Requested, Provided: live[i].Provided, Context: live[i].Context}
			add(grad)
			for _, e := range []trace.Event{live[i], grad} {
				e.Kind, e.Context = trace.KindFree, 0
				add(e)
			}
		}
		add(trace.Event{Kind: trace.KindIteration, Requested: number & iteration, Arena: trace.NoArena, Device: trace.NoDevice})
	}
	for i := range events {
		events[i].Seq = int64(i)
	}
	return events[:n], texts
}
