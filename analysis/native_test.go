package analysis

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/memprof/memprof/analysis/iterations"
	"github.com/memprof/memprof/analysis/ledger"
	"github.com/memprof/memprof/analysis/modeltest"
	"github.com/memprof/memprof/analysis/torchalloc"
	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// recorder records events of a native allocator with one arena on device 0.
type recorder struct {
	*modeltest.Recorder
}

func newObserved() recorder {
	r := recorder{modeltest.New()}
	r.arena(0, "main=1")
	return r
}

func (r recorder) arena(id int32, more string) {
	text := "allocator=native\tprovided=unknown\tcoalesces=0\tpool=0.0\t" + more
	r.Add(trace.Event{Kind: trace.KindArena, Arena: id, Context: r.Strings.Intern(text)})
}

func (r recorder) block(kind trace.Kind, addr, size int64) {
	r.Add(trace.Event{Kind: kind, Addr: addr, Requested: size, Provided: size})
}

func (r recorder) segment(addr, size int64) {
	r.Add(trace.Event{Kind: trace.KindMap, Addr: addr, Requested: size, Provided: size})
}

// sums are C, R, and the greatest C.
func (r recorder) sums(c, reserved, peak int64) {
	r.Add(trace.Event{Kind: trace.KindStatistics, Arena: trace.NoArena, Addr: peak, Requested: reserved, Provided: c})
}

func (r recorder) use(addr int64) {
	saved := r.Stream
	r.Stream = -1
	r.Add(trace.Event{Kind: trace.KindStreamUse, Addr: addr})
	r.Stream = saved
}

// A step of a job under a native allocator with blocks of 512 bytes, in numbers.
func TestSampledStep(t *testing.T) {
	r := newObserved()
	r.segment(0, 4096)
	r.sums(0, 4096, 0)
	r.block(trace.KindAlloc, 0, 1000) // a block of 1024
	r.block(trace.KindAlloc, 1024, 600)
	r.sums(2048, 4096, 2048)
	r.block(trace.KindFree, 0, 1000)
	r.sums(1024, 4096, 2048)
	r.Mark(0)
	r.segment(8192, 8192) // 2048 were free besides the block
	r.sums(1024, 12288, 2048)
	r.block(trace.KindAlloc, 8192, 8000)
	r.sums(1024+8192, 12288, 9216)
	r.use(1024)
	r.block(trace.KindFree, 1024, 600)
	r.sums(8192, 12288, 9216)
	r.Mark(1)
	result := run(t, r.Recorder, Options{})
	d := result.Devices[0]

	want := ledger.Instant{Seq: 11, Time: 11000, T: 8600, C: 9216, R: 12288, NotRequested: 12288 - 8600, Live: 2, Iteration: 1}
	assert.Diff(t, want, d.Peak, "peak")
	assert.That(t, d.Peak.Internal() == 616 && d.Peak.Free() == 3072,
		"at the peak %d internal and %d free, want 616 and 3072", d.Peak.Internal(), d.Peak.Free())
	final := ledger.Instant{Seq: 16, Time: 16000, T: 8000, C: 8192, R: 12288, Pending: 600, NotRequested: 12288 - 8600, Live: 1, Iteration: 2}
	assert.Diff(t, final, d.Final, "final")
	list := []iterations.Iteration{
		{Number: 0, PeakT: 1600, PeakC: 2048, PeakR: 4096, EndT: 600, EndC: 1024, Allocs: 2, AllocBytes: 1600},
		{Number: 1, PeakT: 8600, PeakC: 9216, PeakR: 12288, EndT: 8000, EndC: 8192, Allocs: 1, AllocBytes: 8000},
	}
	assert.Diff(t, list, d.Iterations, cmpopts.IgnoreFields(iterations.Iteration{}, "StartSeq", "EndSeq", "Start", "End"), "iterations")
	growths := []Growth{
		{Seq: 1, Time: 1000, Request: 1000, Grown: 4096, Reserved: 4096, Free: 0, LargestFree: -1, TooSmall: -1, Stranded: -1, Verdict: Capacity},
		{Seq: 9, Time: 9000, Iteration: 1, Request: 8000, Grown: 8192, Reserved: 12288, Free: 3072, LargestFree: -1, TooSmall: -1, Stranded: -1, Verdict: Capacity},
	}
	assert.Diff(t, growths, d.Growths, "growths")
	assert.That(t, d.MaxT == 8600 && d.MaxC == 9216 && d.MaxR == 12288 && d.Chunks.Largest() == -1,
		"greatest T %d, C %d, R %d, largest free %d", d.MaxT, d.MaxC, d.MaxR, d.Chunks.Largest())
	assert.Diff(t, &torchalloc.Observed{Allocator: "native", Samples: 6}, d.Native)
	spans := [][]ledger.Span{{
		spanOf(0, 1024, ledger.SpanNotRequested), spanOf(1024, 600, ledger.SpanLive), spanOf(1624, 4096-1624, ledger.SpanNotRequested), spanOf(4096, 4096, ledger.SpanUnmapped),
		spanOf(8192, 8000, ledger.SpanLive), spanOf(16192, 192, ledger.SpanNotRequested),
	}}
	assert.Diff(t, spans[0], d.Map.Arenas[0].Spans, "map")
	assert.That(t, d.Paper != nil && d.Paper.C1 == 2048.0/12288 && d.Paper.C2 == 9216.0/12288, "the paper's table: %+v", d.Paper)
}

// Without a sample at the right moment C is not known, and no zero stands for it.
func TestSampledWithoutSamples(t *testing.T) {
	r := newObserved()
	r.segment(0, 4096)
	r.block(trace.KindAlloc, 0, 1000)
	r.Mark(0)
	r.block(trace.KindAlloc, 1024, 1000)
	r.Mark(1)
	r.Add(trace.Event{Kind: trace.KindOOM, Requested: 1 << 40})
	result := run(t, r.Recorder, Options{})
	d := result.Devices[0]
	assert.That(t, d.Peak.C == -1 && d.Final.C == -1 && d.MaxC == -1 && d.Peak.Internal() == -1 && d.Peak.Free() == -1,
		"peak %+v, final %+v, greatest C %d", d.Peak, d.Final, d.MaxC)
	for _, it := range d.Iterations {
		assert.That(t, it.PeakC == -1 && it.EndC == -1, "iteration %+v", it)
	}
	g := d.Growths[0]
	assert.That(t, g.Free == -1 && g.Verdict == "", "growth %+v", g)
	o := d.OOMs[0]
	assert.That(t, o.Free == -1 && o.LargestFree == -1 && o.Verdict == "" && o.At.C == -1, "failed request %+v", o)
	for _, name := range []string{
		"waste.internal", "waste.rounding", "waste.slack", "waste.stranded", "waste.reserve", "waste.reusable", "waste.external", "waste.external.bytes", "fragmentation.peak",
		"provided.peak", "idle.provided", "iteration.first_excess", "iteration.steady_idle", "growth.fragmentation",
	} {
		metric, _ := LookupMetric(name)
		value, _, ok := metric.Value(d.Subjects())
		assert.That(t, !ok, "%s is %v, but cannot be known", name, value)
	}
	for _, name := range []string{"reserved.peak", "requested.peak", "waste.total", "idle.requested", "oom.count", "growth.count"} {
		metric, _ := LookupMetric(name)
		_, _, ok := metric.Value(d.Subjects())
		assert.That(t, ok, "%s is known", name)
	}
}

// Sums that were read while the allocator went on are of no moment.
func TestSampledOdd(t *testing.T) {
	r := newObserved()
	r.segment(0, 4096)
	r.sums(0, 4096, 0)
	r.block(trace.KindAlloc, 0, 1000)
	r.sums(1024, 8192, 1024) // another segment has been taken
	r.sums(512, 4096, 1024)  // less than is asked for
	r.sums(1024, 4096, 1024)
	d := run(t, r.Recorder, Options{}).Devices[0]
	want := (&torchalloc.Observed{Allocator: "native", Samples: 2, Odd: 2})
	assert.That(t, cmp.Equal(want, d.Native), "%+v, want %+v", d.Native, want)
	assert.That(t, d.Peak.C == 1024 && d.MaxC == 1024, "C at the peak %d, at most %d", d.Peak.C, d.MaxC)
}

// A native allocator and memprof's may serve the same device.
func TestNativeAndOurs(t *testing.T) {
	r := newObserved()
	r.segment(0, 4096)
	r.sums(0, 4096, 0)
	text := "growth=double headroom=0 fraction=0 gc=0 granularity=2097152 coalesces=1 pool=0.0 tag= main=1"
	r.Add(trace.Event{Kind: trace.KindArena, Arena: 1, Context: r.Strings.Intern(text)})
	ours := func(kind trace.Kind, addr, requested, provided int64) {
		r.Add(trace.Event{Kind: kind, Arena: 1, Addr: addr, Requested: requested, Provided: provided})
	}
	ours(trace.KindMap, 1<<30, 2*mib, 2*mib)
	ours(trace.KindAlloc, 1<<30, 1000, 2048)
	r.block(trace.KindAlloc, 0, 100)
	r.sums(512, 4096, 512)
	d := run(t, r.Recorder, Options{}).Devices[0]
	want := ledger.Instant{
		Seq: 6, Time: 6000, T: 1100, C: 2048 + 512, R: 2*mib + 4096, Rounding: 24, Slack: 1024,
		Reserve: 2*mib - 2048, NotRequested: 4096 - 100, Live: 2, View: 1,
	}
	assert.Diff(t, want, d.Peak, "peak")
}

// A recording of memprof's allocator, as a native allocator would have reported it, has the same T, R and
// pending at every event, and the same C wherever the sums were read.
func TestSampledAgainstOurs(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		ours := modeltest.New()
		a, err := ours.NewArena(0, bfc.Options{Limit: 1 << 30}, bfc.NewDevice(bfc.DeviceOptions{}), nil)
		assert.NoError(rt, err)
		var live, pending []uint64
		take := func(list *[]uint64, label string) uint64 {
			i := rapid.IntRange(0, len(*list)-1).Draw(rt, label)
			addr := (*list)[i]
			*list = append((*list)[:i], (*list)[i+1:]...)
			return addr
		}
		for range rapid.IntRange(1, 40).Draw(rt, "operations") {
			switch op := rapid.IntRange(0, 5).Draw(rt, "operation"); {
			case op == 1 && len(live) > 0:
				a.Free(take(&live, "freed"), false)
			case op == 2 && len(live) > 0:
				addr := take(&live, "shared")
				a.Use(addr, 7)
				a.Free(addr, true)
				pending = append(pending, addr)
			case op == 3 && len(pending) > 0:
				a.FreeDone(take(&pending, "done"))
			case op == 4:
				ours.Mark(0)
			default:
				if addr, ok := a.Alloc(rapid.Uint64Range(1, 6*mib).Draw(rt, "size"), ""); ok {
					live = append(live, addr)
				}
			}
		}
		theirs, at := asNative(t, ours)
		want := run(t, ours, Options{}).Devices[0]
		got := run(t, theirs, Options{}).Devices[0]
		if want.MaxT != got.MaxT || want.MaxR != got.MaxR || want.MaxC != got.MaxC {
			rt.Fatalf("greatest T %d, R %d, C %d, want %d, %d, %d", got.MaxT, got.MaxR, got.MaxC, want.MaxT, want.MaxR, want.MaxC)
		}
		if got.Native.Odd != 0 {
			rt.Fatalf("%+v", got.Native)
		}
		for _, pair := range [][2]ledger.Instant{{want.Peak, got.Peak}, {want.Final, got.Final}} {
			w, g := pair[0], pair[1]
			if g.Seq >= 0 && g.Seq < int64(len(at)) && at[g.Seq] != w.Seq && w.Seq != want.Final.Seq {
				rt.Fatalf("instant at event %d, want %d", at[g.Seq], w.Seq)
			}
			if w.T != g.T || w.R != g.R || w.Live != g.Live || w.C != g.C || w.Internal() != g.Internal() {
				rt.Fatalf("%+v\nwant %+v", g, w)
			}
			if g.R != g.T+g.Pending+g.NotRequested || g.Rounding+g.Slack+g.Stranded+g.Reserve+g.Reusable+g.External != 0 {
				rt.Fatalf("does not add up: %+v", g)
			}
		}
		for i := range want.Iterations {
			if w, g := want.Iterations[i], got.Iterations[i]; w.PeakT != g.PeakT || w.PeakC != g.PeakC || w.EndT != g.EndT || w.EndC != g.EndC {
				rt.Fatalf("iteration %+v\nwant %+v", g, w)
			}
		}
	})
}

// asNative is a recording of one arena without its chunks, with the sums after each
// event of it. at[seq] is the seq of the event before.
func asNative(t testing.TB, ours *modeltest.Recorder) (theirs *modeltest.Recorder, at []int64) {
	t.Helper()
	theirs = modeltest.New()
	var c, r, peak int64
	live := map[int64]bool{}
	for _, e := range ours.Events {
		native := e
		native.Context = 0
		switch e.Kind {
		case trace.KindArena:
			native.Context = theirs.Strings.Intern("allocator=native\tprovided=unknown\tcoalesces=0")
		case trace.KindAlloc:
			c += e.Provided
			live[e.Addr] = true
		case trace.KindFree:
			c -= e.Provided
		case trace.KindMap:
			r += e.Provided
		}
		switch e.Kind {
		case trace.KindAlloc, trace.KindFree, trace.KindFreeDone:
			native.Provided = e.Requested
		case trace.KindDeviceUsed, trace.KindGrowFailed, trace.KindMapFailed:
			continue
		}
		theirs.Stream = e.Stream
		theirs.Add(native)
		at = append(at, e.Seq)
		peak = max(peak, c)
		if e.Arena != trace.NoArena && e.Kind != trace.KindArena && e.Kind != trace.KindStreamUse {
			theirs.Add(trace.Event{Kind: trace.KindStatistics, Arena: trace.NoArena, Addr: peak, Requested: r, Provided: c})
			at = append(at, e.Seq)
		}
	}
	return theirs, at
}
