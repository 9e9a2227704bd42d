package analysis

import (
	"fmt"
	"testing"
	"time"

	"github.com/memprof/memprof/analysis/modeltest"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// mapsApart maps n stretches that do not touch, of an arena that does not coalesce, and nothing else.
func mapsApart(n int) []trace.Event {
	events := []trace.Event{{Kind: trace.KindArena, Addr: 1 << 40, Provided: int64(n) << 22, Requested: -1}}
	for i := range n {
		events = append(events, trace.Event{Kind: trace.KindMap, Addr: 1<<40 + int64(i)<<22, Requested: 2 << 20, Provided: 2 << 20})
	}
	return events
}

// mapsOfArenas has n arenas, each of which maps one stretch and takes part of it.
func mapsOfArenas(n int) []trace.Event {
	var events []trace.Event
	for i := range n {
		arena, at := int32(i), 1<<40+int64(i)<<22
		events = append(events,
			trace.Event{Kind: trace.KindArena, Arena: arena, Addr: at, Provided: 4 << 20, Requested: -1},
			trace.Event{Kind: trace.KindMap, Arena: arena, Addr: at, Requested: 2 << 20, Provided: 2 << 20},
			trace.Event{Kind: trace.KindAlloc, Arena: arena, Addr: at, Requested: 1 << 20, Provided: 1 << 20})
	}
	return events
}

// unmapsAgain maps one stretch and unmaps every other granule of it, so that it falls into pieces,
// and maps them again.
func unmapsAgain(n int) []trace.Event {
	const page = 2 << 20
	events := []trace.Event{
		{Kind: trace.KindArena, Addr: 1 << 40, Provided: int64(n) * page, Requested: -1},
		{Kind: trace.KindMap, Addr: 1 << 40, Requested: 1, Provided: int64(n) * page},
	}
	for _, kind := range []trace.Kind{trace.KindUnmap, trace.KindMap} {
		for i := 0; i < n; i += 2 {
			events = append(events, trace.Event{Kind: kind, Addr: 1<<40 + int64(i)*page, Provided: page})
		}
	}
	return events
}

// allocsInside takes blocks from the inside of one free stretch, at ascending places with gaps.
func allocsInside(n int) []trace.Event {
	events := []trace.Event{
		{Kind: trace.KindArena, Addr: 1 << 40, Provided: int64(n+1) << 12, Requested: -1},
		{Kind: trace.KindMap, Addr: 1 << 40, Requested: 1, Provided: int64(n+1) << 12},
	}
	for i := range n {
		events = append(events, trace.Event{Kind: trace.KindAlloc, Addr: 1<<40 + int64(i)<<12 + 512, Requested: 512, Provided: 512})
	}
	return events
}

// failuresOf has as many live blocks with gaps between them as failed requests.
func failuresOf(n int) []trace.Event {
	events := allocsInside(n)
	for range n {
		events = append(events, trace.Event{Kind: trace.KindOOM, Requested: 1 << 40})
	}
	return events
}

// pauses has as many arenas of a tag, mapped, as pauses and resumes of the last.
func pauses(n int) []trace.Event {
	var events []trace.Event
	for i := range n {
		arena, at := int32(i), 1<<40+int64(i)<<22
		events = append(events,
			trace.Event{Kind: trace.KindArena, Arena: arena, Addr: at, Provided: 4 << 20, Requested: -1, Context: tagged},
			trace.Event{Kind: trace.KindMap, Arena: arena, Addr: at, Requested: 2 << 20, Provided: 2 << 20})
	}
	for range n {
		for _, kind := range []trace.Kind{trace.KindPause, trace.KindResume} {
			events = append(events, trace.Event{Kind: kind, Arena: int32(n - 1), Requested: 2 << 20, Context: tagged})
		}
	}
	return events
}

// libraries takes memory for n libraries, each with a name of its own.
func libraries(n int) []trace.Event {
	var events []trace.Event
	for i := range n {
		events = append(events, trace.Event{Kind: trace.KindExternalAlloc, Arena: trace.NoArena, Addr: int64(i+1) << 20, Requested: 1, Provided: 1, Context: firstLibrary + int32(i)})
	}
	return events
}

const tagged, firstLibrary = 1, 2

func boundsText(context int32) string {
	switch context {
	case 0:
		return ""
	case tagged:
		return "tag=kv"
	}
	return fmt.Sprintf("call=cudaMalloc\tlibrary=lib%d.so", context)
}

// TestLinear runs the pass over traces that a few kilobytes can hold. Where the work of an event
// grows with what came before, each takes minutes of processor time.
func TestLinear(t *testing.T) {
	const most = 2 * time.Minute
	for name, events := range map[string][]trace.Event{
		"maps":      mapsApart(40_000),
		"arenas":    mapsOfArenas(30_000),
		"unmaps":    unmapsAgain(100_000),
		"inside":    allocsInside(100_000),
		"failures":  failuresOf(30_000),
		"pauses":    pauses(8_000),
		"libraries": libraries(60_000),
	} {
		numbered(events)
		for _, explore := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/explore=%t", name, explore), func(t *testing.T) {
				start := modeltest.ProcessorTime(t)
				opt := Options{Explore: explore, Text: boundsText}
				result, err := Run(modeltest.Source(events, 1<<15), opt)
				if err == nil && explore {
					err = result.Explore(modeltest.Source(events, 1<<15), opt, nil)
				}
				assert.NoError(t, err)
				if took := modeltest.ProcessorTime(t) - start; took > most {
					t.Errorf("%d events took %s, want at most %s", result.Events, took, most)
				} else {
					t.Log(took)
				}
			})
		}
	}
}
