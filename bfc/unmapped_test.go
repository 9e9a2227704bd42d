package bfc

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/memprof/memprof/trace/tracetest/assert"
)

// unmapFree unmaps on the device and tells the allocator, as the owner of both does.
func unmapFree(t *testing.T, a *Allocator, d *Device, addr, bytes uint64) {
	t.Helper()
	assert.NoError(t, a.Unmap(addr, bytes))
	d.Unmap(addr, bytes)
}

// mapLog notes the calls to Map and Unmap, in MiB from the first grant.
type mapLog struct {
	*Device
	calls []mapCall
}

type mapCall struct {
	What          string
	Offset, Bytes uint64
}

func (m *mapLog) note(what string, addr, bytes uint64) {
	m.calls = append(m.calls, mapCall{what, (addr - m.options.Base) / mib, bytes / mib})
}

func (m *mapLog) Map(addr, bytes uint64) bool {
	ok := m.Device.Map(addr, bytes)
	if ok {
		m.note("map", addr, bytes)
	} else {
		m.note("refused", addr, bytes)
	}
	return ok
}

func (m *mapLog) Unmap(addr, bytes uint64) {
	m.note("unmap", addr, bytes)
	m.Device.Unmap(addr, bytes)
}

func (m *mapLog) TryUnmap(addr, bytes uint64) bool {
	ok := m.Device.TryUnmap(addr, bytes)
	if ok {
		m.note("take", addr, bytes)
	}
	return ok
}

func newMapped(t *testing.T, options Options, device DeviceOptions) (*Allocator, *mapLog) {
	device.VMM, device.Granularity = true, 2*mib
	memory := &mapLog{Device: NewDevice(device)}
	return mustNew(t, options, memory), memory
}

// Only what is handed out is mapped again, in maximal intervals, and the remainder not.
func TestRemapWhatIsHandedOut(t *testing.T) {
	a, memory := newMapped(t, Options{Limit: gib, Growth: Whole}, DeviceOptions{Physical: gib})
	block := mustAlloc(t, a, 64*mib)
	base := block.Addr
	mustFree(t, a, base)
	for _, r := range [][2]uint64{{8, 2}, {2, 2}, {6, 2}, {20, 20}, {4, 2}} { // 2..10 and 20..40 MiB
		unmapFree(t, a, memory.Device, base+r[0]*mib, r[1]*mib)
	}
	memory.calls = nil
	if got, want := a.Stats().Reserved, uint64(gib-28*mib); got != want || memory.used != want {
		t.Errorf("reserved %d, device says %d, want %d", got, memory.used, want)
	}
	mustAlloc(t, a, 21*mib+1) // ends in the page from 20 to 22
	want := []mapCall{{"map", 2, 8}, {"map", 20, 2}}
	assert.Diff(t, want, memory.calls)
	if got, want := a.Stats().Reserved, uint64(gib-18*mib); got != want || memory.used != want {
		t.Errorf("reserved %d, device says %d, want %d", got, memory.used, want)
	}
	assert.Equal(t, a.FreeBytes(), gib-21*mib-256, "free bytes, with those unmapped")
}

func TestUnmapRefuses(t *testing.T) {
	a, memory := newMapped(t, Options{Limit: gib, Growth: Whole}, DeviceOptions{})
	used := mustAlloc(t, a, 3*mib)
	free := used.Addr + 4*mib
	unmapFree(t, a, memory.Device, free+4*mib, 2*mib)
	before := a.Stats()
	for name, r := range map[string][2]uint64{
		"nothing":               {free, 0},
		"not aligned":           {free + mib, 2 * mib},
		"not whole granules":    {free, 3 * mib},
		"in use":                {used.Addr, 2 * mib},
		"partly in use":         {used.Addr + 2*mib, 2 * mib},
		"unmapped already":      {free + 4*mib, 2 * mib},
		"partly unmapped":       {free, 6 * mib},
		"outside":               {free + gib, 2 * mib},
		"past the end":          {free, gib},
		"past the last address": {math.MaxUint64 &^ (2*mib - 1), 2 * mib},
	} {
		err := a.Unmap(r[0], r[1])
		assert.That(t, errors.Is(err, ErrNotFree), "%s: %v", name, err)
	}
	assert.That(t, a.Stats() == before, "%+v, before %+v", a.Stats(), before)
}

// What an idle region had mapped is what its release brings.
func TestCollectPartlyUnmapped(t *testing.T) {
	a, memory := newMapped(t, Options{Limit: 8 * mib, GarbageCollection: true, Growth: Whole}, DeviceOptions{Physical: 8 * mib})
	block := mustAlloc(t, a, 8*mib)
	mustFree(t, a, block.Addr)
	unmapFree(t, a, memory.Device, block.Addr+2*mib, 4*mib)
	if got := a.CollectGarbage(); got != 4*mib || a.Stats().Reserved != 0 || memory.used != 0 {
		t.Errorf("collected %d, reserved %d, device says %d", got, a.Stats().Reserved, memory.used)
	}
	again := mustAlloc(t, a, 8*mib)
	assert.That(t, again.Addr == block.Addr && len(memory.calls) == 0, "%+v after %v", again, memory.calls)
}

func TestRangeSet(t *testing.T) {
	var s rangeSet
	for _, r := range []byteRange{{10, 20}, {40, 50}, {20, 30}, {35, 40}, {30, 35}, {60, 70}} {
		s.add(r)
	}
	want := []byteRange{{10, 50}, {60, 70}}
	assert.Must(t, slices.Equal(s.ranges, want) && s.bytes == 50, "%v of %d bytes, want %v", s.ranges, s.bytes, want)
	got := s.within(45, 65)
	assert.That(t, got == 10, "%d bytes within 45..65, want 10", got)
	if got, want := s.cut(nil, 45, 65), []byteRange{{45, 50}, {60, 65}}; !slices.Equal(got, want) {
		t.Errorf("cut to %v, want %v", got, want)
	}
	s.remove(byteRange{20, 25})
	s.remove(byteRange{45, 65})
	s.remove(byteRange{0, 5})
	if want := []byteRange{{10, 20}, {25, 45}, {65, 70}}; !slices.Equal(s.ranges, want) || s.bytes != 35 {
		t.Errorf("%v of %d bytes, want %v", s.ranges, s.bytes, want)
	}
	s.remove(byteRange{0, 100})
	assert.That(t, s.empty() && s.bytes == 0, "%v of %d bytes are left", s.ranges, s.bytes)
}
