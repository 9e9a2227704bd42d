package analysis

import (
	"fmt"
	"testing"

	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/tracetest"
)

// attributedTraining is the training job of package tracetest, with phases, modules, stacks, and
// labels of a third of its blocks.
func attributedTraining(n int) (events []trace.Event, texts []string) {
	plain, texts := tracetest.Training(n)
	const stacks = 1000
	number := map[string]int32{}
	text := func(s string) int32 {
		if _, ok := number[s]; !ok {
			number[s] = int32(len(texts))
			texts = append(texts, s)
		}
		return number[s]
	}
	add := func(e trace.Event) {
		e.Seq = int64(len(events))
		events = append(events, e)
	}
	mark := func(kind trace.Kind, at trace.Event, context string) {
		add(trace.Event{Kind: kind, Time: at.Time, Thread: at.Thread, Arena: trace.NoArena, Device: trace.NoDevice, Context: text(context)})
	}
	phase := ""
	enter := func(at trace.Event, name string) {
		if name == phase {
			return
		}
		if phase != "" {
			mark(trace.KindPhaseEnd, at, phase)
		}
		if phase = name; name != "" {
			mark(trace.KindPhaseBegin, at, name)
		}
	}
	for i, e := range plain {
		if len(events) >= n {
			break
		}
		switch e.Kind {
		case trace.KindAlloc:
			if phase == "" {
				enter(e, "forward")
			}
			layer := int(e.Context)
			e.Context = text(fmt.Sprintf("module=model.layers.%d.mlp\tstack=%d", layer, 1+(8*layer+i%8)%stacks))
		case trace.KindFree:
			if phase == "forward" && plain[i-1].Kind == trace.KindAlloc && plain[i-1].Addr != e.Addr {
				enter(e, "backward")
			}
		case trace.KindIteration:
			enter(e, "")
		}
		add(e)
		if e.Kind == trace.KindAlloc && i%3 == 0 {
			add(trace.Event{Kind: trace.KindLabel, Time: e.Time, Addr: e.Addr, Context: text("category=gradients\tname=w")})
		}
		if e.Kind == trace.KindMap {
			for node := range int64(stacks) {
				add(trace.Event{Kind: trace.KindStack, Time: e.Time, Requested: node + 1, Provided: node * 9 / 10, Context: text(fmt.Sprintf("f%d (model.py:%d)", node, node))})
			}
		}
	}
	return events, texts
}

// BenchmarkAttribution is the pass over a trace with phases, modules, labels and stacks, and over the same
// job without any.
func BenchmarkAttribution(b *testing.B) {
	attributed, texts := attributedTraining(benchEvents)
	plain, plainTexts := tracetest.Training(benchEvents)
	for _, bench := range []struct {
		name   string
		events []trace.Event
		texts  []string
	}{{"attributed", attributed, texts}, {"plain", plain, plainTexts}} {
		b.Run(bench.name, func(b *testing.B) {
			src := newColumns(bench.events)
			b.ReportAllocs()
			for b.Loop() {
				src.next = 0
				result, err := Run(src, Options{Text: func(c int32) string { return bench.texts[c] }})
				if err != nil {
					b.Fatal(err)
				}
				if d := &result.Devices[0]; d.Held.Known != (bench.name == "attributed") {
					b.Fatalf("known %v", d.Held.Known)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(bench.events)), "ns/event")
		})
	}
}

// BenchmarkAttributedTrace is the same together with reading the Parquet parts.
func BenchmarkAttributedTrace(b *testing.B) {
	dir := b.TempDir()
	events, texts := attributedTraining(benchEvents)
	tracetest.WriteRun(b, dir, tracetest.Process{Events: events, Texts: texts})
	benchmarkTrace(b, dir, len(events))
}
