package bfc

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A chunk of 10 MiB is asked for less, under every split.
func TestSplits(t *testing.T) {
	for _, c := range []struct {
		split   Split
		request uint64
		size    uint64 // of the chunk handed out
	}{
		{SplitClassic, 6 * mib, 10 * mib}, {SplitClassic, 5 * mib, 5 * mib},
		{SplitAlways, 6 * mib, 6 * mib}, {SplitAlways, 10*mib - 256, 10*mib - 256}, {SplitAlways, 10*mib - 255, 10 * mib},
		{4 * mib, 6 * mib, 6 * mib}, {4 * mib, 6*mib + 1, 10 * mib}, {4 * mib, 256, 256}, {9 * mib, 2 * mib, 10 * mib},
	} {
		a := mustNew(t, Options{Limit: gib, Growth: Needed, Split: c.split, FragmentationFraction: 1e-9}, NewDevice(DeviceOptions{VMM: true}))
		if c.split == SplitClassic {
			a = mustNew(t, Options{Limit: gib, Growth: Needed}, NewDevice(DeviceOptions{VMM: true}))
		}
		block := mustAlloc(t, a, 10*mib)
		mustAlloc(t, a, 256) // a wall behind it
		mustFree(t, a, block.Addr)
		if got := mustAlloc(t, a, c.request); got.Addr != block.Addr || got.Size != c.size {
			t.Errorf("split %v, request %d: %+v, want %d bytes", c.split, c.request, got, c.size)
		}
	}
}

func TestStep(t *testing.T) {
	const refusal = 1 << 62
	for _, c := range []struct {
		name     string
		options  Options
		physical uint64
		requests []uint64
		asked    []uint64 // of the device
	}{
		{"whole steps", Options{Limit: gib, Step: 8 * mib}, 0, []uint64{mib, 6 * mib, 2 * mib, 17 * mib}, []uint64{8 * mib, 8 * mib, 16 * mib}},
		{"a tail is credited", Options{Limit: gib, Step: 4 * mib}, 0, []uint64{3 * mib, 6 * mib}, []uint64{4 * mib, 8 * mib}},
		{"no more than the limit", Options{Limit: 10 * mib, Step: 8 * mib}, 0, []uint64{8 * mib, mib}, []uint64{8 * mib, 2 * mib}},
		{"a step that is no granule", Options{Limit: gib, Step: 1000}, 0, []uint64{2500}, []uint64{3072}},
		{"the headroom", Options{Limit: gib, Step: 16 * mib, Headroom: 12 * mib}, 32 * mib, []uint64{mib, 18 * mib}, []uint64{16 * mib, 4 * mib}},
		{"refused", Options{Limit: gib, Step: 64 * mib}, 32 * mib, []uint64{mib}, []uint64{64 * mib, mib}},
		{"beyond 64 bits", Options{Limit: NoLimit, Step: 1 << 63}, mib, []uint64{refusal}, []uint64{1 << 63, refusal}},
	} {
		memory := &asked{Device: NewDevice(DeviceOptions{VMM: true, Physical: c.physical, Granularity: Granule})}
		c.options.Growth = Step
		a := mustNew(t, c.options, memory)
		for _, size := range c.requests {
			if _, ok := a.Alloc(size); !ok && size != refusal {
				t.Errorf("%s: no %d", c.name, size)
			}
		}
		if diff := cmp.Diff(c.asked, memory.grows); diff != "" {
			t.Errorf("%s: (-want +got):\n%s", c.name, diff)
		}
	}
	if _, err := New(Options{Limit: gib, Growth: Step}, NewDevice(DeviceOptions{})); err == nil {
		t.Error("growth step without a step: no error")
	}
}

func TestTakeBeforeGrowth(t *testing.T) {
	for _, c := range []struct {
		name   string
		growth Growth
		refuse func(call int, addr, bytes uint64) bool
		want   []mapCall
		after  uint64 // MiB reserved
	}{
		{"the last first", Needed, nil, []mapCall{{"take", 26, 2}, {"take", 6, 6}}, 38},
		{"a refusal goes on", Needed, func(call int, _, _ uint64) bool { return call == 1 }, []mapCall{{"take", 4, 8}}, 38},
		{"all refused", Needed, refuseUnmap, nil, 46},
		{"a step takes nothing", Step, nil, nil, 46},
	} {
		a, memory := newMapped(t, Options{Limit: gib, Growth: c.growth, Step: 2 * mib, Split: SplitAlways}, DeviceOptions{RefuseUnmap: c.refuse})
		var blocks []Block
		for _, size := range []uint64{2, 10, 13, 3, 2, 8} { // at 0, 2, 12, 25, 28, 30; ends at 38
			blocks = append(blocks, mustAlloc(t, a, size*mib))
		}
		for _, i := range []int{1, 3, 5} { // gaps of 10 and of 3 MiB, one page in it, and the tail
			mustFree(t, a, blocks[i].Addr)
		}
		memory.calls = nil
		block := mustAlloc(t, a, 16*mib)
		if block.Addr != blocks[5].Addr || a.Stats().Reserved != c.after*mib || memory.used != c.after*mib {
			t.Errorf("%s: %+v, %d reserved, the device says %d", c.name, block, a.Stats().Reserved, memory.used)
		}
		if diff := cmp.Diff(c.want, memory.calls); diff != "" {
			t.Errorf("%s: (-want +got):\n%s", c.name, diff)
		}
	}
}

func refuseUnmap(int, uint64, uint64) bool { return true }
