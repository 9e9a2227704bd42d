package analysis

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/memprof/memprof/analysis/modeltest"
	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/trace"
	"pgregory.net/rapid"
)

// However few points there are, together they have every event once and lose no extreme.
func TestSeriesLosesNoPeak(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(2, 9).Draw(t, "limit")
		values := rapid.SliceOfN(rapid.Int64Range(0, 50), 1, 200).Draw(t, "values")
		d := newDevice(0, &Options{MaxPoints: limit})
		for i, v := range values {
			d.t, d.c, d.r = v, 2*v, v/10
			d.series.add(d, int64(i), int64(10*i))
		}
		points := d.series.points
		if len(points) > limit || len(points) < (limit+1)/2 && len(points) < len(values) {
			t.Fatalf("%d points for %d events, limit %d", len(points), len(values), limit)
		}
		next, per := 0, d.series.per
		for i, p := range points {
			if n := (p.End-p.Start)/10 + 1; n != int64(per) && (i < len(points)-1 || n > int64(per)) {
				t.Fatalf("point %d of %d has %d events, not %d", i, len(points), n, per)
			}
			if p.Start != int64(10*next) || p.seq != int64(next) {
				t.Fatalf("a point starts at %d, want %d", p.Start, 10*next)
			}
			low, high, best := values[next], values[next], next
			for ; next < len(values) && int64(10*next) <= p.End; next++ {
				low, high = min(low, values[next]), max(high, values[next])
				if v := values[next]; v/10 > values[best]/10 || v/10 == values[best]/10 && v > values[best] {
					best = next
				}
			}
			if p.T != (Range{low, high}) || p.C != (Range{2 * low, 2 * high}) || p.R != (Range{low / 10, high / 10}) {
				t.Fatalf("ranges %+v, want T %d to %d", p.Point, low, high)
			}
			if p.At.Seq != int64(best) || p.At.T != values[best] {
				t.Fatalf("at %+v, want event %d", p.At, best)
			}
		}
		if next != len(values) {
			t.Fatalf("the points end after %d of %d events", next, len(values))
		}
	})
}

func TestGrowthVerdicts(t *testing.T) {
	r := modeltest.New()
	a := newArena(t, r, bfc.Options{Limit: bfc.NoLimit, Growth: bfc.Needed}, bfc.DeviceOptions{VMM: true, Granularity: mib})
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
		Free: 3 * mib, LargestFree: 2 * mib, Stranded: 3 * mib, Verdict: Fragmentation,
	}
	if diff := cmp.Diff(want, last); diff != "" {
		t.Error(diff)
	}
	if d.GrowthCount != 7 || d.FragmentationGrowths != 1 || d.Growths[0].Verdict != Capacity {
		t.Errorf("%d growths, %d by fragmentation, first %v", d.GrowthCount, d.FragmentationGrowths, d.Growths[0])
	}
	d = run(t, r, Options{MaxGrowths: 2}).Devices[0]
	if len(d.Growths) != 2 || d.GrowthCount != 7 {
		t.Errorf("%d of %d growths kept, want 2 of 7", len(d.Growths), d.GrowthCount)
	}
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
		if _, ok := a.Alloc(size, "loss"); ok {
			t.Fatal("there was memory")
		}
	}
	d := run(t, r, Options{}).Devices[0]
	if d.OOMCount != 2 || len(d.OOMs) != 2 {
		t.Fatalf("%d OOMs, want 2", d.OOMCount)
	}
	first, second := d.OOMs[0], d.OOMs[1]
	if first.Verdict != Fragmentation || first.Free != 2*mib || first.LargestFree != mib || first.Request != 2*mib || first.Context != "loss" {
		t.Errorf("%+v", first)
	}
	if second.Verdict != Capacity || second.At.T != 2*mib || second.At.R != 4*mib {
		t.Errorf("%+v", second)
	}
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
	r.Add(trace.Event{Kind: 200}) // of a newer version
	result := run(t, r, Options{})
	d := result.Devices[0]
	if d.External != (External{Live: 800, Peak: 1200, Calls: 5}) || d.MaxR != 0 || d.Peak.Seq != -1 {
		t.Errorf("external %+v, R %d, peak %+v", d.External, d.MaxR, d.Peak)
	}
	if result.UnknownEvents != 1 || result.Events != 6 {
		t.Errorf("%d of %d events unknown, want 1 of 6", result.UnknownEvents, result.Events)
	}
}

// Two devices and arenas beside each other: sums are exact and each device has its peak.
func TestDevicesAreApart(t *testing.T) {
	r := modeltest.New()
	var arenas []*modeltest.Arena
	for i := range 3 {
		a, err := r.NewArena(int32(i/2), bfc.Options{Limit: bfc.NoLimit},
			bfc.NewDevice(bfc.DeviceOptions{VMM: true, Granularity: 2 * mib, Base: uint64(i+1) << 40}), nil)
		if err != nil {
			t.Fatal(err)
		}
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
		if got := result.Arenas[i]; got.Final.T != want || got.MaxR != 2*mib {
			t.Errorf("arena %d: %+v", i, got)
		}
	}
	if n := len(result.Devices[0].Map.Arenas); n != 2 || result.Devices[0].Map.Arenas[1].At.T != 2000 {
		t.Errorf("%d arenas in the map of device 0", n)
	}
}
