package torchalloc

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

// pooledJob is events of a graph's pool in PyTorch's allocator; of the default pools after "outside". Each text is a kind, an
// address and bytes, in units of 512 bytes.
func pooledJob(t *testing.T, joins int, steps ...string) (*Follower, error) {
	t.Helper()
	texts := []string{"native", "allocator=native\tprovided=unknown\tcoalesces=%d\tpool=65.0\tmain=0", "allocator=native\tprovided=unknown\tcoalesces=%d\tpool=0.0\tmain=1"}
	f := NewFollower(Torch211, func(context int32) string { return strings.ReplaceAll(texts[context], "%d", strconv.Itoa(joins)) })
	events := []trace.Event{{Kind: trace.KindArena, Context: 1}, {Kind: trace.KindArena, Arena: 1, Context: 2}}
	kinds := map[string]trace.Kind{"map": trace.KindMap, "alloc": trace.KindAlloc, "free": trace.KindFree, "unmap": trace.KindUnmap, "before": trace.KindExternalFree}
	for _, step := range steps {
		var kind string
		var at, units int64
		rest, outside := strings.CutPrefix(step, "outside ")
		_, err := fmt.Sscan(rest, &kind, &at, &units)
		assert.NoError(t, err)
		arena := int32(0)
		if outside {
			arena = 1
		}
		events = append(events, trace.Event{Kind: kinds[kind], Arena: arena, Addr: 1<<40 + at*unit, Requested: units * unit, Provided: units * unit})
	}
	for i := range events {
		events[i].Seq = int64(i)
		if _, err := f.Add(&events[i]); err != nil {
			return f, err
		}
	}
	return f, f.End(int64(len(events)))
}

// checkpointed is a graph with two blocks that live, in a segment of 2 MiB, and one in a segment of 20 MiB: they are freed, and a
// checkpoint has them live again.
var checkpointed = []string{
	"map 0 4096", "alloc 0 1", "alloc 1 1", // as in TestBlockStateAbsorption of PyTorch's test_cuda.py
	"map 40960 40960", "alloc 40960 4096",
	"free 1 1", "free 0 1", "free 40960 4096",
	"alloc 0 1", "alloc 1 1", "alloc 2 4094", "free 2 4094",
	"alloc 40960 4096", "alloc 45056 36864", "free 45056 36864",
	"free 0 1", "free 1 1", "free 40960 4096",
	"unmap 0 4096", "unmap 40960 40960",
}

func TestFollowsCheckpoints(t *testing.T) {
	f, err := pooledJob(t, 0, checkpointed...)
	assert.NoError(t, err)
	assert.Equal(t, f.Followed, Followed{Allocs: 8, Frees: 8, Segments: 2, Releases: 2, Emptied: 1})
}

// The rest of an expandable segment has no memory: a checkpoint hands out what lies before it.
func TestFollowsCheckpointsOfExpandableSegments(t *testing.T) {
	f, err := pooledJob(t, 1, "map 0 4096", "alloc 0 1", "alloc 1 1", "free 0 1", "free 1 1",
		"alloc 0 1", "alloc 1 1", "alloc 2 4094", "free 2 4094", "free 0 1", "free 1 1", "unmap 0 4096")
	assert.NoError(t, err)
	assert.Equal(t, f.Followed, Followed{Allocs: 5, Frees: 5, Segments: 1, Releases: 1, Emptied: 1})
}

// twoSegments is a graph's pool of two segments of 2 MiB. Its checkpoint begins with the one that a request would not get.
var twoSegments = []string{
	"map 0 4096", "alloc 0 2048", "alloc 2048 2048", "map 8192 4096", "alloc 8192 2048", "alloc 10240 2048",
	"free 0 2048", "free 2048 2048", "free 8192 2048", "free 10240 2048",
	"alloc 8192 1024", "alloc 9216 1024", "alloc 10240 2048", "free 9216 1024", "alloc 0 2048", "alloc 2048 2048", "free 0 2048",
}

func TestFollowsCheckpointsInAnyOrder(t *testing.T) {
	f, err := pooledJob(t, 0, twoSegments...)
	assert.NoError(t, err)
	assert.Equal(t, f.Allocs, 9)
}

// What no checkpoint does is found.
func TestFindsChangesOfCheckpoints(t *testing.T) {
	change := func(steps []string, step string, instead ...string) []string {
		at := slices.Index(steps[8:], step) + 8
		return slices.Concat(steps[:at], instead, steps[at+1:])
	}
	for _, c := range []struct {
		steps []string
		want  string
	}{
		{change(checkpointed, "alloc 1 1"), "event 11: expected 2096128 bytes at 0x10001400000, found 2096128 bytes at 0x10000000400"},
		{change(checkpointed, "alloc 2 4094", "alloc 3 4093"), "event 12: expected 2095616 bytes at 0x10001400000, found 2095616 bytes at 0x10000000600"},
		{change(twoSegments, "alloc 9216 1024"), "event 13: expected the rest of a checkpoint's segment at 0x10000480000, found alloc at 0x10000500000"},
		{change(twoSegments, "alloc 10240 2048", "free 9216 1024"), "event 14: expected the rest of a checkpoint's segment at 0x10000500000, found free at 0x10000480000"},
		{change(twoSegments, "alloc 8192 1024", "map 16384 4096", "alloc 8192 1024"), "event 13: expected 524288 bytes at 0x10000000000 without more memory, found a map of 2097152 bytes at 0x10000800000 (event 12)"},
	} {
		_, err := pooledJob(t, 0, c.steps...)
		var d *Difference
		assert.That(t, errors.As(err, &d) && d.Error() == c.want, "%v\nwant %s", err, c.want)
	}
}

// The end of a MemPool releases its memory alone, as emptying the cache does in a scope.
func TestFollowsTheEndOfAPool(t *testing.T) {
	f, err := pooledJob(t, 0, "outside map 0 40960", "outside alloc 0 8192", "outside free 0 8192",
		"map 40960 4096", "alloc 40960 1", "free 40960 1", "unmap 40960 4096", "outside alloc 0 8192", "outside free 0 8192", "outside unmap 0 40960")
	assert.NoError(t, err)
	assert.Equal(t, f.Followed, Followed{Allocs: 3, Frees: 3, Segments: 2, Releases: 2, Emptied: 2})
	_, err = pooledJob(t, 0, "map 0 40960", "alloc 0 8192", "map 40960 40960", "alloc 40960 40960", "free 0 8192", "free 40960 40960", "unmap 40960 40960")
	assert.That(t, err != nil && err.Error() == "event 9: expected a release of a segment of 20971520 bytes at 0x10000000000, found none", "%v", err)
}

// Memory from before the first event is restated: the address of each segment, its map and its blocks. A free segment needs no request.
func TestFollowsMemoryFromBefore(t *testing.T) {
	before := []string{"before 0 0", "outside map 0 4096", "outside alloc 0 2", "outside alloc 2 2", "before 40960 0", "outside map 40960 40960"}
	f, err := pooledJob(t, 0, slices.Concat(before, []string{"outside alloc 4 10", "outside free 0 2", "outside alloc 0 1", "outside alloc 40960 4096"})...)
	assert.NoError(t, err)
	assert.Equal(t, f.Followed, Followed{Allocs: 5, Frees: 1, Segments: 2})
	_, err = pooledJob(t, 0, slices.Concat(before, []string{"outside free 0 2", "outside alloc 81920 4096"})...)
	var d *Difference
	assert.That(t, errors.As(err, &d), "%v", err)
	_, err = pooledJob(t, 0, "before 0 0", "outside map 0 4096", "outside alloc 6 2") // what lies before was freed
	assert.That(t, errors.Is(err, ErrNotModeled), "%v", err)
}
