package graphs_test

import (
	"fmt"
	"github.com/memprof/memprof/analysis/attribution"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/analysis/ledger"
	"github.com/memprof/memprof/analysis/modeltest"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// pool is an arena of a pool of CUDA graphs, with 4096 bytes mapped.
func pool() *modeltest.Recorder {
	r := modeltest.New()
	r.Add(trace.Event{Kind: trace.KindArena, Context: r.Strings.Intern("growth=needed coalesces=1 pool=0.3")})
	r.Add(trace.Event{Kind: trace.KindMap, Addr: 0x100000, Requested: 4096, Provided: 4096})
	return r
}

func event(kind trace.Kind, addr, requested, provided int64) trace.Event {
	return trace.Event{Kind: kind, Addr: addr, Requested: requested, Provided: provided}
}

// A restored chunk is live, and was asked for by nobody.
func TestRestore(t *testing.T) {
	r := pool()
	r.Add(event(trace.KindAlloc, 0x100400, 1000, 1024))
	r.Add(event(trace.KindCheckpoint, 0, 1, 1024))
	r.Add(event(trace.KindFree, 0x100400, 1000, 1024))
	r.Add(event(trace.KindAlloc, 0x100000, 500, 512))
	r.Add(event(trace.KindRestore, 0x100400, 1000, 1024))
	r.Mark(0)
	d := run(t, r, analysis.Options{}).Devices[0]
	want := ledger.Instant{Seq: 7, Time: 7000, Iteration: 1, T: 1500, C: 1536, R: 4096, Rounding: 36, Reserve: 4096 - 1536, Live: 2}
	assert.Diff(t, want, d.Final)
	if d.Allocs != 2 || d.Frees != 1 || d.Iterations[0].Allocs != 2 || d.Iterations[0].AllocBytes != 1500 || d.Peak.T != 1500 {
		t.Errorf("%d allocs, %d frees, iteration %+v, peak %+v", d.Allocs, d.Frees, d.Iterations[0], d.Peak)
	}
	got := groups(d.Held.Categories)
	assert.That(t, cmp.Equal(got, []string{"cuda_graphs 1500"}) && d.Held.Known, "categories %q, known %v", got, d.Held.Known)
}

func TestPoolsEnd(t *testing.T) {
	live := event(trace.KindAlloc, 0x100400, 1000, 1024)
	free := event(trace.KindFree, 0x100400, 1000, 1024)
	unmap := event(trace.KindUnmap, 0x100000, 0, 4096)
	release := event(trace.KindPoolRelease, 0, 0, 0)
	arenaless := release
	arenaless.Arena = trace.NoArena
	unknown := release
	unknown.Arena = 7
	for name, test := range map[string]struct {
		events []trace.Event
		want   string // error; "" for none
	}{
		"empty":            {[]trace.Event{live, free, unmap, release}, ""},
		"without an arena": {[]trace.Event{live, arenaless}, ""},
		"mapped":           {[]trace.Event{live, free, release}, "event seq 4, pool_release in arena 0: the pool has 0 live chunks, 0 bytes pending, 4096 mapped"},
		"live":             {[]trace.Event{live, release}, "event seq 3, pool_release in arena 0: the pool has 1 live chunks, 0 bytes pending, 4096 mapped"},
		"unknown":          {[]trace.Event{unknown}, "event seq 2, pool_release in arena 7: no arena event describes arena 7"},
		"used again": {[]trace.Event{live, free, unmap, release, event(trace.KindMap, 0x100000, 4096, 4096)},
			"event seq 6, map at 0x100000 in arena 0: arena 0 was released with its pool"},
		"described again": {[]trace.Event{unmap, release, event(trace.KindArena, 0, 0, 0)},
			"event seq 4, arena in arena 0: arena 0 was released with its pool"},
		"released again":        {[]trace.Event{unmap, release, release}, "event seq 4, pool_release in arena 0: arena 0 was released with its pool"},
		"restored outside":      {[]trace.Event{event(trace.KindRestore, 0x200000, 10, 256)}, "event seq 2, restore at 0x200000 in arena 0: 0x200000 is not in mapped memory of the arena"},
		"restored onto a chunk": {[]trace.Event{live, event(trace.KindRestore, 0x100300, 512, 512)}, "event seq 3, restore at 0x100300 in arena 0: 0x100400 to 0x100800 is a live chunk, handed out by seq 2"},
	} {
		t.Run(name, func(t *testing.T) {
			r := pool()
			for _, e := range test.events {
				r.Add(e)
			}
			got := ""
			if _, err := analysis.Run(modeltest.Source(r.Events, 100), analysis.Options{}); err != nil {
				got = err.Error()
			}
			assert.That(t, got == test.want, "error %q\nwant  %q", got, test.want)
		})
	}
}

// Only pools that something was captured in are those of CUDA graphs, in a trace that has
// captures.
func TestPoolsOfGraphs(t *testing.T) {
	for _, test := range []struct {
		kinds []trace.Kind // before the alloc
		want  string
	}{
		{nil, "cuda_graphs 1000"},
		{[]trace.Kind{trace.KindCaptureBegin}, "cuda_graphs 1000"},
		{[]trace.Kind{trace.KindCaptureBegin, trace.KindCaptureEnd}, "other 1000"},
	} {
		r := pool()
		for i, kind := range test.kinds {
			r.Add(trace.Event{Kind: kind, Arena: trace.NoArena, Requested: int64(1 - i)})
		}
		r.Add(event(trace.KindAlloc, 0x100400, 1000, 1024))
		got := groups(run(t, r, analysis.Options{}).Devices[0].Held.Categories)
		assert.That(t, cmp.Equal(got, []string{test.want}), "after %v: %q, want %s", test.kinds, got, test.want)
	}
}

// groups are the names and requested bytes of a breakdown.
func groups(b attribution.Breakdown) (out []string) {
	for _, g := range b.Groups {
		out = append(out, fmt.Sprintf("%s %d", g.Name, g.Requested))
	}
	return out
}
