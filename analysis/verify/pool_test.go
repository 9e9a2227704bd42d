package verify

import (
	"errors"
	"strings"
	"testing"

	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// restore makes a block live at its place again, in the heap and in the trace.
func (h *heap) restore(t testing.TB, b bfc.Block) {
	t.Helper()
	if _, err := h.a.Restore(b.Addr, b.Size, b.Requested); err != nil {
		t.Fatal(err)
	}
	h.event(trace.KindRestore, b.Addr)
}

// pooled is a job whose second arena is a pool: it is checkpointed and restored, paused and
// resumed, and ends before the job does.
func pooled(t testing.TB) *job {
	j := newJob()
	device := bfc.DeviceOptions{VMM: true, Granularity: 2 * mib, Physical: gib, Reservation: gib}
	main := j.heap(t, bfc.Options{Limit: bfc.NoLimit}, device)
	pool := j.heap(t, bfc.Options{Limit: bfc.NoLimit, Growth: bfc.Needed}, device)
	main.alloc(1000)
	a, b, c := pool.alloc(1000), pool.alloc(3*mib), pool.alloc(5000)
	var then []bfc.Block
	for _, addr := range []uint64{a, c} {
		block, _ := pool.a.Find(addr)
		then = append(then, block)
	}
	pool.free(b)
	pool.free(a)
	d := pool.alloc(2 * mib)
	pool.free(d)
	pool.free(c)
	for _, block := range then {
		pool.restore(t, block)
	}
	again := pool.alloc(3 * mib)
	assert.Must(t, again == b, "%#x in place of %#x: the heap is not that of the checkpoint", again, b)
	pool.free(b)
	mapped := int64(pool.a.Stats().Reserved)
	pool.add(trace.Event{Kind: trace.KindPause, Requested: mapped, Context: j.text("tag=graphs")})
	pool.free(c)
	pool.add(trace.Event{Kind: trace.KindResume, Requested: mapped, Context: j.text("tag=graphs")})
	pool.free(pool.alloc(100))
	pool.free(a)
	for _, r := range pool.a.Regions() {
		assert.NoError(t, pool.a.Unmap(r.Addr, r.Size))
		pool.Unmap(r.Addr, r.Size)
	}
	pool.add(trace.Event{Kind: trace.KindPoolRelease})
	main.alloc(2000)
	return j
}

func TestPool(t *testing.T) {
	j := pooled(t)
	got, err := verifyPath(t, j.write(t, dataset.Ending{}, dataset.WriterOptions{}))
	assert.NoError(t, err)
	if want := j.count(trace.KindAlloc, trace.KindRestore); got.Allocs != want || got.Growths != j.count(trace.KindMap) || !got.Complete {
		t.Errorf("%+v, want %d blocks and %d growths", got, want, j.count(trace.KindMap))
	}
}

// Each change makes the replay find a wrong event, at the place of the change or behind it.
func TestPoolMutations(t *testing.T) {
	find := func(j *job, k trace.Kind) *trace.Event { return &j.events[j.nth(t, 0, kind(k))] }
	for name, change := range map[string]func(j *job){
		"restore elsewhere":          func(j *job) { find(j, trace.KindRestore).Addr += 256 },
		"restore of more":            func(j *job) { find(j, trace.KindRestore).Provided += 4 * mib },
		"restore beyond its size":    func(j *job) { e := find(j, trace.KindRestore); e.Requested = e.Provided + 1 },
		"restore removed":            func(j *job) { find(j, trace.KindRestore).Kind = trace.KindCheckpoint },
		"pause of less":              func(j *job) { find(j, trace.KindPause).Requested-- },
		"pause twice":                func(j *job) { find(j, trace.KindResume).Kind = trace.KindPause },
		"resume of what is resident": func(j *job) { find(j, trace.KindPause).Kind = trace.KindResume },
		"no resume":                  func(j *job) { find(j, trace.KindResume).Kind = trace.KindIteration },
		"release with a block":       func(j *job) { j.events[j.nth(t, 5, kind(trace.KindFree))].Kind = trace.KindCheckpoint },
		"release of what is mapped": func(j *job) {
			find(j, trace.KindUnmap).Kind = trace.KindCheckpoint
		},
		"release too early": func(j *job) {
			find(j, trace.KindPoolRelease).Kind = trace.KindCheckpoint
			find(j, trace.KindResume).Kind = trace.KindPoolRelease
		},
	} {
		j := pooled(t)
		change(j)
		_, err := verifyPath(t, j.write(t, dataset.Ending{}, dataset.WriterOptions{}))
		var wrong *Mismatch
		assert.That(t, errors.As(err, &wrong) && wrong.Seq >= 0, "%s: error %v, want a mismatch at an event", name, err)
	}
}

// A pause that failed moved nothing.
func TestPauseThatFailed(t *testing.T) {
	j := pooled(t)
	at := j.nth(t, 0, kind(trace.KindPause))
	failed := j.events[at]
	failed.Requested, failed.Context = 0, j.text("tag=graphs\tfailed=no pinned host memory")
	j.events = renumber(append(j.events[:at:at], append([]trace.Event{failed}, j.events[at:]...)...))
	if _, err := verifyPath(t, j.write(t, dataset.Ending{}, dataset.WriterOptions{})); err != nil {
		t.Error(err)
	}
}

// After its end no event of an arena can be.
func TestEventsOfAnEndedArena(t *testing.T) {
	j := pooled(t)
	e := j.events[j.nth(t, 1, kind(trace.KindAlloc))]
	e.Seq = int64(len(j.events))
	j.events = append(j.events, e)
	_, err := verifyPath(t, j.write(t, dataset.Ending{}, dataset.WriterOptions{}))
	assert.That(t, err != nil && strings.Contains(err.Error(), "an arena that an event before it describes"), "error %v", err)
}
