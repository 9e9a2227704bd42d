package bfc

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// iterations is a job that repeats itself: in each it takes and frees blocks of its own.
type iterations struct {
	*Allocator
	memory *mapLog
	t      *testing.T
}

func newIterations(t *testing.T, device DeviceOptions) *iterations {
	a, memory := newMapped(t, Options{Limit: gib, Growth: Needed, Split: SplitAlways, Trim: Trim{When: TrimIteration}}, device)
	return &iterations{a, memory, t}
}

// run takes blocks of these sizes in MiB, frees them, and ends the iteration. It returns the
// calls of Take, Map and Unmap up to there.
func (j *iterations) run(sizes ...uint64) []mapCall {
	j.t.Helper()
	j.memory.calls = nil
	var blocks []Block
	for _, size := range sizes {
		blocks = append(blocks, mustAlloc(j.t, j.Allocator, size*mib))
	}
	for _, block := range blocks {
		mustFree(j.t, j.Allocator, block.Addr)
	}
	j.EndIteration()
	j.Trim()
	if j.Stats().Reserved != j.memory.used {
		j.t.Errorf("%d reserved, the device says %d", j.Stats().Reserved, j.memory.used)
	}
	return j.memory.calls
}

// The excess of the first iteration goes once two others had no use for it, and then there is
// rest.
func TestExcessGoesForGood(t *testing.T) {
	j := newIterations(t, DeviceOptions{})
	for i, want := range [][]mapCall{nil, nil, {{"take", 6, 34}}, nil, nil} {
		sizes := []uint64{4, 2}
		if i == 0 {
			sizes = []uint64{4, 36}
		}
		if diff := cmp.Diff(want, j.run(sizes...)); diff != "" {
			t.Errorf("iteration %d (-want +got):\n%s", i, diff)
		}
	}
	if got := j.Stats().Reserved; got != 6*mib {
		t.Errorf("%d reserved", got)
	}
}

// What was never used goes when two iterations have ended: the growth of classic recordings.
func TestWhatWasNeverUsed(t *testing.T) {
	a, memory := newMapped(t, Options{Limit: gib, Trim: Trim{When: TrimIteration}}, DeviceOptions{})
	j := &iterations{a, memory, t}
	for i, want := range [][]mapCall{nil, {{"take", 6, 2}}, nil} {
		if diff := cmp.Diff(want, j.run(4, 2)); diff != "" { // two regions of 4 MiB
			t.Errorf("iteration %d (-want +got):\n%s", i, diff)
		}
	}
}

// In the first iteration pages are taken for growth, and again for what was taken. To map them
// ahead of the next would be a new peak, so a request of that does it, and from then on nothing
// happens.
func TestTakenIsMappedOnce(t *testing.T) {
	j := newIterations(t, DeviceOptions{})
	step := func() []mapCall {
		j.memory.calls = nil
		keep := mustAlloc(t, j.Allocator, 2*mib)
		first := mustAlloc(t, j.Allocator, 10*mib)
		wall := mustAlloc(t, j.Allocator, 2*mib)
		mustFree(t, j.Allocator, first.Addr)
		large := mustAlloc(t, j.Allocator, 12*mib)
		mustFree(t, j.Allocator, large.Addr)
		again := mustAlloc(t, j.Allocator, 10*mib)
		for _, block := range []Block{keep, wall, again} {
			mustFree(t, j.Allocator, block.Addr)
		}
		j.EndIteration()
		j.Trim()
		return j.memory.calls
	}
	// The tail of 12 MiB is taken back, but for nothing is it grown: 10 of it are needed.
	want := []mapCall{{"take", 2, 10}, {"take", 16, 10}, {"map", 2, 10}}
	if diff := cmp.Diff(want, step()); diff != "" {
		t.Errorf("the first iteration (-want +got):\n%s", diff)
	}
	if got := j.Stats(); got.PeakReserved != 16*mib || got.Reserved != 16*mib {
		t.Errorf("%+v", got)
	}
	for i, want := range [][]mapCall{{{"map", 16, 10}}, nil, nil} {
		if diff := cmp.Diff(want, step()); diff != "" {
			t.Errorf("iteration %d (-want +got):\n%s", i+1, diff)
		}
	}
}

// What is mapped ahead stays below the peak, and begins at the lowest address.
func TestAheadMakesNoPeak(t *testing.T) {
	j := newIterations(t, DeviceOptions{})
	j.run(30)
	j.run(30)
	given := j.UnmapFree(gib)
	low := mustAlloc(t, j.Allocator, 30*mib) // where all was unmapped: 30 MiB, and 20 more
	high := mustAlloc(t, j.Allocator, 20*mib)
	mustFree(t, j.Allocator, low.Addr)
	j.UnmapFree(24 * mib)
	mustFree(t, j.Allocator, high.Addr)
	if got := j.Stats(); given != 30*mib || got.PeakReserved != 50*mib || got.Reserved != 26*mib {
		t.Fatalf("%d unmapped, then %+v", given, got)
	}
	j.stats.PeakReserved = 36 * mib
	if diff := cmp.Diff([]mapCall{{"map", 6, 10}}, j.run()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Where the device refuses, what was unmapped stays so, and a request maps it.
func TestAheadIsRefused(t *testing.T) {
	j := newIterations(t, DeviceOptions{RefuseMap: func(call int, _, _ uint64) bool { return call == 1 }})
	j.run(8)
	if given := j.UnmapFree(3 * mib); given != 4*mib {
		t.Errorf("%d unmapped", given)
	}
	if diff := cmp.Diff([]mapCall{{"refused", 4, 4}}, j.run()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]mapCall{{"map", 4, 4}}, j.run(8)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestRemapRefuses(t *testing.T) {
	a, memory := newMapped(t, Options{Limit: 16 * mib, Growth: Needed}, DeviceOptions{})
	block := mustAlloc(t, a, 16*mib)
	mustFree(t, a, block.Addr)
	unmapFree(t, a, memory.Device, block.Addr, 4*mib)
	unmapFree(t, a, memory.Device, block.Addr+8*mib, 8*mib)
	tail := block.Addr + 8*mib
	before := a.Stats()
	for name, r := range map[string][2]uint64{
		"nothing":        {tail, 0},
		"not aligned":    {tail + mib, 2 * mib},
		"part mapped":    {block.Addr, 6 * mib},
		"mapped":         {block.Addr + 4*mib, 4 * mib},
		"outside":        {tail, 16 * mib},
		"past the end":   {tail, 1 << 63},
		"around the end": {1<<64 - 2*mib, 4 * mib},
	} {
		if err := a.Remap(r[0], r[1]); !errors.Is(err, ErrNotUnmapped) || a.Stats() != before {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := a.Remap(tail, 8*mib); err != nil || a.Stats().Reserved != 12*mib {
		t.Errorf("%v, %d reserved", err, a.Stats().Reserved)
	}
	a.options.Limit = 14 * mib
	if err := a.Remap(block.Addr, 4*mib); !errors.Is(err, ErrNotUnmapped) {
		t.Errorf("beyond the limit: %v", err)
	}
}

// insideAgrees holds InExcess and InAhead to the lists, for each page, each range, and each
// range with the page behind it.
func insideAgrees(a *Allocator, regions []Region) error {
	if !a.notes() {
		return nil
	}
	for _, list := range []struct {
		name   string
		ranges []Range
		in     func(addr, bytes uint64) bool
	}{{"Excess", a.Excess(), a.InExcess}, {"Ahead", a.Ahead(), a.InAhead}} {
		for _, r := range list.ranges {
			if !list.in(r.Addr, r.Bytes) || list.in(r.Addr, r.Bytes+a.granularity) || list.in(r.Addr-a.granularity, r.Bytes+a.granularity) || list.in(r.Addr+1, r.Bytes) {
				return fmt.Errorf("%d bytes at %#x are a range of %s, and not just these are said to be in it", r.Bytes, r.Addr, list.name)
			}
		}
		for _, r := range regions {
			for at := r.Addr; at < r.Addr+r.Size; at += a.granularity {
				listed := slices.ContainsFunc(list.ranges, func(l Range) bool { return l.Addr <= at && at-l.Addr < l.Bytes })
				if list.in(at, a.granularity) != listed {
					return fmt.Errorf("the page at %#x is in %s: %v, but listed: %v", at, list.name, !listed, listed)
				}
			}
		}
	}
	return nil
}

// Nothing that the owner may be said to have unmapped or mapped is in a range that is none.
func TestInsideOfNothing(t *testing.T) {
	a, memory := newMapped(t, Options{Limit: gib, Growth: Needed, Trim: Trim{When: TrimIteration}}, DeviceOptions{})
	j := &iterations{a, memory, t}
	j.run(4, 36)
	j.run(4)
	if got := j.Excess(); len(got) != 0 {
		t.Fatalf("excess %v after two iterations that used it all", got)
	}
	j.EndIteration()
	excess := j.Excess()
	if len(excess) != 1 || !j.InExcess(excess[0].Addr, excess[0].Bytes) {
		t.Fatalf("excess %v, and it is not in it", excess)
	}
	for _, r := range []Range{{excess[0].Addr, 0}, {excess[0].Addr, 1 << 63}, {1<<64 - 2*mib, 4 * mib}, {0, 2 * mib}} {
		if j.InExcess(r.Addr, r.Bytes) || j.InAhead(r.Addr, r.Bytes) {
			t.Errorf("%d bytes at %#x are in excess, or ahead", r.Bytes, r.Addr)
		}
	}
}
