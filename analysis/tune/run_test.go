package tune

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/memprof/memprof/analysis"
	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// The classic policy takes what the samples were recorded with, to the byte, and its shares are
// those of analysis.
func TestSamplesAsRecorded(t *testing.T) {
	for name, want := range map[string]int64{"alexnet": 2162163712, "resnet50": 8587837440, "gpt2": 17179869184} {
		run, err := dataset.Open("../../samples/" + name)
		assert.NoError(t, err)
		process := run.Processes[0]
		reader, err := process.NewReader()
		assert.NoError(t, err)
		recorded, err := analysis.Run(reader, analysis.Options{Text: process.Strings().Text})
		assert.NoError(t, err)
		if reader, err = process.NewReader(); err != nil {
			t.Fatal(err)
		}
		policies := []bfc.Policy{policyOf(t, "classic never")}
		result, err := Run(context.Background(), reader, Options{Policies: policies, Text: process.Strings().Text})
		assert.NoError(t, err)
		o, d := &result.Outcomes[0], &recorded.Devices[0]
		assert.That(t, want <= 0 || o.PeakR == want, "%s: R %d, want %d", name, o.PeakR, want)
		if got := []int64{o.PeakR, o.PeakC, o.PeakT, result.Allocs, o.Iterations}; !cmp.Equal(got, []int64{d.MaxR, d.MaxC, d.MaxT, d.Allocs, 20}) {
			t.Errorf("%s: R, C, T, requests, iterations %v, recorded %v", name, got, []int64{d.MaxR, d.MaxC, d.MaxT, d.Allocs, 20})
		}
		assert.That(t, o.Cost == 0, "%s: the classic policy remaps in steady state: %+v", name, *o)
	}
}

// Six equal iterations after a first one that needs 40 MiB more, in figures worked out by hand.
func excessiveFirst() *job {
	j := newJob().arena(0, 1<<40, mainArena)
	j.alloc(0, 1, 10*mib).alloc(0, 2, 40*mib).free(0, 2).mark()
	for range 6 {
		j.alloc(0, 3, 6*mib).free(0, 3).mark()
	}
	return j
}

func TestFiguresByHand(t *testing.T) {
	step := 3 * time.Millisecond // three events each
	got := excessiveFirst().tune(t, 0, "classic never", "compact never", "compact iteration")
	want := []Outcome{
		// 16 MiB for the first request, then 64 for the second, and both handed out whole.
		{PeakR: 80 * mib, SteadyR: 80 * mib},
		{PeakR: 50 * mib, SteadyR: 50 * mib},
		// The trim unmaps 34 MiB when an iteration has not touched them.
		{PeakR: 50 * mib, SteadyR: 16 * mib},
	}
	for i := range want {
		want[i].Iterations, want[i].Duration = 7, step
		want[i].PeakT = 50 * mib
		want[i].PeakC = 50 * mib
	}
	want[0].PeakC = 80 * mib
	const mapped, unmapped = CostCreate + CostMap + CostAccess, CostUnmap + CostRelease // of a handle
	want[0].Whole, want[1].Whole, want[2].Whole = 40*mapped, 25*mapped, 25*mapped+17*unmapped
	assert.Diff(t, want, got, cmpopts.IgnoreFields(Outcome{}, "Policy"))
}

// An iteration of every third uses unmapped pages: they are mapped again, which has a cost.
func TestRemaps(t *testing.T) {
	j := newJob().arena(0, 1<<40, mainArena)
	for i := range 5 + 12 {
		j.alloc(0, 1, 2*mib)
		if i%6 == 4 {
			j.alloc(0, 2, 20*mib).free(0, 2)
		}
		j.free(0, 1).mark()
	}
	o := j.tune(t, 0, "compact iteration")[0]
	// 13 steady iterations: the fifth grows by 20 MiB, twice they are mapped again.
	want := 30 * (CostCreate + CostMap + CostAccess) / 13
	assert.That(t, o.Cost == want, "cost %v, want %v", o.Cost, want)
	assert.That(t, o.PeakR == 22*mib && o.SteadyR == 22*mib, "R %d, steady %d", o.PeakR, o.SteadyR)
}

func TestEventsOfAJob(t *testing.T) {
	gib := uint64(1 << 30)
	side := "growth=needed headroom=0 granularity=2097152 pool=0.0 tag= main=0"
	kv := "growth=needed headroom=0 granularity=2097152 pool=0.0 tag=kv main=0"
	pool := "growth=needed headroom=0 granularity=2097152 pool=0.7 tag= main=0"
	for _, test := range []struct {
		name         string
		job          *job
		policy       string
		limit        uint64
		peak, steady int64 // MiB of R; without marks steady is the end
		refused      int64
	}{
		{"frees that wait for another stream", newJob().arena(0, 1<<40, mainArena).alloc(0, 1, 2*mib).
			event(trace.KindStreamUse, 0, trace.Event{Addr: 1, Stream: 9}).free(0, 1).alloc(0, 2, 2*mib).
			event(trace.KindFreeDone, 0, trace.Event{Addr: 1}).alloc(0, 1, 2*mib), "compact never", 0, 4, 4, 0},
		{"a use by its own stream", newJob().arena(0, 1<<40, mainArena).alloc(0, 1, 2*mib).
			event(trace.KindStreamUse, 0, trace.Event{Addr: 1}).free(0, 1).alloc(0, 2, 2*mib), "compact never", 0, 2, 2, 0},
		{"another arena grows by what is needed", newJob().arena(0, 1<<40, mainArena).arenaOf(7, 1, side).alloc(0, 1, 6*mib).alloc(1, 1, 6*mib), "classic never", 0, 8 + 6, 14, 0},
		{"pools are not trimmed", newJob().arena(0, 1<<40, pool).alloc(0, 1, 6*mib).free(0, 1).mark().mark().mark().mark().mark().mark(), "compact iteration", 0, 6, 6, 0},
		{"arenas are", newJob().arena(0, 1<<40, side).alloc(0, 1, 6*mib).free(0, 1).mark().mark().mark().mark().mark().mark(), "compact iteration", 0, 6, 0, 0},
		{"a pool's end", newJob().arena(0, 1<<40, pool).alloc(0, 1, 6*mib).free(0, 1).event(trace.KindPoolRelease, 0, trace.Event{}).
			arena(1, 1<<40, pool).alloc(1, 1, 4*mib), "compact never", 0, 6, 4, 0},
		{"empty_cache", withText(newJob().arena(0, 1<<40, mainArena).alloc(0, 1, 6*mib).alloc(0, 2, 2*mib).free(0, 1), trace.KindReclaim, "empty_cache"), "compact never", 0, 8, 2, 0},
		{"a reclaim of the allocator's own", withText(newJob().arena(0, 1<<40, mainArena).alloc(0, 1, 6*mib).free(0, 1), trace.KindReclaim, "foreign"), "compact never", 0, 6, 6, 0},
		{"idle", newJob().arena(0, 1<<40, mainArena).alloc(0, 1, 6*mib).alloc(0, 2, 2*mib).free(0, 1).wait(time.Second).free(0, 2), "compact idle:500000000", 0, 8, 2, 0},
		{"not idle for long enough", newJob().arena(0, 1<<40, mainArena).alloc(0, 1, 6*mib).free(0, 1).wait(time.Second).alloc(0, 2, 2*mib), "compact idle:5000000000", 0, 6, 6, 0},
		{"paused", newJob().arena(0, 1<<40, mainArena).arena(1, 1<<40, kv).alloc(1, 1, 6*mib).event(trace.KindPause, 1, trace.Event{Requested: 6 * mib}).
			alloc(0, 2, 4*mib), "compact never", 0, 6, 4, 0},
		{"resumed", newJob().arena(0, 1<<40, mainArena).arena(1, 1<<40, kv).alloc(1, 1, 6*mib).alloc(1, 2, 2*mib).event(trace.KindPause, 1, trace.Event{Requested: 8 * mib}).
			free(1, 1).alloc(0, 3, 4*mib).event(trace.KindResume, 1, trace.Event{Requested: 2 * mib}), "compact never", 0, 8, 6, 0},
		{"a pause that failed", newJob().arena(0, 1<<40, mainArena).event(trace.KindMap, 0, trace.Event{Addr: 1 << 40, Provided: 6 * mib}).alloc(0, 1, 6*mib).event(trace.KindPause, 0, trace.Event{}), "compact never", 0, 6, 6, 0},
		{"a limit", newJob().arena(0, 1<<40, mainArena).alloc(0, 1, 6*mib).alloc(0, 2, 6*mib).free(0, 2, 1), "compact never", 8 * mib, 6, 6, 1},
		{"the recorded limit", newJob().arena(0, 8*mib, mainArena).alloc(0, 1, 6*mib).alloc(0, 2, 6*mib), "classic never", 0, 8, 8, 1},
		{"what is free elsewhere makes room", newJob().arena(0, 1<<40, mainArena).arenaOf(7, 1, side).alloc(1, 1, 6*mib).free(1, 1).alloc(0, 1, 6*mib), "compact never", 8 * mib, 6, 6, 0},
		{"but not what is of a pool", newJob().arena(0, 1<<40, mainArena).arena(1, 1<<40, pool).alloc(1, 1, 6*mib).free(1, 1).alloc(0, 1, 6*mib), "compact never", 8 * mib, 6, 6, 1},
		{"handles are small where there is little room", newJob().arena(0, 1<<40, mainArena).arenaOf(7, 1, side).alloc(1, 1, 34*mib).free(1, 1).alloc(0, 1, 6*mib), "classic never", 36 * mib, 34, 32, 0},
		// Of 34 MiB that are free the last handle, of 2 MiB, does not do; the one before has 32.
		{"whole handles make room", newJob().arenaOf(7, 1, side).arenaOf(8, 2, side).alloc(1, 1, 34*mib).free(1, 1).alloc(2, 1, int64(66*gib)-34*mib).alloc(2, 2, 6*mib),
			"classic never", 66 * gib, 66 << 10, 66<<10 - 28, 0},
		// Of the handles of 32 and 2 MiB the second is free; handles of a page would all be but three.
		{"handles after an emptied cache", withText(withText(newJob().arenaOf(7, 1, side).alloc(1, 1, int64(40*gib)).alloc(1, 2, int64(40*gib)).free(1, 1), trace.KindReclaim, "empty_cache").
			alloc(1, 3, 34*mib).free(1, 3).alloc(1, 4, 6*mib), trace.KindReclaim, "empty_cache"), "classic never", 66 * gib, 40 << 10, 32, 1},
		{"handles while more is mapped than free", withText(withText(newJob().arenaOf(7, 1, side).arenaOf(8, 2, side).alloc(2, 1, int64(40*gib)).alloc(2, 2, int64(40*gib)), trace.KindReclaim, "empty_cache").
			alloc(1, 3, 34*mib).free(1, 3).alloc(1, 4, 6*mib), trace.KindReclaim, "empty_cache"), "classic never", 66 * gib, 40<<10 + 34, 40<<10 + 6, 1},
		{"slack makes room", newJob().arena(0, 1<<40, mainArena).alloc(0, 1, 14*mib).free(0, 1).alloc(0, 2, 8*mib).alloc(0, 3, 4*mib), "classic never", 14 * mib, 14, 14, 0},
		{"the device is full", newJob().device(8*mib).alloc(0, 1, 6*mib).alloc(0, 2, 6*mib), "compact never", 0, 6, 6, 1},
		// 10 MiB are mapped and none is free; the request lacks half a MiB, a page is 2, and the device has 1.
		{"the device has no whole page", newJob().device(11*mib).arenaOf(7, 1, side).alloc(1, 1, 10*mib).alloc(1, 2, mib/2), "compact never", 0, 10, 10, 1},
		{"others have most of it", newJob().device(8*mib).event(trace.KindExternalAlloc, trace.NoArena, trace.Event{Addr: 9, Requested: 6 * mib}).alloc(0, 1, 4*mib).
			event(trace.KindExternalFree, trace.NoArena, trace.Event{Addr: 9}).alloc(0, 2, 4*mib), "compact never", 0, 4, 4, 1},
		{"others need what is free", newJob().device(8*mib).alloc(0, 1, 6*mib).free(0, 1).event(trace.KindExternalAlloc, trace.NoArena, trace.Event{Addr: 9, Requested: 4 * mib}),
			"compact never", 0, 6, 2, 0},
		{"what the device has in use was read", newJob().device(8*mib).event(trace.KindDeviceUsed, 0, trace.Event{Requested: 8 * mib, Provided: 6 * mib}).alloc(0, 1, 4*mib), "compact never", 0, 0, 0, 1},
		{"a request that was refused", newJob().arena(0, 1<<40, mainArena).alloc(0, 1, 2*mib).event(trace.KindOOM, 0, trace.Event{Requested: 6 * mib}).alloc(0, 2, 2*mib), "compact never", 0, 8, 8, 0},
		{"and is again", newJob().device(4*mib).alloc(0, 1, 2*mib).event(trace.KindOOM, 0, trace.Event{Requested: 6 * mib}).alloc(0, 2, 2*mib), "compact never", 0, 4, 4, 0},
		{"headroom", newJob().arena(0, 100*mib, strings.Replace(mainArena, "headroom=0", "headroom=83886080", 1)).alloc(0, 1, 2*mib).alloc(0, 2, 10*mib), "classic never", 0, 18, 18, 0},
		{"a native allocator's two arenas are one", newJob().arena(0, 0, "allocator=native\tprovided=unknown\tcoalesces=0\tpool=0.0\tmain=1").
			arena(1, 0, "allocator=native\tprovided=unknown\tcoalesces=1\tpool=0.0\tmain=1").alloc(0, 1, 6*mib).free(0, 1).alloc(1, 2, 6*mib), "compact never", 0, 6, 6, 0},
		{"requests of nothing", newJob().arena(0, 1<<40, mainArena).alloc(0, 1, 0).alloc(0, 2, 1).free(0, 1), "compact never", 0, 2, 2, 0},
		{"a restored block", newJob().arena(0, 1<<40, mainArena).event(trace.KindRestore, 0, trace.Event{Addr: 1, Requested: 6 * mib}).free(0, 1), "compact never", gib, 6, 6, 0},
		{"graph memory has none of its own", newJob().arena(0, 1<<40, mainArena).arena(1, 1<<40, side+"\tgraph_memory=1").alloc(0, 1, 2*mib).alloc(1, 2, 6*mib).free(1, 2), "compact never", 0, 2, 2, 0},
	} {
		o := test.job.tune(t, test.limit, test.policy)[0]
		if o.PeakR != test.peak*mib || o.SteadyR != test.steady*mib || o.Refused != test.refused {
			t.Errorf("%s: R %v MiB, in the end %v, refused %d; want %v, %v, %d", test.name,
				float64(o.PeakR)/mib, float64(o.SteadyR)/mib, o.Refused, test.peak, test.steady, test.refused)
		}
	}
}

func TestErrors(t *testing.T) {
	policies := []bfc.Policy{policyOf(t, "compact never")}
	for name, test := range map[string]struct {
		job  *job
		want string
	}{
		"nothing":        {newJob().arena(0, 1<<40, mainArena), "no allocation was recorded"},
		"twice":          {newJob().arena(0, 1<<40, mainArena).alloc(0, 1, 5).alloc(0, 1, 5), "event 2: a block at 0x1, where one is live"},
		"free of none":   {newJob().arena(0, 1<<40, mainArena).alloc(0, 1, 5).free(0, 2), "event 2: a free at 0x2, where no block is live"},
		"no granularity": {newJob().arena(0, 1<<40, "growth=double granularity=100 main=1"), "granularity=100 is not a power of two"},
		"no number":      {newJob().arena(0, 1<<40, "growth=double headroom=much"), `headroom="much" is not a number`},
	} {
		_, err := Run(context.Background(), &test.job.source, Options{Policies: policies, Text: test.job.text})
		assert.That(t, err != nil && strings.Contains(err.Error(), test.want), "%s: error %v, want %q", name, err, test.want)
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	j := excessiveFirst()
	_, err := Run(ended, &j.source, Options{Policies: policies, Text: j.text})
	assert.That(t, errors.Is(err, context.Canceled), "error %v, want that of the context", err)
}

// blockKey is a block of a made-up job.
type blockKey struct {
	arena int32
	addr  int64
}

// Whatever the job and however many replay it, each policy holds all that is live.
func TestAnyJob(t *testing.T) {
	policies := Compared()
	for _, preset := range bfc.Presets() {
		p := preset.Policy()
		p.Trim = bfc.Trim{When: bfc.TrimIdle, Idle: 2 * time.Millisecond}
		policies = append(policies, p)
	}
	rapid.Check(t, func(t *rapid.T) {
		j := newJob().arena(0, 1<<40, mainArena).arenaOf(7, 1, strings.Replace(mainArena, "main=1", "main=0", 1))
		live := []blockKey{}
		next, sum, greatest := int64(1), int64(0), int64(0)
		sizes := map[blockKey]int64{}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch what := rapid.IntRange(0, 9).Draw(t, "what"); {
			case what == 9:
				j.mark()
			case what >= 5 && len(live) > 0:
				k := rapid.IntRange(0, len(live)-1).Draw(t, "block")
				j.free(live[k].arena, live[k].addr)
				sum -= sizes[live[k]]
				live = append(live[:k], live[k+1:]...)
			default:
				key, size := blockKey{int32(rapid.IntRange(0, 1).Draw(t, "arena")), next}, rapid.Int64Range(1, 9*mib).Draw(t, "size")
				j.alloc(key.arena, key.addr, size)
				live, sizes[key] = append(live, key), size
				next++
				sum += size
				greatest = max(greatest, sum)
			}
		}
		if next == 1 {
			return
		}
		result, err := Run(context.Background(), &j.source, Options{Policies: policies, Text: j.text})
		assert.NoError(t, err)
		for _, o := range result.Outcomes {
			if o.PeakT != greatest || o.PeakC < o.PeakT || o.PeakR < o.PeakC || o.PeakR%(2*mib) != 0 || o.SteadyR > o.PeakR {
				t.Errorf("%v: T %d of %d, C %d, R %d, steady %d", o.Policy, o.PeakT, greatest, o.PeakC, o.PeakR, o.SteadyR)
			}
			if o.Policy.Preset == bfc.Compact && o.PeakC >= o.PeakT+int64(len(sizes))*bfc.Granule {
				t.Errorf("%v: C %d for T %d", o.Policy, o.PeakC, o.PeakT)
			}
			assert.That(t, o.Refused == 0, "%v: %d requests refused", o.Policy, o.Refused)
		}
	})
}

// Steps are of the blocks that are live, however many there were.
func TestSlotsAreUsedAgain(t *testing.T) {
	j := newJob().arena(0, 1<<40, mainArena)
	for i := range int64(10_000) {
		j.alloc(0, i, 1000)
		if i >= 3 {
			j.free(0, i-3)
		}
	}
	f := newFeed(j.text)
	slots := map[int32]bool{}
	j.size = len(j.events)
	batch, err := j.Next()
	assert.NoError(t, err)
	for i := range batch.Seq {
		ops, err := f.add(batch, i, nil)
		assert.NoError(t, err)
		for _, o := range ops {
			if o.kind == opAlloc {
				slots[o.slot] = true
			}
		}
	}
	live := 0
	for range f.live.Blocks() {
		live++
	}
	assert.That(t, len(slots) == 4 && live == 3 && f.allocs == 10_000,
		"%d slots and %d blocks after %d requests, of which 4 were live at most and 3 in the end", len(slots), live, f.allocs)
}

// TestJoinedArenasEndOnce: two recorded arenas of a stream are one in a replay, which goes on when the first
// of them ends.
func TestJoinedArenasEndOnce(t *testing.T) {
	other := strings.Replace(mainArena, "main=1", "main=0", 1)
	j := newJob().device(1<<40).arena(1, 0, other).alloc(0, 1, 8*mib).alloc(1, 1, 4*mib).free(1, 1)
	j.event(trace.KindPoolRelease, 1, trace.Event{})
	j.alloc(0, 2, 8*mib)
	if got := j.tune(t, 0, "compact never"); got[0].PeakT != 16*mib || got[0].Refused != 0 {
		t.Errorf("%d bytes requested at most, %d refused; want 16 MiB and none", got[0].PeakT, got[0].Refused)
	}
}

// TestSizeIsKnownBefore: an arena of another stream comes before the main one, which has the device's size.
func TestSizeIsKnownBefore(t *testing.T) {
	other := strings.Replace(mainArena, "main=1", "main=0", 1)
	j := newJob().arenaOf(7, 1, other).alloc(1, 1, 100*mib).device(64*mib).free(1, 1).alloc(1, 2, 40*mib)
	if got := j.tune(t, 0, "compact never"); got[0].PeakT != 40*mib || got[0].Refused != 1 {
		t.Errorf("%d bytes requested at most, %d refused; want 40 MiB and one", got[0].PeakT, got[0].Refused)
	}
}

// TestFreesDuringARequest: a request comes before the frees that the hook did for it when it had waited for the device. The
// first attempt does not find the block of another stream free; the block is freed behind a request that needs nothing of it.
func TestFreesDuringARequest(t *testing.T) {
	j := newJob().device(16*mib).alloc(0, 1, 8*mib)
	j.event(trace.KindStreamUse, 0, trace.Event{Addr: 1, Stream: 9}).free(0, 1)
	j.event(trace.KindReclaim, 0, trace.Event{Requested: 10 * mib}).event(trace.KindFreeDone, 0, trace.Event{Addr: 1}).alloc(0, 2, 10*mib)
	j.free(0, 2).alloc(0, 3, 16*mib).free(0, 3).mark()
	for limit, want := range map[uint64]int64{0: 16 * mib, 32 * mib: 18 * mib} {
		got := j.tune(t, limit, "compact never")[0]
		if got.PeakR != want || got.PeakT != 16*mib || got.Refused != 0 {
			t.Errorf("limit %d: %d bytes mapped and %d requested at most, %d refused; want %d, 16 MiB and none", limit, got.PeakR, got.PeakT, got.Refused, want)
		}
	}
}

// TestPoolsThatNobodyHolds: free memory of a pool is unmapped for others once the recording shows that nobody holds the pool, until
// somebody does again; an unmap that undoes a map shows nothing. A pool that ended while a request waited made room for it.
func TestPoolsThatNobodyHolds(t *testing.T) {
	private := "growth=needed headroom=0 granularity=2097152 pool=0.7 tag= main=0"
	begin := func() *job {
		return newJob().device(8*mib).arena(1, 0, private).alloc(1, 1, 4*mib).alloc(1, 2, 2*mib).free(1, 1)
	}
	reclaim := func(j *job) *job { return j.event(trace.KindReclaim, 0, trace.Event{Requested: 6 * mib}) }
	unmap := func(j *job) *job { return j.event(trace.KindUnmap, 1, trace.Event{Provided: 4 * mib}) }
	for _, test := range []struct {
		name    string
		job     *job
		refused int64
	}{
		{"held", begin().alloc(0, 3, 6*mib), 1},
		{"not held", unmap(reclaim(begin())).alloc(0, 3, 6*mib), 0},
		{"a map that is undone", unmap(begin()).alloc(0, 3, 6*mib), 1},
		{"held again", withText(unmap(reclaim(begin())).alloc(0, 3, 4*mib).free(0, 3).alloc(1, 4, 4*mib).free(1, 4), trace.KindPoolBegin, "pool=0.7").alloc(0, 5, 6*mib), 1},
		{"ended", reclaim(begin().free(1, 2)).event(trace.KindPoolRelease, 1, trace.Event{}).alloc(0, 3, 6*mib), 0},
	} {
		got := test.job.tune(t, 0, "compact never")[0]
		assert.That(t, got.Refused == test.refused, "%s: %d requests refused, want %d", test.name, got.Refused, test.refused)
	}
}
