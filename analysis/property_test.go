package analysis

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/memprof/memprof/analysis/attribution"
	"github.com/memprof/memprof/analysis/ledger"
	"github.com/memprof/memprof/analysis/modeltest"
	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/tracetest/assert"
	"pgregory.net/rapid"
)

// scenario draws what two allocators of one device do.
func scenario(t *rapid.T) *modeltest.Recorder {
	r := modeltest.New()
	unit := rapid.SampledFrom([]uint64{256, 1024, 4096}).Draw(t, "granularity")
	var arenas []*modeltest.Arena
	for i := range 2 {
		options := bfc.Options{
			Limit:             rapid.Uint64Range(8<<10, 96<<10).Draw(t, "limit") &^ (unit - 1),
			Growth:            rapid.SampledFrom([]bfc.Growth{bfc.Double, bfc.Needed}).Draw(t, "growth"),
			GarbageCollection: rapid.Bool().Draw(t, "gc"),
		}
		refuse := rapid.IntRange(1, 40).Draw(t, "refuse")
		a, tries := (*modeltest.Arena)(nil), 0
		a, err := r.NewArena(0, options, bfc.NewDevice(bfc.DeviceOptions{
			VMM: i == 0 || rapid.Bool().Draw(t, "vmm"), Granularity: unit, Base: uint64(i+1) << 30,
			RefuseGrow: func(call int, _ uint64) bool { return call%refuse == 0 },
			RefuseMap:  func(call int, _, _ uint64) bool { return call%refuse == 0 },
		}), func(size uint64) bool {
			// What a trim unmaps, the attempt that comes to a refusal may have mapped: that
			// could go on for ever.
			tries++
			return tries%8 != 0 && a.Trim(size) > 0 && size < 2048
		})
		assert.NoError(t, err)
		arenas = append(arenas, a)
	}
	type held struct {
		addr          uint64
		shared, freed bool
	}
	live := make([][]held, len(arenas))
	for range rapid.IntRange(1, 250).Draw(t, "steps") {
		which := rapid.IntRange(0, len(arenas)-1).Draw(t, "arena")
		a, blocks := arenas[which], &live[which]
		pick := func() int { return rapid.IntRange(0, len(*blocks)-1).Draw(t, "block") }
		switch op := rapid.IntRange(0, 20).Draw(t, "op"); {
		case op < 10:
			size := rapid.Uint64Range(1, 1<<rapid.IntRange(4, 14).Draw(t, "bits")).Draw(t, "size")
			if addr, ok := a.Alloc(size, rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "context")); ok {
				*blocks = append(*blocks, held{addr: addr})
			}
		case op < 16 && len(*blocks) > 0:
			i := pick()
			b := &(*blocks)[i]
			if b.shared && !b.freed {
				b.freed = true
				a.Free(b.addr, true)
				break
			}
			if b.freed {
				a.FreeDone(b.addr)
			} else {
				a.Free(b.addr, false)
			}
			*blocks = slices.Delete(*blocks, i, i+1)
		case op < 18 && len(*blocks) > 0:
			if b := &(*blocks)[pick()]; !b.freed {
				stream := rapid.Int64Range(0, 1).Draw(t, "stream")
				a.Use(b.addr, stream)
				b.shared = b.shared || stream != 0
			}
		case op == 18:
			a.Trim(rapid.Uint64Range(1, 32<<10).Draw(t, "trim"))
		case op == 19:
			r.Mark(int64(len(r.Events)))
		case len(*blocks) > 0:
			a.Shortage()
			for _, b := range *blocks {
				if !b.freed {
					a.Shrink(b.addr)
				}
			}
		}
	}
	return r
}

func TestEveryTermIsWhatItsDefinitionCounts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := scenario(t)
		a := newAnalyzer(Options{Text: r.Strings.Text})
		n := &naive{
			text: r.Strings.Text, granules: map[int64]*naiveGranule{}, blocks: map[int64]*naiveBlock{}, separate: map[int32]bool{},
		}
		var peak, maxima ledger.Split
		var peakSeq int64 = -1
		var pictures [2]picture
		var contexts, sizes []attribution.AllocationGroup
		var largestFree chunk
		var free ledger.FreeTerms
		var view int32
		for i := range r.Events {
			e := &r.Events[i]
			assert.NoError(t, a.event(e))
			n.apply(*e)
			all := n.count(-1)
			if len(a.devices) > 0 {
				n.checkDevice(t, a.devices[0], e, all)
			}
			for _, ar := range a.arenas {
				n.checkArena(t, ar, e)
			}
			maxima.T, maxima.C, maxima.R = max(maxima.T, all.T), max(maxima.C, all.C), max(maxima.R, all.R)
			if all.R > peak.R || all.R == peak.R && all.T > peak.T {
				peak, peakSeq = all, e.Seq
				pictures = [2]picture{n.picture(0), n.picture(1)}
				contexts, sizes = n.groups(r)
				largestFree = n.largestFree(-1)
				free = n.free(n.view())
				view = n.view()
			}
		}
		result, err := a.finish()
		assert.NoError(t, err)
		d := &result.Devices[0]
		want := ledger.Instant{Seq: peakSeq, Time: d.Peak.Time, Iteration: d.Peak.Iteration}
		peak.Fill(&want)
		free.Fill(&want)
		want.View = view
		assert.Must(t, d.Peak == want, "peak %+v\nwant %+v", d.Peak, want)
		assert.Must(t, d.MaxT == maxima.T && d.MaxC == maxima.C && d.MaxR == maxima.R, "maxima %d %d %d, want %+v", d.MaxT, d.MaxC, d.MaxR, maxima)
		assert.Must(t, d.Chunks.Largest() == largestFree.to-largestFree.from, "largest free %d, want %+v", d.Chunks.Largest(), largestFree)
		got := [2]picture{n.none(), n.none()}
		for _, m := range d.Map.Arenas {
			got[m.Arena] = drawn(m)
		}
		if diff := cmp.Diff(pictures, got); diff != "" && peakSeq >= 0 {
			t.Fatal(diff)
		}
		if diff := cmp.Diff(contexts, d.TopContexts); diff != "" {
			t.Fatal(diff)
		}
		if diff := cmp.Diff(sizes, d.TopSizes); diff != "" {
			t.Fatal(diff)
		}
	})
}

// checkDevice holds the state of a device against the granules.
func (n *naive) checkDevice(t *rapid.T, d *device, e *trace.Event, all ledger.Split) {
	t.Helper()
	assert.Must(t, d.Split == all, "seq %d %s: device %+v\nwant %+v", e.Seq, e.Kind, d.Split, all)
	got := d.Instant(e.Seq, e.Time)
	want := got
	n.free(n.view()).Fill(&want)
	want.View = n.view()
	assert.Must(t, got == want, "seq %d %s: device %+v\nwant %+v", e.Seq, e.Kind, got, want)
	if sum := got.T + got.Internal() + got.Pending + got.Stranded + got.Reserve + got.Reusable + got.External; sum != got.R {
		t.Fatalf("seq %d %s: the terms are %d bytes, R %d", e.Seq, e.Kind, sum, got.R)
	}
	for i := range d.result.OOMs {
		o := &d.result.OOMs[i]
		if o.Seq != e.Seq {
			continue
		}
		free, small := n.free(o.Arena), n.tooSmall(o.Arena, o.Request)
		n.free(o.Arena).Fill(&want)
		want.View = o.Arena
		assert.Must(t, o.At == want && o.TooSmall == small && o.Stranded == free.Stranded && o.Free == all.Free(),
			"OOM %+v\nwant %+v, too small %d", o, want, small)
	}
}

// checkArena holds the state of an arena by itself against the granules.
func (n *naive) checkArena(t *rapid.T, ar *arena, e *trace.Event) {
	t.Helper()
	if want := n.count(ar.Index); ar.Split != want {
		t.Fatalf("seq %d %s: arena %d %+v\nwant %+v", e.Seq, e.Kind, ar.Index, ar.Split, want)
	}
	want := n.free(ar.Index)
	want.Stranded = 0
	if got := ar.OwnTerms(); got != want {
		t.Fatalf("seq %d %s: arena %d %+v\nwant %+v", e.Seq, e.Kind, ar.Index, got, want)
	}
	if most := n.largestFree(ar.Index); ar.LargestFree() != most.to-most.from {
		t.Fatalf("seq %d %s: arena %d: largest free chunk %d, want %+v", e.Seq, e.Kind, ar.Index, ar.LargestFree(), most)
	}
}
