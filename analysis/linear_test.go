package analysis

import (
	"fmt"
	"testing"
	"time"

	"github.com/memprof/memprof/analysis/modeltest"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// pattern makes the n-th of events that each leave something behind.
type leavings struct {
	name string
	// events of step i; text gives the number of a context
	step func(i int64, text func(string) int32) []trace.Event
	// refused is what is said of those that are bounded, "" for others.
	refused string
}

const mainArena = "coalesces=1\tpool=0\tmain=1"

func patterns() []leavings {
	mark := func(kind trace.Kind, context int32) trace.Event {
		return trace.Event{Kind: kind, Device: trace.NoDevice, Arena: trace.NoArena, Context: context}
	}
	one := func(e ...trace.Event) []trace.Event { return e }
	const base, page = 1 << 40, 2 << 20
	mapped := func(text func(string) int32) []trace.Event {
		return one(trace.Event{Kind: trace.KindArena, Addr: base, Requested: -1, Provided: 1 << 40, Context: text(mainArena)},
			trace.Event{Kind: trace.KindMap, Addr: base, Provided: 1 << 40})
	}
	return []leavings{
		{"phases that never end", func(i int64, text func(string) int32) []trace.Event {
			return one(mark(trace.KindPhaseBegin, text(fmt.Sprint("phase ", i))))
		}, ""},
		{"phases by other names", func(i int64, text func(string) int32) []trace.Event {
			return one(mark(trace.KindPhaseBegin, text(fmt.Sprint("phase ", i))), mark(trace.KindPhaseEnd, text(fmt.Sprint("phase ", i))))
		}, ""},
		{"captures that never end", func(i int64, text func(string) int32) []trace.Event {
			if i == 0 {
				return one(trace.Event{Kind: trace.KindArena, Addr: base, Requested: -1, Provided: 1 << 40, Context: text("coalesces=1\tpool=p")},
					trace.Event{Kind: trace.KindMap, Addr: base, Provided: 1 << 40})
			}
			e := mark(trace.KindCaptureBegin, 0)
			e.Requested, e.Stream = i, i
			return one(e, trace.Event{Kind: trace.KindAlloc, Addr: base + i*256, Requested: 256, Provided: 256})
		}, "event seq 2050, capture_begin: more than 1024 captures at once"},
		{"libraries", func(i int64, text func(string) int32) []trace.Event {
			return one(trace.Event{Kind: trace.KindExternalAlloc, Arena: trace.NoArena, Addr: i + 1, Provided: 1, Context: text(fmt.Sprint("library=", i))})
		}, ""},
		{"stacks one in the other", func(i int64, text func(string) int32) []trace.Event {
			e := mark(trace.KindStack, text("f (a.py:1)"))
			e.Requested, e.Provided = i+1, i
			return one(e)
		}, ""},
		{"arenas", func(i int64, text func(string) int32) []trace.Event {
			at := base + i<<22
			return one(trace.Event{Kind: trace.KindArena, Arena: int32(i), Addr: at, Requested: -1, Provided: 4 << 20, Context: text(mainArena)},
				trace.Event{Kind: trace.KindMap, Arena: int32(i), Addr: at, Requested: page, Provided: page},
				trace.Event{Kind: trace.KindAlloc, Arena: int32(i), Addr: at, Requested: 1 << 20, Provided: 1 << 20})
		}, ""},
		{"maps apart", func(i int64, text func(string) int32) []trace.Event {
			if i == 0 {
				return one(trace.Event{Kind: trace.KindArena, Addr: base, Requested: -1, Provided: 1 << 40})
			}
			return one(trace.Event{Kind: trace.KindMap, Addr: base + i<<22, Requested: page, Provided: page})
		}, ""},
		{"a mapping that falls into pieces", func(i int64, text func(string) int32) []trace.Event {
			if i == 0 {
				return mapped(text)
			}
			at := base + i*4*page
			return one(trace.Event{Kind: trace.KindUnmap, Addr: at, Provided: page}, trace.Event{Kind: trace.KindUnmap, Addr: at + 2*page, Provided: page},
				trace.Event{Kind: trace.KindMap, Addr: at, Provided: page})
		}, ""},
		{"pauses of a tag", func(i int64, text func(string) int32) []trace.Event {
			const arenas = 300 // each is looked at
			at, tag := base+i<<22, text("coalesces=1\tpool=0\ttag=kv")
			if i < arenas {
				return one(trace.Event{Kind: trace.KindArena, Arena: int32(i), Addr: at, Requested: -1, Provided: 4 << 20, Context: tag},
					trace.Event{Kind: trace.KindMap, Arena: int32(i), Addr: at, Requested: page, Provided: page})
			}
			pause := trace.Event{Kind: trace.KindPause, Arena: arenas - 1, Requested: page, Context: text("tag=kv")}
			resume := pause
			resume.Kind = trace.KindResume
			return one(pause, resume)
		}, ""},
		{"tags", func(i int64, text func(string) int32) []trace.Event {
			return one(trace.Event{Kind: trace.KindArena, Arena: int32(i), Addr: base + i<<20, Requested: -1, Provided: 1 << 20, Context: text(fmt.Sprint("coalesces=1\tpool=0\ttag=t", i))})
		}, "event seq 1024, arena at 0x10040000000 in arena 1024: device 0 has more than 1024 tags"},
		{"iterations", func(i int64, text func(string) int32) []trace.Event {
			return one(mark(trace.KindIteration, 0))
		}, ""},
		{"blocks", func(i int64, text func(string) int32) []trace.Event {
			if i == 0 {
				return mapped(text)
			}
			return one(trace.Event{Kind: trace.KindAlloc, Addr: base + i*4096, Requested: 256, Provided: 256, Context: text(fmt.Sprint("module=m", i))})
		}, ""},
		{"blocks from the end", func(i int64, text func(string) int32) []trace.Event {
			if i == 0 {
				return mapped(text)
			}
			return one(trace.Event{Kind: trace.KindAlloc, Addr: base + 1<<40 - i*4096, Requested: 256, Provided: 256})
		}, ""},
		{"a chunk of many pieces", func(i int64, text func(string) int32) []trace.Event {
			if i == 0 {
				return mapped(text)
			}
			var out []trace.Event
			for _, at := range []int64{i, (i + 1) / 2} { // touched and untouched in turns, and a block in the middle
				out = append(out, trace.Event{Kind: trace.KindAlloc, Addr: base + at*4096, Requested: 256, Provided: 256},
					trace.Event{Kind: trace.KindFree, Addr: base + at*4096})
			}
			return out
		}, ""},
		{"failed requests beside blocks", func(i int64, text func(string) int32) []trace.Event {
			if i == 0 {
				return mapped(text)
			}
			return one(trace.Event{Kind: trace.KindAlloc, Addr: base + i*4096 + 512, Requested: 512, Provided: 512}, trace.Event{Kind: trace.KindOOM, Requested: i<<40 + 1})
		}, ""},
		{"caches", func(i int64, text func(string) int32) []trace.Event {
			return one(trace.Event{Kind: trace.KindKVCache, Arena: trace.NoArena, Stream: i, Requested: 1024, Provided: 100, Context: text("layout=paged\tblock=16")})
		}, ""},
		{"sequences", func(i int64, text func(string) int32) []trace.Event {
			if i == 0 {
				return one(trace.Event{Kind: trace.KindKVCache, Arena: trace.NoArena, Stream: 1, Requested: 1 << 30, Provided: 100, Context: text("layout=paged\tblock=16")})
			}
			return one(trace.Event{Kind: trace.KindKVReserve, Device: trace.NoDevice, Arena: trace.NoArena, Stream: 1, Addr: i, Requested: i, Provided: 16})
		}, ""},
		{"readings", func(i int64, text func(string) int32) []trace.Event {
			return one(trace.Event{Kind: trace.KindDeviceUsed, Arena: trace.NoArena, Requested: 80 << 30, Provided: i})
		}, ""},
		{"shapes of graph memory", func(i int64, text func(string) int32) []trace.Event {
			return one(trace.Event{Kind: trace.KindArena, Arena: int32(i), Addr: base + i<<20, Requested: -1, Provided: 1 << 20, Context: text(fmt.Sprint("coalesces=1\tpool=s\tgraph_memory=1\tshape=", i))})
		}, ""},
	}
}

// TestPassIsLinear: of events that each leave something behind, eight times as many take about eight
// times the processor time, not 64; of what is looked at again and again there is a bound, whose error
// names the event.
func TestPassIsLinear(t *testing.T) {
	for _, p := range patterns() {
		t.Run(p.name, func(t *testing.T) {
			few, err := p.took(t, 5_000)
			if p.refused != "" {
				assert.That(t, err != nil && err.Error() == p.refused, "error %v, want %s", err, p.refused)
				return
			}
			assert.NoError(t, err)
			// The garbage collector runs when it likes: what counts is a factor, not a share.
			for range 3 {
				many, err := p.took(t, 40_000)
				assert.NoError(t, err)
				if many < 32*few+time.Second/2 {
					return
				}
				t.Logf("5,000 take %v, 40,000 take %v", few, many)
			}
			t.Error("the passes are not linear")
		})
	}
}

// took is the processor time of both passes over so many steps.
func (p *leavings) took(t *testing.T, steps int64) (time.Duration, error) {
	texts := dataset.NewStrings()
	var events []trace.Event
	for i := range steps {
		events = append(events, p.step(i, texts.Intern)...)
	}
	numbered(events)
	began := modeltest.ProcessorTime(t)
	opt := Options{Explore: true, Text: texts.Text}
	result, err := Run(modeltest.Source(events, 4096), opt)
	if err == nil {
		err = result.Explore(modeltest.Source(events, 4096), opt, nil)
	}
	return modeltest.ProcessorTime(t) - began, err
}
