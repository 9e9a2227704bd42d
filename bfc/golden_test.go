package bfc

import (
	"errors"
	"math"
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
	assert.Equal(t, Picture(a.Regions(), 12), "________****", "picture")
	// Narrower than the parts: what was asked for shows before padding, and that before free.
	assert.Equal(t, Picture(a.Regions(), 1), "*", "picture")
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
