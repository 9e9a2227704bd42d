package torchalloc

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// job is PyTorch's allocator with a driver, and the events that the hook would record of it.
type hookedJob struct {
	Device
	a       *Allocator
	events  []trace.Event
	texts   []string
	blocks  []*Block // live
	waiting []*Block // for other streams
}

func newHookedJob(settings Settings, conf string, bytes uint64) *hookedJob {
	j := &hookedJob{Device: NewDriver(bytes)}
	j.a = NewAllocator(AllocatorOptions{Settings: settings, Version: Torch211, Total: bytes}, j)
	joins := 0
	if settings.Expandable {
		joins = 1
	}
	j.texts = []string{"", fmt.Sprintf("allocator=native\tprovided=unknown\tcoalesces=%d\tpool=0.0\tmain=1\tconf=%s", joins, conf)}
	j.add(trace.Event{Kind: trace.KindArena, Context: 1})
	return j
}

func (j *hookedJob) add(e trace.Event) {
	e.Seq = int64(len(j.events))
	j.events = append(j.events, e)
}

func (j *hookedJob) Alloc(bytes uint64) (uint64, bool) {
	addr, ok := j.Device.Alloc(bytes)
	return addr, j.called(ok, trace.KindMap, addr, bytes)
}

func (j *hookedJob) Free(addr, bytes uint64) {
	j.Device.Free(addr, bytes)
	j.called(true, trace.KindUnmap, addr, bytes)
}

func (j *hookedJob) Map(addr, bytes uint64) bool {
	return j.called(j.Device.Map(addr, bytes), trace.KindMap, addr, bytes)
}

func (j *hookedJob) Unmap(addr, bytes uint64) {
	j.Device.Unmap(addr, bytes)
	j.called(true, trace.KindUnmap, addr, bytes)
}

func (j *hookedJob) called(ok bool, kind trace.Kind, addr, bytes uint64) bool {
	if ok {
		j.add(trace.Event{Kind: kind, Addr: int64(addr), Requested: int64(bytes), Provided: int64(bytes)})
	}
	return ok
}

func (j *hookedJob) malloc(n uint64) {
	j.complete() // PyTorch looks at events first; so no release completes a block
	b, err := j.a.Malloc(n, 0)
	if err != nil {
		j.add(trace.Event{Kind: trace.KindOOM, Requested: int64(n)})
		return
	}
	j.blocks = append(j.blocks, b)
	j.add(trace.Event{Kind: trace.KindAlloc, Addr: int64(b.Addr()), Requested: int64(n), Provided: int64(n)})
	stats := j.a.Stats()
	j.add(trace.Event{Kind: trace.KindStatistics, Arena: trace.NoArena, Requested: int64(stats.Reserved.Now), Provided: int64(stats.Allocated.Now)})
}

func (j *hookedJob) free(at int, shared bool) {
	b := j.blocks[at]
	j.blocks = slices.Delete(j.blocks, at, at+1)
	if shared {
		j.a.RecordStream(b, 7)
		j.add(trace.Event{Kind: trace.KindStreamUse, Stream: -1, Addr: int64(b.Addr())})
	}
	j.add(trace.Event{Kind: trace.KindFree, Addr: int64(b.Addr())})
	if j.a.Free(b) {
		j.waiting = append(j.waiting, b)
	}
}

func (j *hookedJob) complete() {
	for _, b := range j.waiting {
		j.add(trace.Event{Kind: trace.KindFreeDone, Addr: int64(b.Addr())})
		j.a.Complete(b)
	}
	j.waiting = nil
}

func (j *hookedJob) follow() (*Follower, error) {
	f := NewFollower(Torch211, func(context int32) string { return j.texts[context] })
	for i := range j.events {
		if _, err := f.Add(&j.events[i]); err != nil {
			return f, err
		}
	}
	return f, f.End(int64(len(j.events)))
}

// settings are some that change placement.
var placing = []string{"", "expandable_segments:True", "roundup_power2_divisions:4", "max_split_size_mb:64"}

// random is a job of so many operations on a card that some of them fill.
func randomJob(r *rapid.T) *hookedJob {
	conf := rapid.SampledFrom(placing).Draw(r, "settings")
	parsed, err := ParseSettings(conf, Torch211)
	assert.NoError(r, err)
	j := newHookedJob(parsed, conf, 400*mib)
	j.operate(r)
	return j
}

func (j *hookedJob) operate(r *rapid.T) {
	for range rapid.IntRange(1, 80).Draw(r, "operations") {
		switch kind := rapid.IntRange(0, 11).Draw(r, "kind"); {
		case kind == 0:
			j.complete()
			assert.NoError(r, j.a.EmptyCache())
		case kind < 5 && len(j.blocks) > 0:
			j.free(rapid.IntRange(0, len(j.blocks)-1).Draw(r, "block"), rapid.IntRange(0, 5).Draw(r, "shared") == 0)
		default:
			j.malloc(rapid.Uint64Range(1, 1<<rapid.IntRange(8, 27).Draw(r, "log")).Draw(r, "bytes"))
		}
	}
}

// begin has the recording begin here, as the shim does: what is there is restated.
func (j *hookedJob) begin() {
	j.complete()
	j.texts = append(j.texts, "native")
	j.events = j.events[:1] // the arena
	runs := mappedRuns(j.a)
	for _, run := range runs {
		small := int64(0)
		if run[0].pool.small {
			small = 1
		}
		last := run[len(run)-1]
		bytes := int64(last.addr + last.size - run[0].addr)
		j.add(trace.Event{Kind: trace.KindExternalFree, Arena: trace.NoArena, Addr: int64(run[0].addr), Requested: small, Context: 2})
		j.add(trace.Event{Kind: trace.KindMap, Addr: int64(run[0].addr), Requested: bytes, Provided: bytes})
	}
	for _, run := range runs {
		for _, b := range slices.Backward(run) {
			if b.State() == Free {
				continue
			}
			j.add(trace.Event{Kind: trace.KindExternalFree, Arena: trace.NoArena, Addr: int64(b.addr), Provided: int64(b.size), Context: 2})
			j.add(trace.Event{Kind: trace.KindAlloc, Addr: int64(b.addr), Requested: int64(b.requested), Provided: int64(b.requested)})
		}
	}
}

// mappedRuns are the mapped blocks of each segment, and of each run of pages of an expandable one: what torch's snapshot calls a segment.
func mappedRuns(a *Allocator) (runs [][]*Block) {
	for _, s := range a.Segments() {
		before := false
		for _, b := range s.Blocks {
			if b.mapped && before {
				runs[len(runs)-1] = append(runs[len(runs)-1], b)
			} else if b.mapped {
				runs = append(runs, []*Block{b})
			}
			before = b.mapped
		}
	}
	return runs
}

// A recording that begins in the middle of a job is followed from there on.
func TestFollowsFromTheMiddle(t *testing.T) {
	followed := 0
	rapid.Check(t, func(r *rapid.T) {
		j := randomJob(r)
		j.begin()
		opening := len(j.events)
		j.operate(r)
		f, err := j.follow()
		if errors.Is(err, ErrNotModeled) {
			r.Skip(err)
		}
		if err != nil {
			for _, e := range j.events {
				r.Log(e.Seq, e.Kind, e.Addr, e.Requested, e.Provided)
			}
			r.Fatal(opening, err)
		}
		if f.Odd > 0 {
			r.Fatalf("%d of %d sums differ", f.Odd, f.Odd+f.Readings)
		}
		followed++
	})
	least := 50
	if testing.Short() {
		least = 10 // of the 20 that rapid then tries
	}
	assert.That(t, followed >= least, "%d jobs followed", followed)
}

// What is there when a recording begins has the pools and the sizes of blocks that the shim restates: several pages of small blocks, and
// blocks larger than what was requested.
func TestFollowsPoolsAndSizesFromTheMiddle(t *testing.T) {
	for _, text := range []string{"", "expandable_segments:True"} {
		parsed, err := ParseSettings(text, Torch211)
		assert.NoError(t, err)
		j := newHookedJob(parsed, text, 4<<30)
		for range 5 {
			j.malloc(900<<10 + 1)
			j.malloc(3*mib + 1)
		}
		j.begin()
		j.free(0, false)
		j.malloc(900<<10 + 200) // where that block was
		j.malloc(800 << 10)
		j.malloc(2 * mib)
		f, err := j.follow()
		assert.NoError(t, err)
		assert.That(t, f.Odd == 0 && f.Allocs == 13, "%q: %d sums differ, %d allocs", text, f.Odd, f.Allocs)
	}
}

// Whatever PyTorch's allocator does, the model follows it, and has the same sizes of blocks.
func TestFollowsRandomJobs(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		j := randomJob(r)
		f, err := j.follow()
		if errors.Is(err, ErrNotModeled) {
			r.Skip(err)
		}
		if err != nil {
			for _, e := range j.events {
				r.Log(e.Seq, e.Kind, e.Addr, e.Requested)
			}
			r.Fatal(err)
		}
		if f.Odd > 0 {
			r.Fatalf("%d of %d sums differ", f.Odd, f.Odd+f.Readings)
		}
	})
}

// An event that is missing, at another address or of another size is found, unless nothing depends on it.
func TestFindsChanges(t *testing.T) {
	conf := []string{"", "expandable_segments:True"}
	for _, text := range conf {
		parsed, err := ParseSettings(text, Torch211)
		assert.NoError(t, err)
		made := func() *hookedJob {
			j := newHookedJob(parsed, text, 4<<30)
			for i := range uint64(40) {
				j.malloc((i%7 + 1) * 3 * mib)
				if i%3 == 2 {
					j.free(int(i)%len(j.blocks), i%2 == 0)
				}
				if i == 20 {
					j.complete()
					_ = j.a.EmptyCache()
				}
			}
			return j
		}
		if _, err := made().follow(); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		count := len(made().events)
		missed := 0
		for at := 1; at < count; at++ {
			j := made()
			kind := j.events[at].Kind
			switch e := &j.events[at]; e.Kind {
			case trace.KindAlloc:
				e.Addr += 512
			case trace.KindMap, trace.KindUnmap:
				e.Provided += 2 * mib
			case trace.KindFree:
				j.events = slices.Delete(j.events, at, at+1)
			default:
				continue
			}
			var d *Difference
			if _, err := j.follow(); !errors.As(err, &d) {
				missed++
				// a later request need not depend on a free
				assert.That(t, kind == trace.KindFree, "%q: event %d (%v) was changed, and the model follows: %v", text, at, kind, err)
			}
		}
		assert.That(t, missed <= count/5, "%q: %d of %d changes were missed", text, missed, count)
	}
}
