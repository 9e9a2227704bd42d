package bfc

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/memprof/memprof/trace/tracetest/assert"
)

// checkPages compares what growth Pages keeps with what follows from the blocks: which pages they touch, and
// that each mapped page has a frame of its own.
func checkPages(t *testing.T, a *Allocator) {
	t.Helper()
	owners, live := 0, uint64(0)
	for i := range a.regions {
		r := &a.regions[i]
		touched := make([]bool, len(r.pages))
		for index := a.chunks[r.wall].next; index != r.wall; index = a.chunks[index].next {
			if c := &a.chunks[index]; c.id > wallID {
				for k := a.pageOf(r, c.addr); k <= a.pageOf(r, c.addr+c.size-1); k++ {
					touched[k] = true
				}
			}
		}
		for k, is := range touched {
			at, addr := &r.pages[k], r.addr&^(a.granularity-1)+uint64(k)*a.granularity
			if is {
				live++
			}
			mapped := a.unmapped.within(addr, addr+a.granularity) == 0
			if at.live != is || at.listed || is && !mapped || mapped != a.pager.backs(at, addr) {
				t.Fatalf("page %#x: %+v, touched %t, mapped %t", addr, *at, is, mapped)
			}
			if mapped {
				owners++
			}
		}
	}
	for _, f := range a.pager.frames {
		if f.page != noPage {
			owners--
		}
	}
	if live != a.pager.live || owners != 0 {
		t.Fatalf("%d pages are live, counted %d; %d more pages are mapped than frames have an owner", live, a.pager.live, owners)
	}
}

// Where nothing is refused, no more pages are mapped than 1.02 times the most that blocks touched.
// TestSlackGrows: where pages move, each iteration adds a step of slack, up to mostSlack, and up to mostRepeated where as many blocks
// of as many bytes are handed out as in the iteration before.
func TestSlackGrows(t *testing.T) {
	for _, c := range []struct {
		name  string
		bytes func(i int) uint64
		want  uint64
	}{
		{"repeated", func(int) uint64 { return 1 << 20 }, 40},
		{"other bytes", func(i int) uint64 { return 1<<20 + 256*uint64(i%2) }, 16},
	} {
		device := NewDevice(DeviceOptions{VMM: true, Granularity: 2 << 20})
		a := mustNew(t, Options{Limit: NoLimit, Growth: Pages, Split: SplitAlways}, device)
		for i := range 100 {
			b, ok := a.Alloc(c.bytes(i))
			assert.Must(t, ok, "%s: iteration %d: refused", c.name, i)
			mustFree(t, a, b.Addr)
			a.pager.moved = 1
			a.EndIteration()
		}
		assert.Equal(t, a.pager.slack, c.want, "%s: steps of slack", c.name)
	}
}

// TestPagesInvariants runs random operations, with a memory that refuses calls and with one that does not.
func TestPagesInvariants(t *testing.T) {
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 3))
		refuses := seed%3 == 0
		refuse := func(int, uint64, uint64) bool { return refuses && random.IntN(6) == 0 }
		device := NewDevice(DeviceOptions{
			VMM: true, Granularity: 64 << 10, Reservation: []uint64{0, 8 * mib}[seed%2],
			RefuseMap: refuse, RefuseUnmap: refuse, RefuseGrow: func(call int, bytes uint64) bool { return refuse(call, 0, bytes) },
		})
		options := Options{Limit: NoLimit, Growth: Pages, Split: SplitAlways, GarbageCollection: seed%5 == 0}
		if seed%4 == 0 {
			options.Trim.When = TrimIteration
		}
		a := mustNew(t, options, device)
		var blocks []uint64
		most := uint64(0)
		for step := range 3000 {
			switch k := random.IntN(100); {
			case k < 2:
				a.EndIteration()
				a.Trim()
			case k < 3 && refuses:
				a.UnmapFree(random.Uint64N(4 * mib))
			case k < 4 && step > 2000:
				a.Shortage()
			case k < 52 || len(blocks) == 0:
				if b, ok := a.Alloc(1 + random.Uint64N(1<<(8+random.IntN(16)))); ok {
					blocks = append(blocks, b.Addr)
				}
			default:
				i := random.IntN(len(blocks))
				mustFree(t, a, blocks[i])
				blocks[i] = blocks[len(blocks)-1]
				blocks = blocks[:len(blocks)-1]
			}
			most = max(most, a.pager.live)
			if step%16 == 0 {
				checkPages(t, a)
			}
			mapped := a.stats.Reserved / a.granularity
			assert.Must(t, refuses || mapped <= most+most/25, "seed %d, step %d: %d pages are mapped, blocks touched %d at most", seed, step, mapped, most)
		}
	}
}

// TestPagesRefusesWhatCannotBe requests more than the limit, and more than the device has: nothing is unmapped for
// the first, and later requests take free pages from elsewhere as if there had been neither.
func TestPagesRefusesWhatCannotBe(t *testing.T) {
	device := NewDevice(DeviceOptions{VMM: true, Granularity: mib, Physical: 24 * mib})
	a := mustNew(t, Options{Limit: 32 * mib, Growth: Pages, Split: SplitAlways}, device)
	small, barrier := mustAlloc(t, a, 4*mib), mustAlloc(t, a, mib)
	mustFree(t, a, small.Addr)
	for _, size := range []uint64{33 * mib, 32 * mib, gib} {
		_, ok := a.Alloc(size)
		assert.Must(t, !ok, "%d MiB of 32 with 1 in use were granted", size/mib)
		assert.Must(t, device.unmaps == 0, "%d MiB: pages were unmapped for a request above the limit", size/mib)
	}
	_, ok := a.Alloc(30 * mib)
	assert.Must(t, !ok, "30 MiB of a device of 24 were granted")
	large := mustAlloc(t, a, 6*mib) // takes the four pages of small
	got := a.Stats().Reserved
	assert.That(t, got == 7*mib && a.pager.most == 7, "%d MiB are mapped, want 7; the most in use are %d pages", got/mib, a.pager.most)
	mustFree(t, a, large.Addr)
	mustFree(t, a, barrier.Addr)
	checkPages(t, a)
}

// TestPagesGetTheirFramesBack runs random requests. A page that a request maps gets the frame that it had last, if
// no block touched the page that has it: no other page of the request gets that frame, unless it had it, too. So
// an owner that keeps old mappings maps no page anew for which it has one.
func TestPagesGetTheirFramesBack(t *testing.T) {
	again := 0
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 4))
		a := mustNew(t, Options{Limit: NoLimit, Growth: Pages, Split: SplitAlways}, NewDevice(DeviceOptions{VMM: true, Granularity: 64 << 10}))
		var blocks []uint64
		for range 1500 {
			if random.IntN(100) < 48 && len(blocks) > 0 {
				i := random.IntN(len(blocks))
				mustFree(t, a, blocks[i])
				blocks[i] = blocks[len(blocks)-1]
				blocks = blocks[:len(blocks)-1]
				continue
			}
			backs := map[uint64]uint32{} // of unmapped pages
			for i := range a.regions {
				r := &a.regions[i]
				for k := range r.pages {
					if at, addr := &r.pages[k], r.addr+uint64(k)<<16; at.back > 0 && !a.pager.backs(at, addr) {
						backs[addr] = at.back
					}
				}
			}
			frames, end := slices.Clone(a.pager.frames), uint64(0)
			if len(a.regions) > 0 {
				end = a.regions[0].end()
			}
			b := mustAlloc(t, a, 1+random.Uint64N(1<<(8+random.IntN(16))))
			blocks = append(blocks, b.Addr)
			if b.Addr+b.Size > end { // a grant comes first, and can take any frame
				continue
			}
			for addr := b.Addr &^ (64<<10 - 1); addr < b.Addr+b.Size; addr += 64 << 10 {
				back, was := backs[addr]
				if !was {
					continue
				}
				now := a.pager.frames[back-1].page
				if now == addr {
					again++
				} else if now != frames[back-1].page && backs[now] != back {
					t.Fatalf("seed %d: page %#x is mapped, and %#x got its frame, which %#x had", seed, addr, now, frames[back-1].page)
				}
			}
		}
	}
	assert.That(t, again != 0, "no page got its frame back")
}

// TestPagesTakeWhatLacks has a device that is full below the most pages that blocks have touched at a time. A request
// of 6 pages unmaps 4 for what it is about to map beyond them, and is refused: 2 more are enough for its second
// attempt, with those 4.
func TestPagesTakeWhatLacks(t *testing.T) {
	full, reserved := uint64(gib), uint64(0)
	device := NewDevice(DeviceOptions{VMM: true, Granularity: mib, RefuseGrow: func(_ int, bytes uint64) bool { return reserved+bytes > full }})
	a := mustNew(t, Options{Limit: gib, Growth: Pages, Split: SplitAlways}, &reserving{device, &reserved})
	alloc := func(pages uint64) uint64 { return mustAlloc(t, a, pages*mib).Addr }
	first := alloc(5)
	alloc(1)
	second := alloc(4)
	alloc(1)
	for _, addr := range []uint64{first, second} {
		mustFree(t, a, addr)
	}
	device.Unmap(second, 2*mib)
	assert.NoError(t, a.Unmap(second, 2*mib))
	reserved, full = 9*mib, 10*mib
	alloc(6)
	got := a.Stats().Reserved
	assert.That(t, got == 9*mib && reserved == 9*mib, "%d MiB are mapped, counted %d, want 9", reserved/mib, got/mib)
	checkPages(t, a)
}

// reserving counts what a device has mapped.
type reserving struct {
	*Device
	bytes *uint64
}

func (r *reserving) Grow(bytes uint64) (addr, granted uint64, ok bool) {
	addr, granted, ok = r.Device.Grow(bytes)
	*r.bytes += granted
	return addr, granted, ok
}

func (r *reserving) TryUnmap(addr, bytes uint64) bool {
	ok := r.Device.TryUnmap(addr, bytes)
	if ok {
		*r.bytes -= bytes
	}
	return ok
}
