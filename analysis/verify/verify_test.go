package verify

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/memprof/memprof/analysis/torchalloc"
	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/tracetest"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// story is a job of 4 arenas in which everything happens that the replay knows, and of
// more than three blocks of checksums.
func story(t testing.TB) *job {
	j := newJob()
	main := j.heap(t, bfc.Options{Limit: bfc.NoLimit, Headroom: 24 * mib}, bfc.DeviceOptions{
		VMM: true, Granularity: 2 * mib, Physical: 64 * mib, Reservation: 64 * mib,
		RefuseGrow: func(call int, _ uint64) bool { return call == 4 },
		RefuseMap:  func(call int, _, _ uint64) bool { return call == 2 },
	})
	needed := j.heap(t, bfc.Options{Limit: 48 * mib, Growth: bfc.Needed}, bfc.DeviceOptions{
		VMM: true, Granularity: 2 * mib, Physical: 1 * gib, Reservation: 16 * mib})
	doubled := j.heap(t, bfc.Options{Limit: 8 * mib, FragmentationFraction: 0.25}, bfc.DeviceOptions{
		Granularity: 256, Physical: 1 * gib})
	collecting := j.heap(t, bfc.Options{Limit: 24 * mib, GarbageCollection: true}, bfc.DeviceOptions{
		Granularity: 256, Physical: 1 * gib})

	// The main arena: growth refused, clipped by the headroom, remaps refused, an oom.
	var blocks []uint64
	for _, size := range []uint64{1000, 3 * mib, 5 * mib, 9 * mib, 11 * mib} {
		blocks = append(blocks, main.alloc(size))
	}
	for i := range 3 {
		main.free(blocks[i])
	}
	main.unmapFree(1)
	blocks = append(blocks[3:], main.alloc(2*mib), main.alloc(4*mib), main.alloc(60*mib))
	main.use(blocks[0], 99)
	main.freeLater(blocks[0])
	main.done(blocks[0])
	for _, addr := range blocks[1 : len(blocks)-1] {
		main.free(addr)
	}

	r := rand.New(rand.NewPCG(2, 3))
	for _, h := range []*heap{needed, doubled, collecting, main, needed} {
		h.churn(r, 2600, 900*kib)
	}
	collecting.alloc(20 * mib)
	return j
}

func (j *job) write(t testing.TB, ending dataset.Ending, options dataset.WriterOptions) string {
	t.Helper()
	dir := t.TempDir()
	tracetest.WriteRun(t, dir, tracetest.Process{Events: j.events, Texts: j.texts, Ending: ending, Options: options})
	return dir
}

func verifyPath(t testing.TB, path string) (*Result, error) {
	t.Helper()
	run, err := dataset.Open(path)
	assert.NoError(t, err)
	return Process(context.Background(), run.Processes[0])
}

func (j *job) count(kinds ...trace.Kind) int64 {
	n := int64(0)
	for _, e := range j.events {
		if slices.Contains(kinds, e.Kind) {
			n++
		}
	}
	return n
}

// nth is the seq of the n-th event, from 0, that is as wanted.
func (j *job) nth(t testing.TB, n int, is func(e *trace.Event) bool) int64 {
	t.Helper()
	for i := range j.events {
		if is(&j.events[i]) {
			if n--; n < 0 {
				return int64(i)
			}
		}
	}
	t.Fatal("the story has no such event")
	return 0
}

func kind(k trace.Kind) func(e *trace.Event) bool {
	return func(e *trace.Event) bool { return e.Kind == k }
}

// TestStory: the story has what the other tests rely on, and verifies, in one part or many.
func TestStory(t *testing.T) {
	j := story(t)
	for _, k := range []trace.Kind{trace.KindGrowFailed, trace.KindMapFailed, trace.KindDeviceUsed, trace.KindUnmap,
		trace.KindReclaim, trace.KindOOM, trace.KindFreeDone, trace.KindStreamUse, trace.KindIteration} {
		assert.That(t, j.count(k) != 0, "the story has no %v", k)
	}
	n := int64(len(j.events))
	assert.Must(t, n >= 3*dataset.BlockEvents, "%d events are less than three blocks", n)
	remaps := int64(0)
	for i, h := range j.heaps {
		mapped := map[int64]bool{}
		for _, e := range j.events {
			if e.Kind == trace.KindMap && e.Arena == h.id {
				if mapped[e.Addr] {
					remaps++
				}
			}
			if e.Kind == trace.KindUnmap && e.Arena == h.id && i != 3 {
				mapped[e.Addr] = true
			}
		}
	}
	assert.That(t, remaps != 0, "the story has no remap")
	want := &Result{
		Process: "rank0", Events: n, Allocs: j.count(trace.KindAlloc), Frees: j.count(trace.KindFree),
		Growths: j.count(trace.KindMap) - remaps, Arenas: 4, Complete: true, EndSeq: n - 1,
	}
	for _, options := range []dataset.WriterOptions{{}, {PartEvents: 4992, RowGroup: 1700}} {
		got, err := verifyPath(t, j.write(t, dataset.Ending{}, options))
		assert.NoError(t, err)
		assert.Diff(t, want, got, "parts of %d: result differs", options.PartEvents)
	}
}

// What a process reads for itself stands anywhere among its events, also between those of one
// request, and is no decision that could be wrong.
func TestReadingsAmongEvents(t *testing.T) {
	j := story(t)
	want, err := verifyPath(t, j.write(t, dataset.Ending{}, dataset.WriterOptions{}))
	assert.NoError(t, err)
	var events []trace.Event
	for i, e := range j.events {
		if within := i > 0 && j.events[i-1].Kind == trace.KindDeviceUsed; within || i%101 == 0 {
			events = append(events, trace.Event{Kind: trace.KindDeviceUsed, Time: e.Time, Device: e.Device, Arena: trace.NoArena, Requested: 1, Provided: 1})
		}
		events = append(events, e)
	}
	added := int64(len(events) - len(j.events))
	for i := range events {
		events[i].Seq = int64(i)
	}
	j.events = events
	got, err := verifyPath(t, j.write(t, dataset.Ending{}, dataset.WriterOptions{}))
	assert.NoError(t, err)
	want.Events, want.EndSeq = want.Events+added, want.EndSeq+added
	diff := cmp.Diff(want, got)
	assert.That(t, diff == "" && added >= 100, "%d readings added: result differs (-want +got):\n%s", added, diff)
}

// TestEnding: what the proof ends with when the process did not end in order.
func TestEnding(t *testing.T) {
	whole := story(t)
	lost := func(at int, arena int32) trace.Event {
		return trace.Event{Seq: int64(at), Kind: trace.KindLost, Device: trace.NoDevice, Arena: arena}
	}
	n := len(whole.events)
	killed := dataset.Ending{State: dataset.StateKilled}
	tests := []struct {
		name   string
		ending dataset.Ending
		edit   func(events []trace.Event) []trace.Event
		endsAt string
		seq    int
	}{
		{"killed", killed, nil, "event N, the last before the process was killed", n - 1},
		{"stopped", dataset.Ending{State: dataset.StateStopped, Reason: "no space left on device"}, nil,
			"event N, where the recording stopped: no space left on device", n - 1},
		{"in a request", dataset.Ending{}, func(e []trace.Event) []trace.Event {
			return append(e, trace.Event{Kind: trace.KindMap, Time: e[n-1].Time, Addr: 5 << 42, Requested: 2 * mib, Provided: 2 * mib})
		}, "event N (map), with which a request begins that has no end", n},
		{"lost", killed, func(e []trace.Event) []trace.Event {
			return append(e, lost(n, trace.NoArena), trace.Event{Kind: trace.KindIteration, Arena: trace.NoArena, Requested: whole.ended})
		}, "event N, which was lost when the process died", n},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			j := &job{events: slices.Clone(whole.events), texts: whole.texts}
			if test.edit != nil {
				j.events = test.edit(j.events)
			}
			got, err := verifyPath(t, j.write(t, test.ending, dataset.WriterOptions{}))
			assert.NoError(t, err)
			endsAt := strings.ReplaceAll(got.EndsAt, fmt.Sprintf("event %d", test.seq), "event N")
			assert.That(t, !got.Complete && strings.HasPrefix(endsAt, test.endsAt),
				"Complete %v, EndsAt %q, want it to begin with %q", got.Complete, endsAt, test.endsAt)
			want := int64(test.seq)
			if test.edit != nil {
				want--
			}
			assert.That(t, got.EndSeq == want && got.Events == int64(len(j.events)),
				"EndSeq %d, Events %d, want %d, %d", got.EndSeq, got.Events, want, len(j.events))
		})
	}
}

// TestLost: a contradiction is put down to a lost event just before it, not to one long ago.
func TestLost(t *testing.T) {
	for _, test := range []struct {
		between int // events after the lost one up to the end
		ok      bool
	}{{LostTail, true}, {LostTail + 1, false}} {
		j := newJob()
		h := j.heap(t, bfc.Options{Limit: bfc.NoLimit}, bfc.DeviceOptions{VMM: true, Granularity: 2 * mib, Physical: gib, Reservation: gib})
		h.alloc(1000)
		addr := h.alloc(2000)
		at := len(j.events) - 1
		h.free(addr) // contradicts the loss of its alloc
		for len(j.events)-1-at < test.between {
			j.iterate()
		}
		j.events[at] = trace.Event{Kind: trace.KindLost, Device: trace.NoDevice, Arena: trace.NoArena}
		got, err := verifyPath(t, j.write(t, dataset.Ending{State: dataset.StateKilled, Lost: 1}, dataset.WriterOptions{}))
		if !test.ok {
			want := &Mismatch{Process: "rank0", Seq: int64(at + 1), Kind: trace.KindFree, FirstSeq: -1, LastSeq: -1,
				Expected: "the address of a block in use in its arena", Found: "0x40000000400"}
			assert.Equal(t, diffMismatch(want, err), "", "%d events after the lost one (-want +got)", test.between)
			continue
		}
		assert.NoError(t, err)
		want := &Result{Process: "rank0", Events: int64(len(j.events)), Allocs: 1, Frees: 0, Growths: 1, Arenas: 1, EndSeq: int64(at - 1),
			EndsAt: "event 3, which was lost when the process died; event 4 (free) depends on it"}
		assert.Diff(t, want, got, "%d events after the lost one", test.between)
	}
}

func diffMismatch(want *Mismatch, err error) string {
	var got *Mismatch
	if !errors.As(err, &got) {
		return "error is " + errText(err)
	}
	bare := *got
	bare.position = want.position
	return cmp.Diff(want, &bare, cmp.AllowUnexported(Mismatch{}))
}

func errText(err error) string {
	if err == nil {
		return "none"
	}
	return err.Error()
}

// TestNothingToVerify: recordings that prove nothing are an error, not a pass.
func TestNothingToVerify(t *testing.T) {
	native := []trace.Event{
		{Kind: trace.KindArena, Requested: -1, Context: 1},
		{Kind: trace.KindAlloc, Addr: 4096, Requested: 10, Provided: 512},
		{Kind: trace.KindFree, Addr: 4096, Requested: 10, Provided: 512},
	}
	empty := newJob()
	empty.heap(t, bfc.Options{Limit: gib}, bfc.DeviceOptions{Granularity: 256, Physical: gib})
	for _, test := range []struct {
		name string
		job  *job
		want error
	}{
		{"no events", newJob(), ErrNothingToVerify},
		{"imported", &job{events: native, texts: []string{"", "allocator=native\tclass=small"}}, ErrObserved},
		{"of another allocator", &job{events: native, texts: []string{"", "kind=other"}}, ErrNothingToVerify},
		{"no request", empty, ErrNothingToVerify},
	} {
		_, err := verifyPath(t, test.job.write(t, dataset.Ending{}, dataset.WriterOptions{}))
		assert.That(t, errors.Is(err, test.want), "%s: error %v, want %v", test.name, err, test.want)
	}
}

// TestObserved: PyTorch's own allocator has to come to the same addresses and segments as its model.
func TestObserved(t *testing.T) {
	made := func() *job {
		return &job{texts: []string{"", "allocator=native\tprovided=unknown\tcoalesces=0\tpool=0.0\tmain=1"}, events: []trace.Event{
			{Kind: trace.KindArena, Context: 1},
			{Kind: trace.KindMap, Addr: 2 << 20, Requested: 2 << 20, Provided: 2 << 20},
			{Kind: trace.KindAlloc, Addr: 2 << 20, Requested: 1000, Provided: 1000},
			{Kind: trace.KindAlloc, Addr: 2<<20 + 1024, Requested: 10, Provided: 10},
			{Kind: trace.KindFree, Addr: 2 << 20, Requested: 1000, Provided: 1000},
			{Kind: trace.KindAlloc, Addr: 2 << 20, Requested: 600, Provided: 600},
		}}
	}
	got, err := verifyPath(t, made().write(t, dataset.Ending{}, dataset.WriterOptions{}))
	assert.Must(t, err == nil && got.Allocs == 3 && got.Frees == 1 && got.Growths == 1 && got.Observed != nil,
		"%+v, error %v; want 3 allocations, a free and a growth", got, err)
	for at, change := range map[int]func(e *trace.Event){
		1: func(e *trace.Event) { e.Provided, e.Requested = 4<<20, 4<<20 },
		3: func(e *trace.Event) { e.Addr = 2<<20 + 512 },
		5: func(e *trace.Event) { e.Addr = 2<<20 + 2048 },
	} {
		j := made()
		change(&j.events[at])
		var wrong *Mismatch
		if _, err := verifyPath(t, j.write(t, dataset.Ending{}, dataset.WriterOptions{})); !errors.As(err, &wrong) || wrong.Seq < int64(at) || wrong.Seq > int64(at)+1 {
			t.Errorf("event %d was changed: %v, want a mismatch there", at, err)
		}
		setInCode := dataset.Ending{Problems: []string{"another", torchalloc.SetInCode}}
		if _, err := verifyPath(t, j.write(t, setInCode, dataset.WriterOptions{})); !errors.Is(err, ErrObserved) {
			t.Errorf("event %d was changed, as were the settings: %v, want ErrObserved", at, err)
		}
	}
}

// TestParts: the first part alone is verified up to its end, a later one cannot be.
func TestParts(t *testing.T) {
	dir := story(t).write(t, dataset.Ending{}, dataset.WriterOptions{PartEvents: 4992})
	got, err := verifyPath(t, filepath.Join(dir, "rank0-0000.parquet"))
	assert.NoError(t, err)
	want := "event 4991, the last of the parts given"
	assert.That(t, !got.Complete && got.EndsAt == want && got.EndSeq == 4991, "first part: %+v, want it to end at %q", got, want)
	if _, err := verifyPath(t, filepath.Join(dir, "rank0-0001.parquet")); !errors.Is(err, ErrNotFromStart) {
		t.Errorf("second part: error %v, want ErrNotFromStart", err)
	}
}

func TestCancelled(t *testing.T) {
	run, err := dataset.Open(story(t).write(t, dataset.Ending{}, dataset.WriterOptions{}))
	assert.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Process(ctx, run.Processes[0]); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want context.Canceled", err)
	}
}
