package bfc

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/memprof/memprof/trace/tracetest/assert"
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

// Pages that an iteration did not touch go at its end, and a request that needs them maps them again.
func TestTrim(t *testing.T) {
	j := newIterations(t, DeviceOptions{})
	for i, c := range []struct {
		sizes []uint64
		want  []mapCall
	}{
		{[]uint64{4, 36}, nil},
		{[]uint64{4, 2}, []mapCall{{"take", 6, 34}}},
		{[]uint64{4, 2}, nil},
		{[]uint64{4, 8}, []mapCall{{"map", 6, 6}}},
		{nil, []mapCall{{"take", 0, 12}}},
	} {
		assert.Diff(t, c.want, j.run(c.sizes...), "iteration %d", i)
	}
	got := j.Stats()
	assert.That(t, got.Reserved == 0 && got.PeakReserved == 40*mib, "%+v", got)
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
		err := a.Remap(r[0], r[1])
		assert.That(t, errors.Is(err, ErrNotUnmapped) && a.Stats() == before, "%s: %v", name, err)
	}
	err := a.Remap(tail, 8*mib)
	assert.That(t, err == nil && a.Stats().Reserved == 12*mib, "%v, %d reserved", err, a.Stats().Reserved)
	a.options.Limit = 14 * mib
	if err := a.Remap(block.Addr, 4*mib); !errors.Is(err, ErrNotUnmapped) {
		t.Errorf("beyond the limit: %v", err)
	}
}

// insideAgrees holds InExcess to Excess, for each page, each range, and each range with the page behind it.
func insideAgrees(a *Allocator, regions []Region) error {
	if a.options.Trim.When != TrimIteration {
		return nil
	}
	ranges := a.Excess()
	for _, r := range ranges {
		if !a.InExcess(r.Addr, r.Bytes) || a.InExcess(r.Addr, r.Bytes+a.granularity) || a.InExcess(r.Addr-a.granularity, r.Bytes+a.granularity) || a.InExcess(r.Addr+1, r.Bytes) {
			return fmt.Errorf("%d bytes at %#x are a range of Excess, and not just these are said to be in it", r.Bytes, r.Addr)
		}
	}
	for _, r := range regions {
		for at := r.Addr; at < r.Addr+r.Size; at += a.granularity {
			listed := slices.ContainsFunc(ranges, func(l Range) bool { return l.Addr <= at && at-l.Addr < l.Bytes })
			if a.InExcess(at, a.granularity) != listed {
				return fmt.Errorf("the page at %#x is in Excess: %v, but listed: %v", at, !listed, listed)
			}
		}
	}
	return nil
}

// Nothing that the owner may be said to have unmapped is in a range that is none.
func TestInsideOfNothing(t *testing.T) {
	a, memory := newMapped(t, Options{Limit: gib, Growth: Needed, Trim: Trim{When: TrimIteration}}, DeviceOptions{})
	j := &iterations{a, memory, t}
	j.run(4, 36)
	got := j.Excess()
	assert.Must(t, len(got) == 0, "excess %v after an iteration that used it all", got)
	j.EndIteration()
	excess := j.Excess()
	assert.Must(t, len(excess) == 1 && j.InExcess(excess[0].Addr, excess[0].Bytes), "excess %v, and it is not in it", excess)
	for _, r := range []Range{{excess[0].Addr, 0}, {excess[0].Addr, 1 << 63}, {1<<64 - 2*mib, 4 * mib}, {0, 2 * mib}} {
		assert.That(t, !j.InExcess(r.Addr, r.Bytes), "%d bytes at %#x are in excess", r.Bytes, r.Addr)
	}
}
