package torchalloc

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/memprof/memprof/trace/tracetest/assert"
)

// testCard is a device of a fixed size whose segments lie in ascending order, each once.
type testCard struct {
	size, used, next uint64
	calls            []string
}

func (c *testCard) take(bytes uint64) bool {
	if c.used+bytes > c.size {
		return false
	}
	c.used += bytes
	return true
}

func (c *testCard) Alloc(bytes uint64) (uint64, bool) {
	if !c.take(bytes) {
		return 0, false
	}
	return c.address(bytes), true
}

func (c *testCard) address(bytes uint64) uint64 {
	c.next += 1 << 40
	return c.next
}

func (c *testCard) Free(addr, bytes uint64)             { c.used -= bytes }
func (c *testCard) Reserve(bytes uint64) (uint64, bool) { return c.address(bytes), true }
func (c *testCard) Unreserve(addr, bytes uint64)        {}
func (c *testCard) Map(addr, bytes uint64) bool         { return c.take(bytes) }
func (c *testCard) Unmap(addr, bytes uint64)            { c.used -= bytes }

func allocator(t testing.TB, conf string, v Version, total uint64) (*Allocator, *testCard) {
	t.Helper()
	settings, err := ParseSettings(conf, v)
	assert.NoError(t, err)
	c := &testCard{size: total}
	return NewAllocator(AllocatorOptions{Settings: settings, Version: v, Total: total}, c), c
}

func malloc(t testing.TB, a *Allocator, n, stream uint64) *Block {
	t.Helper()
	b, err := a.Malloc(n, stream)
	assert.Must(t, err == nil, "malloc %d: %v", n, err)
	return b
}

func TestRoundup(t *testing.T) {
	list := "roundup_power2_divisions:[2:4,8:2,>:1]"
	for _, c := range []struct {
		conf    string
		v       Version
		n, want uint64
	}{
		{"roundup_power2_divisions:4", Torch211, 1200, 1536},           // not above 512 x 4
		{"roundup_power2_divisions:4", Torch211, 2049, 2560},           // steps of 512
		{"roundup_power2_divisions:4", Torch211, 1100 * 1024, 5 << 18}, // 1 MiB / 4
		{"roundup_power2_divisions:4", Torch211, 4 * mib, 4 * mib},
		{list, Torch211, 1<<20 + 1, 5 << 18}, // below the first entry: its divisor
		{list, Torch211, 5 * mib, 5 * mib},   // unnamed between: none
		{list, Torch211, 9 * mib, 12 * mib},  // 8 MiB / 2
		{list, Torch26, 9 * mib, 9 * mib},    // 2.6: > takes the last entry, too
		{list, Torch211, 33 * mib, 33 * mib}, // > is 1
	} {
		s, err := ParseSettings(c.conf, c.v)
		assert.NoError(t, err)
		assert.Equal(t, s.Round(c.n), c.want, "%s, version %d: round(%d)", c.conf, c.v, c.n)
	}
}

func TestSettingsTaken(t *testing.T) {
	divisors := [16]uint64{0, 4}
	for _, c := range []struct {
		conf string
		v    Version
		want func(*Settings)
	}{
		{"pinned_max_round_threshold_mb:64,pinned_max_cached_size_mb:512,pinned_free_catch_all:True", Torch213, func(*Settings) {}},
		{"max_non_split_rounding_mb:20", Torch211, func(s *Settings) { s.MaxNonSplitRounding = 20 * mib }},
		{"roundup_power2_divisions:[1:0,2:4]", Torch26, func(s *Settings) { s.Roundup = divisors }},
	} {
		want := DefaultSettings()
		c.want(&want)
		got, err := ParseSettings(c.conf, c.v)
		assert.That(t, err == nil, "%q: %v", c.conf, err)
		diff := cmp.Diff(want, got)
		assert.That(t, diff == "", "%q: %s", c.conf, diff)
	}
}

// Known to torch, but not modeled: the error does not say that torch would refuse it.
func TestReservesAreNotModeled(t *testing.T) {
	for _, conf := range []string{"expandable_segments_reserve:0.5", "expandable_segments_reserve_by_class:[serving:0.25,load:40G]"} {
		_, err := ParseSettings("expandable_segments:True,"+conf, Torch213)
		want := fmt.Sprintf("allocator setting %q: reservations of other sizes are not modeled", conf)
		assert.That(t, err != nil && err.Error() == want, "%v, want %s", err, want)
	}
}

func TestSettingsRefused(t *testing.T) {
	for _, c := range []struct {
		conf string
		v    Version
	}{
		{"max_split_size_mb:20", Torch26}, {"max_non_split_rounding_mb:20", Torch26}, {"roundup_power2_divisions:[0:4]", Torch211}, {"max_split_size_mb:19", Torch211}, {"garbage_collection_threshold:1", Torch211},
		{"roundup_power2_divisions:3", Torch211}, {"roundup_power2_divisions:[1:4", Torch211}, {"expandable_segments:yes", Torch211},
		{"large_segment_size_mb:40", Torch26}, {"large_segment_size_mb:10", Torch211}, {"no_such_key:1", Torch211},
		{"large_segment_size_mb:64,max_split_size_mb:32", Torch211}, {"max_split_size_mb", Torch211}, {"]", Torch211},
	} {
		s, err := ParseSettings(c.conf, c.v)
		assert.That(t, err != nil, "%q is taken: %+v", c.conf, s)
	}
}

// A card that is full gives what is free back, and the request is not sought again.
func TestRetry(t *testing.T) {
	a, c := allocator(t, "", Torch211, 100*mib)
	keep := malloc(t, a, 30*mib, 0)
	a.Free(malloc(t, a, 60*mib, 0))
	malloc(t, a, 70*mib, 1)
	stats := a.Stats()
	assert.That(t, stats.Retries == 1 && stats.Reserved == (Level{100 * mib, 100 * mib}) && c.used == 100*mib && stats.DeviceFrees == 1,
		"%+v, card %d", stats, c.used)
	a.Free(keep)
	_, err := a.Malloc(80*mib, 1)
	stats = a.Stats()
	assert.That(t, errors.Is(err, ErrOutOfMemory) && stats.Reserved.Now == 70*mib, "80 of 100 MiB: %v, %+v", err, stats)
}

// In a scope the free of a shared block waits for the end of the scope; what was recorded in
// it is no reason to wait any longer.
func TestDeferredFree(t *testing.T) {
	a, _ := allocator(t, "", Torch211, 1<<40)
	inside, outside := malloc(t, a, 20*mib, 0), malloc(t, a, 20*mib, 0)
	a.RecordStream(outside, 8)
	a.BeginPool(PoolID{0, 1}, func(uint64) bool { return true })
	a.RecordStream(inside, 7)
	for _, b := range []*Block{inside, outside} {
		assert.That(t, a.Free(b) && b.State() == Waiting, "a free in a scope is not deferred")
	}
	assert.NoError(t, a.EndPool(PoolID{0, 1}))
	malloc(t, a, 1, 0)
	assert.That(t, inside.State() == Free && outside.State() == Waiting && slices.Equal(a.Pending(), []*Block{outside}),
		"states %d, %d", inside.State(), outside.State())
}

func TestPrivatePool(t *testing.T) {
	a, _ := allocator(t, "", Torch211, 1<<40)
	free := malloc(t, a, 20*mib, 0)
	at := free.Addr()
	a.Free(free)
	id := PoolID{0, 1}
	a.BeginPool(id, func(stream uint64) bool { return stream == 3 })
	if b := malloc(t, a, 20*mib, 0); b.Addr() != at {
		t.Error("a scope that does not accept the stream took its request")
	}
	b := malloc(t, a, 20*mib, 3)
	assert.That(t, a.EndPool(id) == nil, "the scope was not open")
	a.Free(b)
	reserved := a.Stats().Reserved.Now
	a.EmptyCache()
	assert.That(t, a.Stats().Reserved.Now == reserved, "a pool in use was released")
	assert.That(t, a.ReleasePool(id) == nil && a.ReleasePool(id) != nil && a.EndPool(id) != nil, "ends of the pool")
	a.EmptyCache()
	assert.Equal(t, a.Stats().Reserved.Now, reserved-20*mib)
}

func TestFractionOfOne(t *testing.T) {
	for v, limited := range map[Version]bool{Torch26: true, Torch211: false} {
		a := NewAllocator(AllocatorOptions{Settings: DefaultSettings(), Version: v, Total: 100 * mib, Fraction: 1}, &testCard{size: 200 * mib})
		_, err := a.Malloc(150*mib, 0)
		assert.That(t, (err != nil) == limited, "version %d: %v", v, err)
	}
}

// checkLayout demands what holds of every state: blocks tile segments, idle neighbours of one
// kind do not exist, the orders hold exactly the idle blocks, and the sums are those of blocks.
func checkLayout(t interface {
	Helper()
	Fatalf(string, ...any)
}, a *Allocator) {
	t.Helper()
	var reserved, active, allocated, requested uint64
	orders := map[*Block]bool{}
	pools := []*pool{a.small, a.large}
	for _, p := range a.private {
		pools = append(pools, p.small, p.large)
	}
	for _, p := range pools {
		for _, b := range append(p.free.Items(), p.unmapped.Items()...) {
			orders[b] = true
		}
	}
	for _, s := range a.Segments() {
		at := s.Addr
		for i, b := range s.Blocks {
			assert.Must(t, b.addr == at && b.size != 0 && b.size%unit == 0, "block at %#x of %d bytes, where %#x comes next", b.addr, b.size, at)
			at += b.size
			assert.Must(t, orders[b] == b.idle(), "block at %#x: idle %v, in an order %v", b.addr, b.idle(), orders[b])
			delete(orders, b)
			assert.Must(t, i <= 0 || !b.idle() || !s.Blocks[i-1].idle() || b.mapped != s.Blocks[i-1].mapped, "idle neighbours at %#x", b.addr)
			if b.mapped {
				reserved += b.size
			}
			switch b.State() {
			case Allocated:
				allocated += b.size
				active += b.size
				requested += b.requested
			case Waiting:
				active += b.size
				requested += b.requested
			}
		}
		assert.Must(t, at == s.Addr+s.Size, "segment at %#x: blocks end at %#x", s.Addr, at)
	}
	got := [...]uint64{a.stats.Reserved.Now, a.stats.Active.Now, a.stats.Allocated.Now, a.stats.Requested.Now}
	want := [...]uint64{reserved, active, allocated, requested}
	assert.Must(t, got == want && len(orders) <= 0, "sums %v, blocks say %v; %d idle blocks in no segment", got, want, len(orders))
}

func TestRandomOperations(t *testing.T) {
	confs := []string{"", "expandable_segments:True", "max_split_size_mb:32,roundup_power2_divisions:4", "garbage_collection_threshold:0.4"}
	rapid.Check(t, func(t *rapid.T) {
		v := rapid.SampledFrom([]Version{Torch26, Torch211, Torch213}).Draw(t, "version")
		settings, err := ParseSettings(rapid.SampledFrom(confs).Draw(t, "settings"), v)
		assert.NoError(t, err)
		c := &testCard{size: 300 * mib}
		a := NewAllocator(AllocatorOptions{Settings: settings, Version: v, Total: c.size, Fraction: rapid.SampledFrom([]float64{0, 0.8}).Draw(t, "fraction")}, c)
		var live, pending []*Block
		scopes := 0
		t.Repeat(map[string]func(*rapid.T){
			"malloc": func(t *rapid.T) {
				n := rapid.Uint64Range(1, 1<<rapid.IntRange(4, 26).Draw(t, "log")).Draw(t, "bytes")
				if b, err := a.Malloc(n, rapid.Uint64Range(0, 2).Draw(t, "stream")); err == nil {
					live = append(live, b)
				}
			},
			"free": func(t *rapid.T) {
				if len(live) == 0 {
					t.Skip()
				}
				i := rapid.IntRange(0, len(live)-1).Draw(t, "block")
				if rapid.Bool().Draw(t, "shared") {
					a.RecordStream(live[i], rapid.Uint64Range(0, 2).Draw(t, "user"))
				}
				if a.Free(live[i]) {
					pending = append(pending, live[i])
				}
				live = slices.Delete(live, i, i+1)
			},
			"complete": func(t *rapid.T) {
				for _, b := range pending {
					a.Complete(b)
				}
				pending = nil
			},
			"empty": func(t *rapid.T) {
				if err := a.EmptyCache(); (err != nil) != (v == Torch26 && scopes > 0) {
					t.Fatal(err)
				}
			},
			"scope": func(t *rapid.T) {
				if scopes > 0 {
					scopes--
					assert.Must(t, a.EndPool(PoolID{0, 1}) == nil && a.ReleasePool(PoolID{0, 1}) == nil, "scope")
					return
				}
				scopes++
				a.BeginPool(PoolID{0, 1}, func(stream uint64) bool { return stream == 1 })
			},
			"": func(t *rapid.T) {
				checkLayout(t, a)
				assert.Must(t, c.used == a.stats.Reserved.Now, "the card has %d bytes in use, the allocator %d", c.used, a.stats.Reserved.Now)
			},
		})
	})
}
