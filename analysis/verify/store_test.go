package verify

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/dataset"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// graphs is a graph memory of a job: a store, and ranges that grow out of it.
type graphs struct {
	job    *job
	id     int32
	mapped uint64
	ranges []*ranged
}

const storeBase = 1 << 50

// ranged is an arena in a range of its own.
type ranged struct {
	*heap
	graphs *graphs
	base   uint64
	extent uint64
}

func (j *job) graphs() *graphs {
	j.heaps = append(j.heaps, nil) // its number
	g := &graphs{job: j, id: int32(len(j.heaps) - 1)}
	g.add(trace.Event{Kind: trace.KindArena, Addr: storeBase, Requested: gib, Provided: gib,
		Context: j.text(fmt.Sprintf("graph_memory=1\tstore=1\tgranularity=%d\tcoalesces=1", 2*mib))})
	return g
}

func (g *graphs) add(e trace.Event) {
	e.Arena = g.id
	g.job.add(e)
}

func (g *graphs) open(t testing.TB, name string) *ranged {
	t.Helper()
	j := g.job
	r := &ranged{graphs: g, base: uint64(len(j.heaps)+1) << 42}
	r.heap = &heap{Device: bfc.NewDevice(bfc.DeviceOptions{VMM: true, Granularity: 2 * mib, Physical: gib, Reservation: gib, Base: r.base}),
		job: j, id: int32(len(j.heaps)), missing: map[uint64]bool{}}
	r.add(trace.Event{Kind: trace.KindArena, Addr: int64(r.base), Requested: -1, Provided: gib,
		Context: j.text(fmt.Sprintf("growth=needed headroom=0 fraction=0 gc=0 granularity=%d coalesces=1 pool=0.9 tag= main=0\tgraph_memory=1\tshape=%s", 2*mib, name))})
	a, err := bfc.New(bfc.Options{Limit: bfc.NoLimit, Growth: bfc.Needed}, r)
	assert.NoError(t, err)
	r.a = a
	j.heaps = append(j.heaps, r.heap)
	g.ranges = append(g.ranges, r)
	return r
}

func (r *ranged) store() int32 { return r.job.text(fmt.Sprintf("store=%d", r.graphs.id)) }

func (r *ranged) Grow(bytes uint64) (addr, granted uint64, ok bool) {
	granted = (bytes + 2*mib - 1) &^ (2*mib - 1)
	g, end := r.graphs, r.extent+granted
	if end > g.mapped {
		g.add(trace.Event{Kind: trace.KindMap, Addr: int64(storeBase + g.mapped), Requested: int64(end - g.mapped), Provided: int64(end - g.mapped)})
		g.mapped = end
	}
	addr = r.base + r.extent
	r.add(trace.Event{Kind: trace.KindAlias, Addr: int64(addr), Requested: int64(r.extent), Provided: int64(granted), Context: r.store()})
	r.extent = end
	return addr, granted, true
}

func (r *ranged) close(t testing.TB) {
	t.Helper()
	assert.NoError(t, r.a.Unmap(r.base, r.extent))
	r.add(trace.Event{Kind: trace.KindUnalias, Addr: int64(r.base), Provided: int64(r.extent), Context: r.store()})
	r.add(trace.Event{Kind: trace.KindPoolRelease})
	r.extent = 0
	g, most := r.graphs, uint64(0)
	for _, other := range g.ranges {
		most = max(most, other.extent)
	}
	if most < g.mapped {
		g.add(trace.Event{Kind: trace.KindUnmap, Addr: int64(storeBase + most), Provided: int64(g.mapped - most)})
		g.mapped = most
	}
}

// captured is a job with three shapes, the largest in the middle, all of which end.
func captured(t testing.TB) *job {
	j := newJob()
	g := j.graphs()
	small, large, middle := g.open(t, "bs8"), (*ranged)(nil), (*ranged)(nil)
	small.free(small.alloc(3 * mib))
	large = g.open(t, "bs64")
	a := large.alloc(5 * mib)
	b := large.alloc(11 * mib)
	large.free(a)
	large.free(b)
	middle = g.open(t, "bs16")
	middle.free(middle.alloc(9 * mib))
	large.close(t)
	middle.free(middle.alloc(2 * mib))
	small.close(t)
	middle.close(t)
	g.add(trace.Event{Kind: trace.KindPoolRelease})
	return j
}

func TestGraphMemory(t *testing.T) {
	j := captured(t)
	got, err := verifyPath(t, j.write(t, dataset.Ending{}, dataset.WriterOptions{}))
	assert.NoError(t, err)
	assert.That(t, got.Allocs == 5 && got.Arenas == 3 && got.Growths == j.count(trace.KindAlias) && got.Complete,
		"%+v, want 5 blocks in 3 arenas and %d growths", got, j.count(trace.KindAlias))
}

// Each change makes the replay find a wrong event.
func TestGraphMemoryMutations(t *testing.T) {
	find := func(j *job, k trace.Kind, n int) *trace.Event { return &j.events[j.nth(t, n, kind(k))] }
	for name, c := range map[string]struct {
		change func(j *job)
		want   string
	}{
		"store larger than any range": {func(j *job) { find(j, trace.KindMap, 1).Provided += 2 * mib }, "which the alias behind it needs"},
		"store smaller than a range":  {func(j *job) { find(j, trace.KindMap, 2).Provided -= 2 * mib }, "a part of the store"},
		"store not at its end":        {func(j *job) { find(j, trace.KindMap, 1).Addr += 2 * mib }, "the end of the store"},
		"part of a page":              {func(j *job) { find(j, trace.KindMap, 0).Provided -= 4096 }, "pages of 2097152 bytes"},
		"alias elsewhere":             {func(j *job) { find(j, trace.KindAlias, 1).Addr += 2 * mib }, "at that address"},
		"alias beside the last one": {func(j *job) {
			e := find(j, trace.KindAlias, 2)
			e.Addr -= 2 * mib
			e.Requested -= 2 * mib
			e.Provided += 2 * mib
		}, "behind the last one of its range"},
		"alias of no store":          {func(j *job) { find(j, trace.KindAlias, 0).Context = j.text("store=1") }, "the arena of a store"},
		"a page unmapped too early":  {func(j *job) { e := find(j, trace.KindUnmap, 0); e.Addr -= 2 * mib; e.Provided += 2 * mib }, "to stay mapped, which the range"},
		"a growth that was a map":    {func(j *job) { e := find(j, trace.KindAlias, 0); e.Kind, e.Requested = trace.KindMap, 3*mib }, "a growth by"},
		"a block still in the range": {func(j *job) { find(j, trace.KindFree, 0).Kind = trace.KindCheckpoint }, "mapped and within one free chunk"},
		"unalias of less":            {func(j *job) { find(j, trace.KindUnalias, 0).Provided -= 2 * mib }, "2097152 mapped"},
		"end of a mapped store":      {func(j *job) { find(j, trace.KindUnmap, 1).Kind = trace.KindCheckpoint }, "without mapped bytes and without ranges"},
		"a range without a store":    {func(j *job) { find(j, trace.KindArena, 0).Kind = trace.KindCheckpoint }, "the store of graph memory 1 before it"},
	} {
		j := captured(t)
		c.change(j)
		_, err := verifyPath(t, j.write(t, dataset.Ending{}, dataset.WriterOptions{}))
		var wrong *Mismatch
		assert.That(t, errors.As(err, &wrong) && strings.Contains(err.Error(), c.want), "%s: error %v, want %q", name, err, c.want)
	}
}

// Two streams of a shape have an arena each in one range, whose growths take turns.
func TestArenasOfOneRange(t *testing.T) {
	j := newJob()
	g := j.graphs()
	one, two := g.open(t, "bs8"), g.open(t, "bs8")
	second := &j.events[len(j.events)-1]
	second.Addr = int64(one.base)
	two.base = one.base
	one.alloc(2 * mib)
	two.extent = one.extent
	two.alloc(2 * mib)
	one.extent = two.extent
	one.alloc(6 * mib)
	if _, err := verifyPath(t, j.write(t, dataset.Ending{}, dataset.WriterOptions{})); err != nil {
		t.Error(err)
	}
}
