package analysis

import (
	"math"
	"slices"
	"testing"

	"github.com/memprof/memprof/analysis/iterations"

	"github.com/google/go-cmp/cmp"
	"github.com/memprof/memprof/analysis/accounting"
	"github.com/memprof/memprof/analysis/ledger"
	"github.com/memprof/memprof/analysis/modeltest"
	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/tracetest/assert"
	"pgregory.net/rapid"
)

// The points are those of a naive division of all events into buckets of the least width that
// gives no more than the limit, whatever doublings led there: no event and no extreme is lost.
func TestSeriesLosesNoPeak(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(2, 9).Draw(t, "limit")
		values := rapid.SliceOfN(rapid.Int64Range(0, 50), 1, 200).Draw(t, "values")
		d := newDevice(0, &Options{MaxPoints: limit}, &growthTracker{})
		now := rapid.Int64Range(-1e6, 1e15).Draw(t, "start")
		steps := rapid.OneOf(rapid.Int64Range(0, 300), rapid.Int64Range(0, 1e4), rapid.Int64Range(0, 1e10), rapid.Int64Range(-100, 0))
		var times []int64
		for i, v := range values {
			own := now + steps.Draw(t, "step")
			d.closePoint(own)
			d.T, d.C, d.R = v, 2*v, v/10
			d.Iteration = i / 7
			d.series.add(d.Device, int64(i), own)
			now = max(now, own)
			if i == 0 {
				now = own
			}
			times = append(times, now)
		}
		shift := uint(8)
		want := buckets(values, times, shift)
		for ; len(want) > limit; shift++ {
			want = buckets(values, times, shift+1)
		}
		var got []Point
		d.series.close(d.Device)
		for _, p := range d.series.points {
			assert.Must(t, p.seq == p.At.Seq || values[p.seq]/10 <= p.At.R, "the point of event %d has its peak at %+v", p.seq, p.At)
			p.At.Time, p.Last.Time = 0, 0 // the events' own: they may go back
			got = append(got, p.Point)
		}
		diff := cmp.Diff(want, got)
		assert.Must(t, diff == "" && d.series.shift == shift, "width 1<<%d, want 1<<%d: %s", d.series.shift, shift, diff)
	})
}

// Each point has the whole state after its last event, and after that of its peak, as an observer of the pass
// sees them. Threads' clocks differ: times step back.
func TestSeriesHasStatesOfEvents(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := scenario(t)
		for i := range r.Events {
			r.Events[i].Time = int64(i)*rapid.Int64Range(0, 900).Draw(t, "time") - rapid.Int64Range(0, 3000).Draw(t, "back")
		}
		seen := map[int64]ledger.Instant{}
		result, err := Run(modeltest.Source(r.Events, 7), Options{
			MaxPoints: rapid.IntRange(2, 40).Draw(t, "points"), Text: r.Strings.Text,
			Observe: func(e *trace.Event, _ int32, after *ledger.Instant) {
				if after != nil {
					seen[e.Seq] = *after
				}
			},
		})
		assert.NoError(t, err)
		for _, d := range result.Devices {
			for _, p := range d.Series.Points {
				for _, got := range []ledger.Instant{p.At, p.Last} {
					want := seen[got.Seq]
					got.Paused, got.Iteration, want.Iteration = want.Paused, 0, 0 // not theirs
					assert.Must(t, got == want, "%+v, want %+v", got, want)
				}
			}
		}
	})
}

// buckets divides events into points of a width, without the times of instants.
func buckets(values, times []int64, shift uint) []Point {
	var points []Point
	instant := func(i int) ledger.Instant {
		return ledger.Instant{Seq: int64(i), T: values[i], C: 2 * values[i], R: values[i] / 10, Iteration: i / 7}
	}
	for from := 0; from < len(values); {
		to := from
		for to < len(values) && times[to]>>shift == times[from]>>shift {
			to++
		}
		low, high := slices.Min(values[from:to]), slices.Max(values[from:to])
		points = append(points, Point{
			Start: times[from], End: times[to-1], Iteration: from / 7,
			T: Range{low, high}, C: Range{2 * low, 2 * high}, R: Range{low / 10, high / 10},
			At: instant(from + slices.Index(values[from:to], high)), Last: instant(to - 1),
		})
		from = to
	}
	return points
}

// Far apart events make the width double in vain, but only so often.
func TestSeriesWidensBoundedly(t *testing.T) {
	d := newDevice(0, &Options{MaxPoints: 2}, &growthTracker{})
	for i, time := range []int64{math.MinInt64, -1, 0, 1, math.MaxInt64 - 1, math.MaxInt64} {
		d.T = int64(i)
		d.series.add(d.Device, int64(i), time)
	}
	points := d.series.points
	assert.That(t, len(points) == 2 && d.series.shift == 63 && points[0].T == (Range{0, 1}) && points[1].T == (Range{2, 5}),
		"width 1<<%d, %+v", d.series.shift, points)
}

// Iterations found after the fact are those of every instant of the course.
func TestSeriesIterations(t *testing.T) {
	marked := job(t, 12, 40, 0, false)
	r := modeltest.New()
	r.Strings = marked.Strings
	for _, e := range marked.Events {
		if e.Kind != trace.KindIteration {
			r.Add(e)
		}
	}
	d := run(t, r, Options{MaxPoints: 7}).Devices[0]
	var log iterations.Log
	for _, it := range d.Iterations {
		log.Add(it)
	}
	at := log.IndexAt
	spread := 0
	for i, p := range d.Series.Points {
		assert.That(t, p.At.Iteration == at(p.At.Seq) && p.Last.Iteration == at(p.Last.Seq) && p.Iteration <= p.At.Iteration, "point %d: %+v", i, p)
		spread += p.Last.Iteration - p.Iteration
	}
	assert.That(t, len(d.Iterations) >= 10 && spread >= 3, "%d iterations, %d ends of them inside of points: this tests nothing", len(d.Iterations), spread)
}

func TestGrowthVerdicts(t *testing.T) {
	r := modeltest.New()
	a := newArena(t, r, bfc.Options{Limit: bfc.NoLimit, Growth: bfc.Needed}, bfc.DeviceOptions{
		VMM: true, Granularity: mib, RefuseUnmap: func(int, uint64, uint64) bool { return true },
	})
	var blocks []uint64
	for range 6 {
		blocks = append(blocks, alloc(t, a, mib, "")) // six growths of 1 MiB: capacity
	}
	for _, i := range []int{0, 2, 3} { // free 1 MiB and 2 MiB
		a.Free(blocks[i], false)
	}
	alloc(t, a, 3*mib, "") // 3 MiB are free, but not in one piece
	d := run(t, r, Options{MaxGrowths: 7}).Devices[0]
	last := d.Growths[6]
	want := Growth{
		Seq: last.Seq, Time: last.Time, Request: 3 * mib, Grown: 3 * mib, Reserved: 9 * mib,
		Free: 3 * mib, LargestFree: 2 * mib, TooSmall: 3 * mib, Verdict: Fragmentation,
	}
	assert.Diff(t, want, last)
	assert.That(t, d.GrowthCount == 7 && d.FragmentationGrowths == 1 && d.Growths[0].Verdict == Capacity,
		"%d growths, %d by fragmentation, first %v", d.GrowthCount, d.FragmentationGrowths, d.Growths[0])
	d = run(t, r, Options{MaxGrowths: 2}).Devices[0]
	assert.That(t, len(d.Growths) == 2 && d.GrowthCount == 7, "%d of %d growths kept, want 2 of 7", len(d.Growths), d.GrowthCount)
}

func TestOOM(t *testing.T) {
	r := modeltest.New()
	a := newArena(t, r, bfc.Options{Limit: 4 * mib}, bfc.DeviceOptions{VMM: true, Granularity: mib})
	var blocks []uint64
	for range 4 {
		blocks = append(blocks, alloc(t, a, mib, ""))
	}
	a.Free(blocks[0], false)
	a.Free(blocks[2], false)
	for _, size := range []uint64{2 * mib, 3 * mib} {
		_, ok := a.Alloc(size, "loss")
		assert.Must(t, !ok, "there was memory")
	}
	d := run(t, r, Options{}).Devices[0]
	assert.Must(t, d.OOMCount == 2 && len(d.OOMs) == 2, "%d OOMs, want 2", d.OOMCount)
	first, second := d.OOMs[0], d.OOMs[1]
	assert.That(t, first.Verdict == Fragmentation && first.Free == 2*mib && first.LargestFree == mib && first.Request == 2*mib && first.Context == "loss",
		"%+v", first)
	assert.That(t, second.Verdict == Capacity && second.At.T == 2*mib && second.At.R == 4*mib, "%+v", second)
}

// What others take is no memory of ours.
func TestExternalMemory(t *testing.T) {
	r := modeltest.New()
	add := func(kind trace.Kind, addr, bytes int64) {
		r.Add(trace.Event{Kind: kind, Arena: trace.NoArena, Addr: addr, Requested: bytes, Provided: bytes})
	}
	add(trace.KindExternalAlloc, 0x1000, 500)
	add(trace.KindExternalAlloc, 0x2000, 700)
	add(trace.KindExternalFree, 0x1000, 0)
	add(trace.KindExternalFree, 0x9000, 0) // was there before the hook
	add(trace.KindExternalAlloc, 0x3000, 100)
	result := run(t, r, Options{})
	d := result.Devices[0]
	if *d.OtherLibraries != (accounting.OtherLibraries{Live: 800, Peak: 1200, Calls: 5}) || d.MaxR != 0 || d.Peak.Seq != -1 {
		t.Errorf("other libraries %+v, R %d, peak %+v", d.OtherLibraries, d.MaxR, d.Peak)
	}
}

// Two devices and arenas beside each other: sums are exact and each device has its peak.
func TestDevicesAreApart(t *testing.T) {
	r := modeltest.New()
	var arenas []*modeltest.Arena
	for i := range 3 {
		a, err := r.NewArena(int32(i/2), bfc.Options{Limit: bfc.NoLimit},
			bfc.NewDevice(bfc.DeviceOptions{VMM: true, Granularity: 2 * mib, Base: uint64(i+1) << 40}), nil)
		assert.NoError(t, err)
		arenas = append(arenas, a)
	}
	for i, a := range arenas {
		alloc(t, a, uint64(1000*(i+1)), "")
	}
	result := run(t, r, Options{})
	if got := []int64{result.Devices[0].Final.T, result.Devices[1].Final.T}; got[0] != 3000 || got[1] != 3000 {
		t.Errorf("T %v, want 3000 on each", got)
	}
	if got := []int64{result.Devices[0].MaxR, result.Devices[1].MaxR}; got[0] != 4*mib || got[1] != 2*mib {
		t.Errorf("R %v", got)
	}
	for i, want := range []int64{1000, 2000, 3000} {
		got := result.Arenas[i]
		assert.That(t, got.Final.T == want && got.MaxR == 2*mib, "arena %d: %+v", i, got)
	}
	n := len(result.Devices[0].Map.Arenas)
	assert.That(t, n == 2 && result.Devices[0].Map.Arenas[1].At.T == 2000, "%d arenas in the map of device 0", n)
}
