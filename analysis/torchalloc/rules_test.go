package torchalloc

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/memprof/memprof/trace/tracetest/assert"
)

// With large_segment_size_mb L is the segment below 10 MiB, the page of large expandable
// segments, and nothing else: requests from 10 MiB on have their own segment.
func TestLargeSegment(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := rapid.Uint64Range(11, 200).Draw(t, "L") * mib
		n := rapid.Uint64Range(1, 300*mib).Draw(t, "bytes")
		for _, expandable := range []bool{false, true} {
			s := DefaultSettings()
			s.LargeSegment, s.Expandable = l, expandable
			c := &testCard{size: 1 << 40}
			a := NewAllocator(AllocatorOptions{Settings: s, Version: Torch211, Total: c.size}, c)
			if _, err := a.Malloc(n, 0); err != nil {
				t.Fatal(err)
			}
			size := (n + 511) / 512 * 512
			var want uint64
			switch {
			case size <= mib:
				want = 2 * mib
			case expandable:
				want = (size + l - 1) / l * l
			case size < 10*mib:
				want = l
			default:
				want = (size + 2*mib - 1) / (2 * mib) * 2 * mib
			}
			got := a.Stats().Reserved.Now
			assert.Must(t, got == want, "%d bytes, L %d, expandable %v: %d reserved, want %d", n, l, expandable, got, want)
		}
	})
}

// Of two open scopes that accept a stream, torch 2.6 uses the older, later ones the newer. A scope
// that does not accept it is passed over.
func TestNestedScopes(t *testing.T) {
	all := func(uint64) bool { return true }
	for v, want := range map[Version]uint64{Torch26: 1, Torch211: 2, Torch213: 2} {
		a, _ := allocator(t, "", v, 1<<40)
		a.BeginPool(PoolID{0, 9}, func(uint64) bool { return false })
		a.BeginPool(PoolID{0, 1}, all)
		a.BeginPool(PoolID{0, 2}, all)
		a.BeginPool(PoolID{0, 8}, func(uint64) bool { return false })
		b := malloc(t, a, 1, 0)
		got := b.pool.owner.id
		assert.That(t, got == (PoolID{0, want}), "version %d: pool %v, want 0.%d", v, got, want)
	}
}

// In a scope a release takes unused private pools only; torch 2.6 refuses it.
func TestReleaseInScope(t *testing.T) {
	for _, v := range []Version{Torch26, Torch211} {
		a, _ := allocator(t, "", v, 1<<40)
		a.Free(malloc(t, a, 30*mib, 0))
		for id, bytes := range map[PoolID]uint64{{0, 1}: 50 * mib, {0, 2}: 70 * mib} {
			a.BeginPool(id, func(uint64) bool { return true })
			a.Free(malloc(t, a, bytes, 0))
			assert.NoError(t, a.EndPool(id))
		}
		assert.NoError(t, a.ReleasePool(PoolID{0, 1}))
		a.BeginPool(PoolID{0, 3}, func(uint64) bool { return true })
		err := a.EmptyCache()
		want := uint64(100 * mib) // the default pool, and the pool in use
		if v == Torch26 {
			want = 150 * mib
		}
		got := a.Stats().Reserved.Now
		assert.That(t, got == want && (err != nil) == (v == Torch26), "version %d: %d MiB reserved, want %d; %v", v, got/mib, want/mib, err)
	}
}

// Oversize blocks go from the largest down while their sum is less than the greater of the request
// and S; those of other streams and those below S stay.
func TestOversizeLoop(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const s = 32 * mib
		settings := DefaultSettings()
		settings.MaxSplit = s
		c := &testCard{size: 1 << 40}
		a := NewAllocator(AllocatorOptions{Settings: settings, Version: Torch211, Total: c.size}, c)
		var sizes []uint64
		var held []*Block
		for _, mibs := range rapid.SliceOfN(rapid.Uint64Range(6, 60), 1, 8).Draw(t, "blocks") {
			stream := rapid.Uint64Range(0, 1).Draw(t, "stream")
			b, err := a.Malloc(2*mibs*mib, stream)
			assert.NoError(t, err)
			if held = append(held, b); stream == 0 && b.Size() >= s {
				sizes = append(sizes, b.Size())
			}
		}
		for _, b := range held {
			a.Free(b)
		}
		slices.Sort(sizes)
		size := rapid.Uint64Range(6, 150).Draw(t, "request") * 2 * mib
		want, reserved := max(size, s), a.Stats().Reserved.Now
		var sum uint64
		if at, _ := slices.BinarySearch(sizes, want); at < len(sizes) {
			sum = sizes[at]
		} else {
			for _, bytes := range slices.Backward(sizes) {
				if sum < want {
					sum += bytes
				}
			}
		}
		got := a.releaseOversize(a.large, size, 0)
		assert.Must(t, got == (sum >= want), "of %v for %d: %v", sizes, want, got)
		if got := reserved - a.Stats().Reserved.Now; got != sum {
			t.Fatalf("of %v for %d: %d bytes released, want %d", sizes, want, got, sum)
		}
	})
}

// Garbage goes in rounds: each takes whole blocks of at least the mean age of those left, until
// the aim is met; the ages are those of the beginning.
func TestGarbageRounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		settings := DefaultSettings()
		settings.GarbageCollection = 0.25
		c := &testCard{size: 1 << 40}
		a := NewAllocator(AllocatorOptions{Settings: settings, Version: Torch26, Total: 2000 * mib, Fraction: 1}, c)
		var blocks []*Block
		for i := range rapid.IntRange(1, 12).Draw(t, "blocks") {
			b, err := a.Malloc(uint64(20+2*i)*mib, 0)
			assert.NoError(t, err)
			blocks = append(blocks, b)
		}
		ages := map[*Block]uint64{}
		for _, b := range blocks { // ascending sizes are the order of the pool
			a.Free(b)
			a.large.searches += rapid.Uint64Range(0, 9).Draw(t, "searches")
		}
		var total float64
		for _, b := range blocks {
			ages[b] = a.large.searches - b.since
			total += float64(ages[b])
		}
		reserved := a.Stats().Reserved.Now
		aim := int64(reserved) - 500*mib
		left := slices.Clone(blocks)
		for freed := aim > 0; freed && aim > 0 && len(left) > 0; {
			mean := total / float64(len(left))
			freed = false
			left = slices.DeleteFunc(left, func(b *Block) bool {
				old := float64(ages[b]) >= mean
				if old {
					freed = true
					total -= float64(ages[b])
					aim -= int64(b.size)
				}
				return old
			})
		}
		var want uint64
		for _, b := range left {
			want += b.size
		}
		a.collectGarbage()
		got := a.Stats().Reserved.Now
		assert.Must(t, got == want, "%d of %d bytes are left, want %d", got, reserved, want)
	})
}

// A request that no reservation holds leaves nothing behind: refused a million times, it must not be tried in a million of them.
func TestLargerThanAReservation(t *testing.T) {
	a, _ := allocator(t, "expandable_segments:True", Torch211, 100*mib)
	for _, mibs := range []uint64{121, 500} {
		_, err := a.Malloc(mibs*mib, 0)
		assert.Must(t, err != nil && len(a.Segments()) == 0, "%d MiB of 100: error %v, reservations %+v", mibs, err, a.Segments())
	}
}
