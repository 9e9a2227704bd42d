package bfc

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/memprof/memprof/trace/tracetest/assert"
)

const (
	kib = 1 << 10
	mib = 1 << 20
	gib = 1 << 30
)

func mustNew(t *testing.T, options Options, memory Memory) *Allocator {
	t.Helper()
	a, err := New(options, memory)
	assert.NoError(t, err)
	return a
}

func mustAlloc(t *testing.T, a *Allocator, size uint64) Block {
	t.Helper()
	block, ok := a.Alloc(size)
	assert.Must(t, ok, "Alloc(%d) failed", size)
	return block
}

func mustFree(t *testing.T, a *Allocator, addr uint64) Block {
	t.Helper()
	block, err := a.Free(addr)
	assert.NoError(t, err)
	return block
}

// sizes of the regions and of the chunks in them, free ones negative.
func shape(a *Allocator) [][]int64 {
	out := [][]int64{}
	for _, r := range a.Regions() {
		chunks := []int64{}
		for _, c := range r.Chunks {
			if c.Free() {
				chunks = append(chunks, -int64(c.Size))
			} else {
				chunks = append(chunks, int64(c.Size))
			}
		}
		out = append(out, chunks)
	}
	return out
}

func wantShape(t *testing.T, a *Allocator, want [][]int64) {
	t.Helper()
	assert.Diff(t, want, shape(a), "chunks by region, free ones negative")
}

// The worked example: every byte of R is accounted for after every step, with 2 MiB as
// the request that free memory would have to fit.
func TestWorkedExample(t *testing.T) {
	type row struct{ T, C, R, Rounding, Slack, Fits, Stranded uint64 }
	steps := []struct {
		name string
		size uint64 // 0 frees name
		want row
	}{
		{"a", 1_000, row{1_000, 1_024, 2_097_152, 24, 0, 0, 2_096_128}},
		{"b", 1_500_000, row{1_501_000, 2_097_152, 2_097_152, 184, 595_968, 0, 0}},
		{"d", 590_000, row{2_091_000, 2_687_232, 6_291_456, 264, 595_968, 3_604_224, 0}},
		{"c", 3 * mib, row{5_236_728, 6_291_456, 6_291_456, 264, 1_054_464, 0, 0}},
		{"b", 0, row{3_736_728, 4_195_328, 6_291_456, 104, 458_496, 0, 2_096_128}},
		{"e", 900_000, row{4_636_728, 5_095_424, 6_291_456, 200, 458_496, 0, 1_196_032}},
		{"c", 0, row{1_491_000, 1_491_200, 6_291_456, 200, 0, 3_604_224, 1_196_032}},
		{"f", 2 * mib, row{3_588_152, 5_095_424, 6_291_456, 200, 1_507_072, 0, 1_196_032}},
	}
	for _, vmm := range []bool{true, false} {
		a := mustNew(t, Options{Limit: gib}, NewDevice(DeviceOptions{VMM: vmm, Granularity: 2 * mib}))
		live := map[string]Block{}
		for _, step := range steps {
			if step.size == 0 {
				mustFree(t, a, live[step.name].Addr)
				delete(live, step.name)
			} else {
				live[step.name] = mustAlloc(t, a, step.size)
			}
			got := row{C: a.Stats().BytesInUse, R: a.Stats().Reserved}
			for _, block := range live {
				rounded := (block.Requested + 255) / 256 * 256
				got.T += block.Requested
				got.Rounding += rounded - block.Requested
				got.Slack += block.Size - rounded
			}
			for _, region := range a.Regions() {
				for _, chunk := range region.Chunks {
					switch {
					case chunk.Free() && chunk.Size >= 2*mib:
						got.Fits += chunk.Size
					case chunk.Free():
						got.Stranded += chunk.Size
					}
				}
			}
			assert.Diff(t, step.want, got, "vmm %v, after %s %d", vmm, step.name, step.size)
			sum := got.T + got.Rounding + got.Slack + got.Fits + got.Stranded
			assert.That(t, sum == got.R, "vmm %v, after %s %d: parts add up to %d, not %d", vmm, step.name, step.size, sum, got.R)
		}
	}
}

func TestClassesAreMonotone(t *testing.T) {
	last := uint(0)
	check := func(size uint64) {
		class := classOf(size)
		assert.Must(t, class >= last && class < classCount, "class %d of %d after %d", class, size, last)
		last = class
	}
	for size := uint64(Granule); size < mib; size += Granule {
		check(size)
	}
	for shift := 20; shift < 64; shift++ {
		for part := uint64(0); part < 32; part++ {
			check(1<<shift + part<<(shift-5))
		}
	}
	assert.That(t, classOf(maxSize) == classCount-1, "the last class is %d, of %d", classOf(maxSize), classCount)
}

// A chunk is split from twice the request, or from 128 MiB more than it.
func TestSplitRule(t *testing.T) {
	for _, c := range []struct {
		name                    string
		fraction                float64
		chunk, request, handout uint64
	}{
		{"exact", 0, 1024, 1024, 1024},
		{"one granule short of twice", 0, 2048 - 256, 1024, 2048 - 256},
		{"twice", 0, 2048, 1024, 1024},
		{"rounded counts, not requested", 0, 2048, 1025, 2048},
		{"128 MiB above", 0, 328 * mib, 200 * mib, 200 * mib},
		{"one granule less above", 0, 328*mib - 256, 200 * mib, 328*mib - 256},
		{"fraction of the limit", 1.0 / 1024, 200*mib + mib, 200 * mib, 200 * mib},
		{"below the fraction", 1.0 / 1024, 200*mib + mib - 256, 200 * mib, 200*mib + mib - 256},
		{"fraction is truncated", 1.5 / gib, 1024 + 256, 1024, 1024},
		{"no rest, no split", 1e-12, 1024, 1024, 1024},
		{"negative means default", -1, 2048 - 256, 1024, 2048 - 256},
	} {
		a := mustNew(t, Options{Limit: gib, FragmentationFraction: c.fraction, Growth: Needed}, NewDevice(DeviceOptions{}))
		mustFree(t, a, mustAlloc(t, a, c.chunk).Addr)
		block := mustAlloc(t, a, c.request)
		assert.That(t, block.Size == c.handout, "%s: %d of a chunk of %d got %d, want %d", c.name, c.request, c.chunk, block.Size, c.handout)
	}
}

func TestBestFitIsLeastSizeThenLeastAddress(t *testing.T) {
	a := mustNew(t, Options{Limit: gib}, NewDevice(DeviceOptions{VMM: true}))
	var gaps []Block
	for _, size := range []uint64{4096, 3072, 2048, 3072, 2048, 5120} {
		gaps = append(gaps, mustAlloc(t, a, size))
		mustAlloc(t, a, 256) // keeps gaps from merging
	}
	for _, i := range []int{5, 4, 3, 2, 1, 0} {
		mustFree(t, a, gaps[i].Addr)
	}
	var order []int
	for range gaps {
		block := mustAlloc(t, a, 1800) // 2048 rounded: none of the gaps but 4096 and 5120 is split
		order = append(order, slices.IndexFunc(gaps, func(h Block) bool { return h.Addr == block.Addr }))
	}
	// 5120 is split into 2048 and 3072, and the rest is a best fit after the gaps of 3072 and before 4096.
	want := []int{2, 4, 1, 3, 0, -1}
	assert.That(t, slices.Equal(order, want), "gaps were taken in the order %v, want %v", order, want)
}

func TestFreeMergesBothWays(t *testing.T) {
	a := mustNew(t, Options{Limit: gib}, NewDevice(DeviceOptions{VMM: true}))
	var blocks []Block
	for range 5 {
		blocks = append(blocks, mustAlloc(t, a, 1000))
	}
	rest := int64(2*mib - 5*1024)
	mustFree(t, a, blocks[1].Addr)
	mustFree(t, a, blocks[3].Addr)
	wantShape(t, a, [][]int64{{1024, -1024, 1024, -1024, 1024, -rest}})
	assert.Equal(t, mustFree(t, a, blocks[2].Addr), blocks[2], "Free returned")
	wantShape(t, a, [][]int64{{1024, -3072, 1024, -rest}})
	mustFree(t, a, blocks[4].Addr)
	mustFree(t, a, blocks[0].Addr)
	wantShape(t, a, [][]int64{{-2 * mib}})
}

func TestFreeAndFindOfWhatIsNotInUse(t *testing.T) {
	a := mustNew(t, Options{Limit: gib}, NewDevice(DeviceOptions{}))
	if _, err := a.Free(4096); !errors.Is(err, ErrNotInUse) {
		t.Errorf("free in an empty allocator: %v", err)
	}
	block := mustAlloc(t, a, 1000)
	if got, ok := a.Find(block.Addr); !ok || got != block {
		t.Errorf("Find = %+v %v, want %+v", got, ok, block)
	}
	for _, addr := range []uint64{0, block.Addr + 1, block.Addr + 256, block.Addr + 1024, math.MaxUint64} {
		_, err := a.Free(addr)
		assert.That(t, errors.Is(err, ErrNotInUse), "free of block+%d: %v", int64(addr-block.Addr), err)
		_, ok := a.Find(addr)
		assert.That(t, !ok, "found something at block+%d", int64(addr-block.Addr))
	}
	mustFree(t, a, block.Addr)
	_, err := a.Free(block.Addr)
	assert.That(t, errors.Is(err, ErrNotInUse), "second free: %v", err)
	got := a.Stats().BytesInUse
	assert.That(t, got == 0, "%d bytes in use", got)
}

func TestStats(t *testing.T) {
	a := mustNew(t, Options{Limit: 4 * mib}, NewDevice(DeviceOptions{VMM: true}))
	first := mustAlloc(t, a, 1000)
	second := mustAlloc(t, a, 3000)
	_, ok := a.Alloc(gib)
	assert.Must(t, !ok, "a request above the limit succeeded")
	mustFree(t, a, second.Addr)
	if third := mustAlloc(t, a, 100); first.ID != 1 || second.ID != 2 || third.ID != 3 {
		t.Errorf("ids %d %d %d: failures take none and none is used again", first.ID, second.ID, third.ID)
	}
	want := Stats{NumAllocs: 3, BytesInUse: 1280, PeakBytesInUse: 4096, LargestAlloc: 3072, Reserved: 2 * mib, PeakReserved: 2 * mib}
	assert.Diff(t, want, a.Stats())
	a.ClearPeaks()
	want.NumAllocs, want.PeakBytesInUse, want.LargestAlloc = 0, 1280, 0
	assert.Diff(t, want, a.Stats(), "cleared")
}

func TestFragmentation(t *testing.T) {
	a := mustNew(t, Options{Limit: 2 * mib}, NewDevice(DeviceOptions{}))
	got := a.Fragmentation()
	assert.That(t, got == 0 && a.LargestFree() == 0, "empty: fragmentation %v, largest free %d", got, a.LargestFree())
	quarter := mustAlloc(t, a, mib/2)
	rest := mustAlloc(t, a, 3*mib/2)
	if got := a.Fragmentation(); got != 0 || a.FreeBytes() != 0 {
		t.Errorf("full: fragmentation %v of %d free bytes", got, a.FreeBytes())
	}
	mustFree(t, a, rest.Addr)
	mustAlloc(t, a, mib/4)
	mustFree(t, a, quarter.Addr)
	// Free are 512 KiB and 1280 KiB.
	if got, want := a.Fragmentation(), 512.0/1792; got != want || a.LargestFree() != 1280*kib {
		t.Errorf("fragmentation %v, want %v; largest free %d", got, want, a.LargestFree())
	}
}

func TestPicture(t *testing.T) {
	a := mustNew(t, Options{Limit: gib, Growth: Needed}, NewDevice(DeviceOptions{}))
	keep := mustAlloc(t, a, 8*kib)
	mustAlloc(t, a, 4*kib)
	mustFree(t, a, keep.Addr)
	mustAlloc(t, a, 4*kib+256)
	// 4.25 KiB asked for in a chunk of 8, then 4 KiB in one of 4.
	got, want := Picture(a.Regions(), 12), "*****xxx****"
	assert.That(t, got == want, "picture %q, want %q", got, want)
	mustFree(t, a, keep.Addr)
	if got, want := Picture(a.Regions(), 12), "________****"; got != want {
		t.Errorf("picture %q, want %q", got, want)
	}
	// Narrower than the parts: what was asked for shows before padding, and that before free.
	if got, want := Picture(a.Regions(), 1), "*"; got != want {
		t.Errorf("picture %q, want %q", got, want)
	}
	assert.Equal(t, Picture(nil, 12), "", "picture of nothing")
}

func TestLocate(t *testing.T) {
	a := mustNew(t, Options{Limit: gib, Growth: Needed}, NewDevice(DeviceOptions{}))
	mustAlloc(t, a, 1024)
	second := mustAlloc(t, a, 2048)
	for _, c := range []struct {
		addr   uint64
		index  int
		offset uint64
		ok     bool
	}{
		{second.Addr, 1, 0, true}, {second.Addr + 2047, 1, 2047, true},
		{second.Addr + 2048, 0, 0, false}, {second.Addr - 1, 0, 0, false}, {0, 0, 0, false},
	} {
		if index, offset, ok := a.Locate(c.addr); index != c.index || offset != c.offset || ok != c.ok {
			t.Errorf("Locate(second%+d) = %d %d %v, want %d %d %v", int64(c.addr-second.Addr), index, offset, ok, c.index, c.offset, c.ok)
		}
	}
}

func TestHotPathDoesNotAllocate(t *testing.T) {
	a := mustNew(t, Options{Limit: gib}, NewDevice(DeviceOptions{VMM: true}))
	var addrs [64]uint64
	step := 0
	work := func() {
		slot := step * 7 % len(addrs)
		if addrs[slot] != 0 {
			if _, err := a.Free(addrs[slot]); err != nil {
				t.Fatal(err)
			}
		}
		block, ok := a.Alloc(uint64(step*7919%300_000 + 1))
		assert.Must(t, ok, "out of memory")
		addrs[slot] = block.Addr
		step++
	}
	for range 5000 {
		work()
	}
	got := testing.AllocsPerRun(5000, work)
	assert.That(t, got == 0, "%v host allocations for a free and an alloc", got)
}

func TestNewRefuses(t *testing.T) {
	device := NewDevice(DeviceOptions{})
	for name, options := range map[string]Options{
		"no number":         {Limit: gib, FragmentationFraction: math.NaN()},
		"whole, no limit":   {Limit: NoLimit, Growth: Whole},
		"unknown growth":    {Limit: gib, Growth: 7},
		"a negative growth": {Limit: gib, Growth: -1},
	} {
		_, err := New(options, device)
		assert.That(t, err != nil, "%s: no error", name)
	}
	for _, granularity := range []uint64{300, 768} {
		_, err := New(Options{Limit: gib}, NewDevice(DeviceOptions{Granularity: granularity}))
		assert.That(t, err != nil, "granularity %d: no error", granularity)
	}
}
