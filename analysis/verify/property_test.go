package verify

import (
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/dataset"
)

// drawJob is a job of up to three arenas of any policy, on devices that refuse at random.
func drawJob(t *rapid.T, tb testing.TB) *job {
	j := newJob()
	j.counts = rapid.Bool().Draw(t, "counts pages")
	r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
	for range rapid.IntRange(1, 3).Draw(t, "arenas") {
		options := bfc.Options{
			Limit:             rapid.SampledFrom([]uint64{0, 5 * mib, 40*mib + 1000, 200 * mib, 1 * gib}).Draw(t, "limit"),
			Headroom:          rapid.SampledFrom([]uint64{0, 0, 20 * mib, 60 * mib}).Draw(t, "headroom"),
			Growth:            rapid.SampledFrom([]bfc.Growth{bfc.Double, bfc.Needed, bfc.Pages}).Draw(t, "growth"),
			Split:             rapid.SampledFrom([]bfc.Split{bfc.SplitClassic, bfc.SplitAlways}).Draw(t, "split"),
			GarbageCollection: rapid.Bool().Draw(t, "gc"),
		}
		if rapid.Bool().Draw(t, "unlimited") {
			options.Limit = bfc.NoLimit
		}
		if rapid.Bool().Draw(t, "fraction") {
			options.FragmentationFraction = 0.001
		}
		least := 8
		if rapid.Bool().Draw(t, "trim") {
			options.Trim.When, least = bfc.TrimIteration, 14
		}
		if options.Growth == bfc.Pages {
			least = 14
		}
		often := rapid.IntRange(0, 5).Draw(t, "refusals in 16")
		j.heap(tb, options, bfc.DeviceOptions{
			VMM:         rapid.Bool().Draw(t, "vmm"),
			Granularity: 1 << max(least, rapid.SampledFrom([]int{8, 14, 21}).Draw(t, "granularity")),
			Physical:    rapid.SampledFrom([]uint64{30 * mib, 80 * mib, 2 * gib}).Draw(t, "physical"),
			Reservation: rapid.SampledFrom([]uint64{16 * mib, 1 << 40}).Draw(t, "reservation"),
			RefuseGrow:  func(int, uint64) bool { return r.IntN(16) < often },
			RefuseMap:   func(int, uint64, uint64) bool { return r.IntN(16) < often },
			// With growth pages one range can be tried twice for a request, and no event says which one was refused.
			RefuseUnmap: func(int, uint64, uint64) bool { return options.Growth != bfc.Pages && r.IntN(16) < often },
		})
	}
	for range rapid.IntRange(1, 6).Draw(t, "turns") {
		h := j.heaps[r.IntN(len(j.heaps))]
		most := rapid.SampledFrom([]uint64{2000, 300 * kib, 9 * mib}).Draw(t, "greatest size")
		if rapid.Bool().Draw(t, "repeats itself") {
			h.repeat(r, 8, most)
		} else {
			h.churn(r, 100, most)
		}
	}
	return j
}

// replayAll is the first mismatch of a list of events, with no file and no checksums.
func replayAll(events []trace.Event, texts []string) (*replayer, *Mismatch) {
	strings := dataset.NewStrings()
	ids := make([]int32, len(texts))
	for i, text := range texts {
		ids[i] = strings.Intern(text)
	}
	r := newReplayer()
	for _, e := range events {
		if n := int(e.Context); n >= 0 && n < len(ids) {
			e.Context = ids[n]
		}
		if wrong := r.step(&e, strings); wrong != nil {
			return r, wrong
		}
	}
	return r, nil
}

// TestReplayAgrees: what an allocator recorded replays, whatever its policy and device.
func TestReplayAgrees(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		j := drawJob(rt, t)
		r, wrong := replayAll(j.events, j.texts)
		if wrong != nil {
			from := max(0, wrong.Seq-12)
			for _, e := range j.events[from:min(wrong.Seq+2, int64(len(j.events)))] {
				rt.Logf("%d arena %d %v %s", e.Seq, e.Arena, e.Kind, describe(&e))
			}
			rt.Fatal(wrong)
		}
		if open := r.unfinished(); open != nil {
			rt.Fatalf("event %d left over", open.Seq)
		}
		for _, h := range j.heaps {
			if got, want := r.arenas[h.id].heap.Stats(), h.a.Stats(); got != want {
				rt.Fatalf("arena %d: stats %+v, want %+v", h.id, got, want)
			}
		}
	})
}

// TestHostile: no list of events, however far from a recording, makes the replay panic.
func TestHostile(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		j := drawJob(rt, t)
		number := rapid.OneOf(rapid.Int64(), rapid.Int64Range(-1, 4096), rapid.Just(int64(1)<<42), rapid.Just(int64(2*mib)))
		for range rapid.IntRange(1, 10).Draw(rt, "changes") {
			e := &j.events[rapid.IntRange(0, len(j.events)-1).Draw(rt, "at")]
			switch rapid.IntRange(0, 6).Draw(rt, "what") {
			case 0:
				e.Kind = trace.Kind(rapid.IntRange(0, 34).Draw(rt, "kind"))
			case 1:
				e.Addr = number.Draw(rt, "addr")
			case 2:
				e.Requested = number.Draw(rt, "requested")
			case 3:
				e.Provided = number.Draw(rt, "provided")
			case 4:
				e.Arena = rapid.Int32Range(-1, 4).Draw(rt, "arena")
			case 5:
				e.Stream = number.Draw(rt, "stream")
			case 6:
				*e = j.events[rapid.IntRange(0, len(j.events)-1).Draw(rt, "copy of")]
			}
		}
		if _, wrong := replayAll(j.events, j.texts); wrong != nil && wrong.Error() == "" {
			rt.Fatal("a mismatch without words")
		}
	})
}

// FuzzReplay takes 6 bytes an event: kind, arena, and a few bits for each number.
func FuzzReplay(f *testing.F) {
	f.Add([]byte{1, 0, 0, 0, 0, 1, 5, 0, 0, 2, 2, 0, 2, 0, 0, 1, 1, 0, 3, 0, 0, 1, 1, 0}, "growth=double headroom=0 fraction=0 gc=0 granularity=256 coalesces=1")
	f.Add([]byte{1, 0, 0, 9, 0, 1, 6, 0, 0, 2, 2, 0, 9, 0, 0, 1, 1, 0}, "growth=pages headroom=1 fraction=1e300 gc=1 granularity=9223372036854775808 coalesces=0")
	f.Fuzz(func(t *testing.T, data []byte, options string) {
		var events []trace.Event
		number := func(b byte) int64 { return int64(b&7) << (b >> 3 * 2) }
		for ; len(data) >= 6; data = data[6:] {
			events = append(events, trace.Event{
				Seq: int64(len(events)), Kind: trace.Kind(data[0] % 35), Arena: int32(data[1]%4) - 1,
				Addr: number(data[2]), Requested: number(data[3]), Provided: number(data[4]),
				Stream: int64(data[5] % 2), Context: int32(data[5] >> 1 % 2),
			})
		}
		replayAll(events, []string{"", options})
	})
}
