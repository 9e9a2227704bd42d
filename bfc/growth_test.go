package bfc

import (
	"math"
	"testing"

	"github.com/memprof/memprof/trace/tracetest/assert"
)

// asked is a Memory that notes what it is asked for.
type asked struct {
	*Device
	grows []uint64
	frees int
}

func (m *asked) Grow(bytes uint64) (uint64, uint64, bool) {
	m.grows = append(m.grows, bytes)
	return m.Device.Grow(bytes)
}

func (m *asked) Free() uint64 {
	m.frees++
	return m.Device.Free()
}

func refuseAll(int, uint64) bool { return true }

func refuse(calls ...int) func(int, uint64) bool {
	return func(call int, _ uint64) bool {
		for _, c := range calls {
			if c == call {
				return true
			}
		}
		return false
	}
}

func TestGrowth(t *testing.T) {
	for _, c := range []struct {
		name    string
		options Options
		device  DeviceOptions
		allocs  []int64 // negative: fails
		grows   []uint64
		next    uint64
	}{
		{"doubling", Options{Limit: gib}, DeviceOptions{},
			[]int64{2 * mib, 4 * mib, 8 * mib, 16 * mib}, []uint64{2 * mib, 4 * mib, 8 * mib, 16 * mib}, 32 * mib},
		{"doubling from small requests", Options{Limit: gib}, DeviceOptions{VMM: true, Granularity: 2 * mib},
			[]int64{1, 2 * mib, 4 * mib, 8 * mib}, []uint64{2 * mib, 4 * mib, 8 * mib, 16 * mib}, 32 * mib},
		{"a first request that doubles", Options{Limit: gib}, DeviceOptions{},
			[]int64{4 * mib, 4 * mib, 8 * mib, 16 * mib}, []uint64{4 * mib, 4 * mib, 8 * mib, 16 * mib}, 32 * mib},
		{"limit below the first region", Options{Limit: 1000}, DeviceOptions{},
			[]int64{700, -100}, []uint64{768}, 2048},
		{"limit clips the last region", Options{Limit: 5 * mib}, DeviceOptions{},
			[]int64{2 * mib, 3 * mib, -1}, []uint64{2 * mib, 3 * mib}, 8 * mib},
		{"above the limit nothing happens", Options{Limit: 8 * mib}, DeviceOptions{},
			[]int64{-(8*mib + 1)}, nil, 2 * mib},
		{"a limit of nothing", Options{}, DeviceOptions{}, []int64{-1}, nil, 0},
		{"a free tail is not credited", Options{Limit: 4 * mib}, DeviceOptions{VMM: true},
			[]int64{1, -3 * mib}, []uint64{2 * mib}, 4 * mib},
		{"doubling persists after a refusal", Options{Limit: gib}, DeviceOptions{RefuseGrow: refuse(1)},
			[]int64{-64 * mib, 1}, []uint64{64 * mib, 64 * mib}, 128 * mib},
		{"size 0", Options{Limit: gib}, DeviceOptions{}, []int64{0}, nil, 2 * mib},

		{"whole", Options{Limit: 100 * mib, Growth: Whole}, DeviceOptions{},
			[]int64{1, 99 * mib}, []uint64{100 * mib}, 200 * mib},
		{"whole rounds the limit up", Options{Limit: 1000, Growth: Whole}, DeviceOptions{},
			[]int64{1}, []uint64{768}, 2048},
		{"whole backs off", Options{Limit: 2 * mib, Growth: Whole}, DeviceOptions{RefuseGrow: refuse(1, 2)},
			[]int64{1}, []uint64{2 * mib, 1887488, 1698816}, 4 * mib},

		{"needed", Options{Limit: gib, Growth: Needed}, DeviceOptions{VMM: true, Granularity: 64 * kib},
			[]int64{1000, 120_000, 64 * kib, 200_000}, []uint64{1024, 120_064 - (64*kib - 1024), 64 * kib, 200_192}, 2 * mib},
		{"needed, separate", Options{Limit: gib, Growth: Needed}, DeviceOptions{},
			[]int64{1000, 5000}, []uint64{1024, 5120}, 2 * mib},
		{"needed has no second try", Options{Limit: gib, Growth: Needed}, DeviceOptions{RefuseGrow: refuse(1)},
			[]int64{-mib, mib}, []uint64{mib, mib}, 2 * mib},
		{"needed meets the limit with its credit", Options{Limit: 3 * mib, Growth: Needed}, DeviceOptions{VMM: true, Granularity: mib},
			[]int64{1000, 3*mib - 1024}, []uint64{1024, 2 * mib}, 2 * mib},
		{"needed, but the padding passes the limit", Options{Limit: 3*mib - 256, Growth: Needed}, DeviceOptions{VMM: true, Granularity: mib},
			[]int64{-(2*mib + 256), 2 * mib}, []uint64{2 * mib}, 2 * mib},

		{"padding is cut at the limit", Options{Limit: 5*mib + 512*kib}, DeviceOptions{VMM: true, Granularity: 2 * mib},
			[]int64{2 * mib, 2 * mib, -1}, []uint64{2 * mib, 2 * mib}, 8 * mib},
		{"padding leaves too little", Options{Limit: 5 * mib}, DeviceOptions{VMM: true, Granularity: 2 * mib},
			[]int64{-(4*mib + 1), 4 * mib}, []uint64{4 * mib}, 16 * mib},

		{"headroom clips to pages", Options{Limit: gib, Headroom: 10 * mib}, DeviceOptions{VMM: true, Granularity: 2 * mib, Physical: 17 * mib},
			[]int64{2 * mib, 4 * mib, 1}, []uint64{2 * mib, 4 * mib, 256}, 16 * mib},
		{"headroom never clips the request", Options{Limit: gib, Headroom: gib}, DeviceOptions{Physical: 64 * mib},
			[]int64{1000, 30 * mib}, []uint64{1024, 30 * mib}, 32 * mib},
	} {
		t.Run(c.name, func(t *testing.T) {
			memory := &asked{Device: NewDevice(c.device)}
			a := mustNew(t, c.options, memory)
			for i, size := range c.allocs {
				_, ok := a.Alloc(uint64(max(size, -size)))
				want := size > 0
				assert.That(t, ok == want, "alloc %d of %d: ok %v", i, size, ok)
			}
			assert.Diff(t, c.grows, memory.grows, "asked for")
			assert.Equal(t, a.NextRegion(), c.next, "next region")
			got := a.Stats().Reserved
			assert.That(t, got <= c.options.Limit && got == memory.used, "reserved %d, limit %d, device says %d", got, c.options.Limit, memory.used)
		})
	}
}

// What is free is asked for only where the headroom could clip something.
func TestHeadroomAsksOnlyWhenItMatters(t *testing.T) {
	memory := &asked{Device: NewDevice(DeviceOptions{Physical: gib})}
	a := mustNew(t, Options{Limit: gib, Headroom: mib}, memory)
	mustAlloc(t, a, 2*mib)
	assert.That(t, memory.frees == 0, "asked %d times for a region of the request's size", memory.frees)
	mustAlloc(t, a, 2*mib)
	assert.That(t, memory.frees == 1, "asked %d times for one larger region", memory.frees)
}

// The products are float32: exact arithmetic differs from 2^32 on.
func TestBackoff(t *testing.T) {
	for _, c := range [][]uint64{
		{2 * mib, 1887488, 1698816, 1529088, 1376256, 1238784},
		{2560, 2304, 2048, 1792, 1536, 1280, 1024, 768, 512, 256}, // 0.9 does not shrink these: 256 less
		{1<<24 + 256, 15099904, 13590016},
		{1<<32 + 256, 3865470464, 3478923264, 3131030784}, // exact: 3865470976
		{3*gib + 1280, 2899104000, 2609193472, 2348274176},
		{80 * gib, 77309411328, 69578465280, 62620618752},
		{141*gib + 768, 136257830912, 122632044544},
	} {
		memory := &asked{Device: NewDevice(DeviceOptions{RefuseGrow: refuseAll})}
		a := mustNew(t, Options{Limit: c[0], Growth: Whole}, memory)
		_, ok := a.Alloc(c[len(c)-1])
		assert.Must(t, !ok, "%d: allocated without memory", c[0])
		assert.Diff(t, c, memory.grows, "backing off from %d", c[0])
	}
}

func TestRequestsNear64Bits(t *testing.T) {
	memory := &asked{Device: NewDevice(DeviceOptions{Physical: gib})}
	a := mustNew(t, Options{Limit: NoLimit}, memory)
	for _, size := range []uint64{math.MaxUint64, math.MaxUint64 - 1, maxSize + 1} {
		_, ok := a.Alloc(size)
		assert.That(t, !ok, "Alloc(%d) succeeded", size)
	}
	assert.That(t, memory.grows == nil && a.NextRegion() == 2*mib,
		"sizes that cannot be rounded asked for %v, next region %d", memory.grows, a.NextRegion())
	_, ok := a.Alloc(maxSize)
	assert.That(t, !ok, "2^64-256 succeeded")
	assert.That(t, a.NextRegion() == maxSize, "next region %d does not saturate", a.NextRegion())
	assert.Equal(t, memory.grows[0], maxSize, "asked for")
	// One huge failure has made all later growth start huge, and it backs off to what there is.
	block := mustAlloc(t, a, 1000)
	assert.That(t, block.Size == 1024 && a.Stats().Reserved <= gib && a.Stats().Reserved >= gib*9/10,
		"got %d of %d reserved", block.Size, a.Stats().Reserved)
}

func TestGarbageCollection(t *testing.T) {
	memory := NewDevice(DeviceOptions{})
	a := mustNew(t, Options{Limit: 8 * mib, GarbageCollection: true}, memory)
	first := mustAlloc(t, a, 2*mib)
	second := mustAlloc(t, a, 4*mib)
	mustFree(t, a, first.Addr)
	mustFree(t, a, second.Addr)
	_, ok := a.Alloc(8*mib + 1)
	assert.That(t, !ok && len(a.Regions()) == 2, "a request above the limit: ok %v, %d regions left", ok, len(a.Regions()))
	keep := mustAlloc(t, a, mib)
	if _, ok := a.Alloc(7 * mib); ok || len(a.Regions()) != 2 {
		t.Errorf("what idle regions cannot give: ok %v, %d regions left", ok, len(a.Regions()))
	}
	mustAlloc(t, a, 6*mib) // releases the idle region of 4 MiB
	wantShape(t, a, [][]int64{{mib, -mib}, {6 * mib}})
	got := a.Stats()
	assert.That(t, got.Reserved == 8*mib && got.PeakReserved == 8*mib && memory.used == 8*mib, "%+v, device says %d", got, memory.used)
	assert.That(t, a.NextRegion() == 16*mib, "next region %d was reset", a.NextRegion())
	mustFree(t, a, keep.Addr)
	if got := a.CollectGarbage(); got != 2*mib || memory.used != 6*mib {
		t.Errorf("collected %d, device keeps %d", got, memory.used)
	}
	assert.Equal(t, a.CollectGarbage(), 0, "collected of nothing")
}

// A memory that replays a damaged recording may grant nonsense, which is a refusal.
func TestUnsoundGrants(t *testing.T) {
	for name, grant := range map[string]script{
		"short":             {1 << 40, mib},
		"askew":             {1<<40 + 1, 2 * mib},
		"askew size":        {1 << 40, 2*mib + 1},
		"past the end":      {math.MaxUint64 - mib + 1, 2 * mib},
		"inside a region":   {scriptBase + mib, 2 * mib},
		"around a region":   {scriptBase - mib, 4 * mib},
		"more than allowed": {1 << 40, 64 * mib},
	} {
		memory := &scripted{grants: []script{{scriptBase, 2 * mib}, grant}}
		a := mustNew(t, Options{Limit: 32 * mib, Growth: Needed}, memory)
		mustAlloc(t, a, 2*mib)
		_, ok := a.Alloc(2 * mib)
		assert.That(t, !ok, "%s: taken", name)
		wantShape(t, a, [][]int64{{2 * mib}})
	}
}

const scriptBase = 1 << 30

type script struct{ addr, bytes uint64 }

// scripted is a Memory that grants what the script says and records the requests.
type scripted struct {
	grants []script
	asked  []uint64
}

func (s *scripted) Granularity() uint64       { return Granule }
func (s *scripted) Coalesces() bool           { return true }
func (s *scripted) Adjoins(uint64) bool       { return true }
func (s *scripted) Release(uint64, uint64)    {}
func (s *scripted) Map(uint64, uint64) bool   { return true }
func (s *scripted) Unmap(uint64, uint64)      {}
func (s *scripted) TryUnmap(_, _ uint64) bool { return false }
func (s *scripted) Free() uint64              { return NoLimit }
func (s *scripted) Grow(bytes uint64) (uint64, uint64, bool) {
	s.asked = append(s.asked, bytes)
	if len(s.grants) == 0 {
		return 0, 0, false
	}
	grant := s.grants[0]
	s.grants = s.grants[1:]
	return grant.addr, grant.bytes, true
}
