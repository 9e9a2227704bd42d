package fit

import (
	"context"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/memprof/memprof/analysis/modeltest"
	"github.com/memprof/memprof/analysis/torchalloc"
	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

const mib = 1 << 20

// job makes the events of a process on device 0.
type job struct {
	events []trace.Event
	texts  []string
}

func newJob() *job {
	j := &job{texts: []string{""}}
	return j.add(trace.KindArena, trace.Event{Addr: 1 << 40, Requested: 64 << 30, Provided: 64 << 30}, "growth=double headroom=2147483648 granularity=2097152 pool=0.0 tag= main=1")
}

func (j *job) add(kind trace.Kind, e trace.Event, text string) *job {
	if text != "" {
		j.texts = append(j.texts, text)
		e.Context = int32(len(j.texts) - 1)
	}
	e.Seq, e.Time, e.Kind = int64(len(j.events)), int64(len(j.events))*1e6, kind
	j.events = append(j.events, e)
	return j
}

// alloc is of a numbered block of so many MiB.
func (j *job) alloc(number, size int64) *job {
	return j.add(trace.KindAlloc, trace.Event{Addr: 1<<40 + number*2*mib<<10, Requested: size * mib, Provided: size * mib}, "")
}

func (j *job) free(number int64) *job {
	return j.add(trace.KindFree, trace.Event{Addr: 1<<40 + number*2*mib<<10}, "")
}

func (j *job) library(size int64, name string) *job {
	return j.add(trace.KindExternalAlloc, trace.Event{Arena: trace.NoArena, Addr: 7 << 40, Requested: size * mib, Provided: size * mib}, "library="+name)
}

func (j *job) overhead(size int64, text string) *job {
	return j.add(trace.KindOverhead, trace.Event{Arena: trace.NoArena, Provided: size * mib}, text)
}

func (j *job) mark() *job {
	return j.add(trace.KindIteration, trace.Event{Device: trace.NoDevice, Arena: trace.NoArena}, "")
}

func (j *job) process(name string) *Job {
	torch := torchalloc.Torch211
	return &Job{
		Name: name, Open: func() (Source, error) { return modeltest.Source(j.events, 512), nil }, Text: func(context int32) string { return j.texts[context] },
		Torch: &torch, WholeCard: true,
	}
}

// tried are the allocators of these tests, whatever further presets there are.
var tried = []Allocator{
	{Allocator: "torch", Setting: "native"}, {Allocator: "torch", Setting: "expandable_segments:True"},
	{Allocator: "memprof", Policy: bfc.Classic.Policy()}, {Allocator: "memprof", Policy: bfc.Compact.Policy()},
}

func find(t *testing.T, o Options, jobs ...*Job) *Answer {
	t.Helper()
	o.Allocators = tried
	answer, err := Find(context.Background(), jobs, o)
	assert.NoError(t, err)
	return answer
}

// cards are the least cards in MiB: torch native, expandable, classic, compact.
func cards(a *Answer) (sizes []int64) {
	for i := range a.Rows {
		sizes = append(sizes, a.Rows[i].Bytes/mib)
	}
	return sizes
}

// A job that --limit made fail is asked about on cards, not under that limit: the requests it was refused are made again there.
func TestLeastWithoutRecordedLimit(t *testing.T) {
	limited := newJob()
	limited.events[0].Requested = 64 * mib // --limit; the device has 64 GiB
	limited.alloc(1, 30).add(trace.KindOOM, trace.Event{Requested: 50 * mib}, "").alloc(2, 60)
	got := find(t, Options{}, limited.process("p"))
	want := []int64{90, 100, 90, 92}
	assert.That(t, slices.Equal(cards(got), want), "least cards in MiB: %v, want %v", cards(got), want)
	failed := got.Processes[0].Failed
	assert.That(t, failed == 1, "%d requests failed in the recording, want 1", failed)
}

// The least cards follow from the rules of both allocators: segments of their own from 10 MiB on, pages of 20 MiB in
// expandable segments, pages of 2 MiB in memprof's, and of 4 MiB in its preset compact.
func TestLeast(t *testing.T) {
	quiet := newJob().alloc(1, 30).alloc(2, 30).alloc(3, 30).free(1).free(2).free(3).alloc(4, 80)
	tests := []struct {
		name string
		job  *job
		want []int64
	}{
		{"segments are released", quiet, []int64{90, 100, 90, 92}},
		{"a page of 4 MiB, and no card is below one of 2", newJob().alloc(1, 1), []int64{2, 2, 2, 4}},
		{"what is split is not", newJob().alloc(1, 100).free(1).alloc(2, 40).alloc(3, 80), []int64{180, 120, 120, 120}},
		{"another library, once the cache is full", newJob().alloc(1, 100).free(1).library(50, "libnccl.so"), []int64{150, 150, 100, 100}},
		{"driver overhead, likewise, and nobody unmaps for it", newJob().alloc(1, 100).free(1).overhead(50, "what=module"), []int64{150, 150, 150, 150}},
		{"overhead that comes first", newJob().overhead(500, "what=context").alloc(1, 100), []int64{600, 600, 600, 600}},
		{"a request that failed is served, too, if any card can", newJob().alloc(1, 30).add(trace.KindOOM, trace.Event{Requested: 50 * mib}, "").add(trace.KindOOM, trace.Event{Requested: 1 << 50}, "").alloc(2, 20), []int64{80, 80, 80, 80}},
		{"an ended context has no overhead", newJob().overhead(500, "what=context").overhead(60, "what=module").overhead(-500, "what=context").overhead(30, "what=context").alloc(1, 600), []int64{630, 630, 630, 630}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := find(t, Options{}, test.job.process("p"))
			for i, size := range cards(got) {
				assert.That(t, size == test.want[i], "%s: %d MiB, want %d (all: %v)", got.Rows[i].name(), size, test.want[i], cards(got))
			}
		})
	}
}

// A request that is freed before any other request or free looks like a workspace, which cuDNN does without.
func TestWorkspaces(t *testing.T) {
	tests := []struct {
		name          string
		job           *job
		want, without int64
	}{
		{"freed at once", newJob().alloc(1, 100).alloc(2, 60).free(2).alloc(3, 20), 160, 120},
		{"freed behind another request", newJob().alloc(1, 100).alloc(2, 60).alloc(3, 20).free(2), 180, 0},
		{"freed behind another free", newJob().alloc(1, 20).alloc(2, 100).alloc(3, 60).free(1).free(3), 180, 0},
		{"the least card is another request's", newJob().alloc(1, 12).alloc(2, 60).free(2).alloc(3, 100), 112, 0},
		{"each of two", newJob().alloc(1, 100).alloc(2, 60).free(2).alloc(3, 80).free(3).alloc(4, 32), 180, 132},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := find(t, Options{}, test.job.process("p"))
			for i := range got.Rows {
				if row := &got.Rows[i]; i != 1 && (row.Bytes != test.want*mib || row.Without != test.without*mib) { // pages of 20 MiB round otherwise
					t.Errorf("%s: %d MiB and %d without workspaces, want %d and %d", row.name(), row.Bytes/mib, row.Without/mib, test.want, test.without)
				}
			}
		})
	}
	small, large := tests[0].job.process("rank0"), tests[1].job.process("rank1")
	small.Card, large.Card = "run/GPU-a", "run/GPU-a"
	if got := find(t, Options{}, small, large).Rows[0]; got.Bytes != 340*mib || got.Without != 300*mib {
		t.Errorf("two on one card: %d MiB and %d without workspaces, want 340 and 300", got.Bytes/mib, got.Without/mib)
	}
}

// On a card of 246 MiB the request of 150 has the segment of 100 released, and that of 40 a segment of its own. On one of 250
// both are served from what is cached, and then 100 + 206 MiB are needed.
func TestLeastAboveCardsThatFail(t *testing.T) {
	j := newJob().alloc(1, 100).free(1).alloc(2, 150).alloc(3, 40).free(2).alloc(4, 206).process("p")
	for size, completes := range map[int64]bool{244: false, 246: true, 248: true, 250: false, 304: false, 306: true} {
		assert.Equal(t, find(t, Options{Card: size * mib}, j).Rows[0].Why == nil, completes, "on %d MiB the job completes", size)
	}
	if native := find(t, Options{}, j).Rows[0]; native.Bytes != 306*mib || native.Lowest != 246*mib || native.Below == nil || native.Below.Bytes != 206*mib {
		t.Errorf("least card %d MiB, lowest %d, below it %+v; want 306, 246 and the request of 206", native.Bytes/mib, native.Lowest/mib, native.Below)
	}
	if native := find(t, Options{Quick: true}, j).Rows[0]; native.Bytes != 306*mib || native.Below == nil || native.Below.Bytes != 206*mib {
		t.Errorf("quick: least card %d MiB, below it %+v; want 306, and the request of 206", native.Bytes/mib, native.Below)
	}
}

// On a card of 250 MiB the segments of 100 and 150 leave nothing to the library; on a smaller one that of 100 is released. No other
// card fails above 152, so that this one does not count, but where it is asked about.
func TestLeastWithoutSingleCards(t *testing.T) {
	j := newJob().alloc(1, 100).free(1).alloc(2, 150).library(2, "libcudnn").process("p")
	for size, completes := range map[int64]bool{150: false, 152: true, 248: true, 250: false, 252: true} {
		if fits := find(t, Options{Card: size * mib}, j).Rows[0]; fits.Fits != completes || fits.Fits == (fits.Why != nil) {
			t.Errorf("on %d MiB the job completes: %v (%+v), want %v", size, fits.Fits, fits.Why, completes)
		}
	}
	native := find(t, Options{}, j).Rows[0]
	if native.Bytes != 152*mib || native.Lowest != 152*mib || native.Highest != 252*mib {
		t.Errorf("least card %d MiB, lowest %d, highest %d; want 152, 152, 252", native.Bytes/mib, native.Lowest/mib, native.Highest/mib)
	}
	wide := newJob().alloc(1, 100).free(1).alloc(2, 150).library(8, "libcudnn").process("p")
	if native := find(t, Options{}, wide).Rows[0]; native.Bytes != 258*mib || native.Lowest != 158*mib || native.Highest != native.Bytes {
		t.Errorf("four cards that fail: least card %d MiB, lowest %d, highest %d; want 258, 158, 258", native.Bytes/mib, native.Lowest/mib, native.Highest/mib)
	}
}

// Of several processes the one that needs most decides; on one card they add up.
func TestLeastOfProcesses(t *testing.T) {
	small, large := newJob().alloc(1, 100).process("rank0"), newJob().alloc(1, 300).process("rank1")
	got := find(t, Options{}, small, large)
	diff := cmp.Diff([]int64{300, 300, 300, 300}, cards(got))
	assert.That(t, diff == "" && got.Rows[0].Process == "rank1", "of %s (-want +got):\n%s", got.Rows[0].Process, diff)
	small.Card, large.Card = "run/GPU-a", "run/GPU-a"
	got = find(t, Options{}, small, large)
	if diff := cmp.Diff([]int64{400, 400, 400, 400}, cards(got)); diff != "" || got.Rows[0].Process != "rank0, rank1" {
		t.Errorf("on one card, of %s (-want +got):\n%s", got.Rows[0].Process, diff)
	}
}

// What readings found beyond the events, and the headroom, are added; overhead that was measured while others used the
// card counts only as far as a reading has it.
func TestLeastWithReadings(t *testing.T) {
	j := newJob().overhead(500, "what=context").alloc(1, 100).overhead(700, "what=library\tname=libx.so").free(1).alloc(2, 80).process("p")
	if got := cards(find(t, Options{}, j)); got[0] != 1300 {
		t.Errorf("with overhead of the whole card: %d MiB, want 1300", got[0])
	}
	j.WholeCard = false
	if got := cards(find(t, Options{}, j)); got[0] != 600 {
		t.Errorf("without overhead of the whole card: %d MiB, want 600", got[0])
	}
	j.Read = map[int32]Reading{0: {Seq: 5, Bytes: 520 * mib}}
	got := find(t, Options{Headroom: 10 * mib}, j)
	sizes := cards(got)
	assert.That(t, sizes[0] == 630, "with a reading of 520 MiB and a headroom of 10: %d MiB, want 630", sizes[0])
	if d := got.Processes[0].Devices[0]; !d.Measured || d.Unexplained != 20*mib || d.Driver != 520*mib || d.Total != 64<<30 {
		t.Errorf("the device is %+v, want 520 MiB of driver overhead, 20 of them unexplained, of 64 GiB", *d)
	}
}

// On a card that is too small the answer names the request that fails, its origin and its iteration.
func TestFailingRequest(t *testing.T) {
	j := newJob().alloc(1, 100).mark().alloc(2, 50)
	j.texts = append(j.texts, "phase=forward\tmodule=net.fc")
	j.events[len(j.events)-1].Context = int32(len(j.texts) - 1)
	j.mark()
	got := find(t, Options{Card: 120 * mib}, j.process("p"))
	for i := range got.Rows {
		row := &got.Rows[i]
		if row.Fits || row.Why == nil || row.Why.Bytes != 50*mib || row.Why.Seq != 3 || row.Why.Iteration != 1 || row.Why.Context != "net.fc" || row.Why.Reserved < 100*mib {
			t.Errorf("%s on 120 MiB: fits %v, why %+v; want the request of 50 MiB at event 3 by net.fc in iteration 1", row.name(), row.Fits, row.Why)
		}
	}
	if got := find(t, Options{Card: 200 * mib}, j.process("p")); !got.Rows[0].Fits || got.Rows[0].Why != nil {
		t.Errorf("on 200 MiB: %+v, want a job that fits", got.Rows[0])
	}
}

// A job without PyTorch has no rows of it.
func TestWithoutTorch(t *testing.T) {
	j := newJob().alloc(1, 100).process("p")
	j.Torch = nil
	got := find(t, Options{}, j)
	assert.That(t, len(got.Rows) == 2 && got.Rows[0].Allocator.Allocator == "memprof", "%d rows, want classic and compact alone", len(got.Rows))
}

func TestArenasCountUntilTheirEnd(t *testing.T) {
	next := trace.Event{Addr: 1 << 41, Provided: 1 << 40}
	s, err := Look(newJob().add(trace.KindPoolRelease, trace.Event{}, "").add(trace.KindArena, next, "granularity=2097152").process("p"))
	assert.That(t, err == nil && s.Arenas == 1, "%+v, %v; want one arena at a time", s, err)
}
