package graphs

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/memprof/memprof/bfc"
)

// BFC is memprof's allocator for private pools, on a device whose pages have granularity bytes. Only the growth
// and the split of policy count: a pool in use is not unmapped, and has no limit of its own. The model panics
// where package bfc returns an error.
func BFC(granularity int64, policy bfc.Options) Model {
	policy.Limit, policy.Headroom = bfc.NoLimit, 0
	return func() Heap {
		device := bfc.NewDevice(bfc.DeviceOptions{
			VMM: true, Granularity: uint64(granularity), RefuseUnmap: func(int, uint64, uint64) bool { return true },
		})
		a, err := bfc.New(policy, device)
		if err != nil {
			panic(fmt.Sprintf("graphs: %v", err))
		}
		return bfcHeap{a}
	}
}

type bfcHeap struct{ a *bfc.Allocator }

func (h bfcHeap) Alloc(bytes int64) uint64 {
	b, ok := h.a.Alloc(uint64(bytes))
	if !ok {
		panic(fmt.Sprintf("graphs: %d bytes were refused on an unlimited device", bytes))
	}
	return b.Addr
}

func (h bfcHeap) Free(place uint64) {
	if _, err := h.a.Free(place); err != nil {
		panic(fmt.Sprintf("graphs: %v", err))
	}
}

func (h bfcHeap) Mapped() int64 { return int64(h.a.Stats().Reserved) }

// Sizes of torch's caching allocator, in bytes.
const (
	torchRounding   = 512
	torchSmall      = 1 << 20  // the greatest request of the small pool
	torchSmallBlock = 2 << 20  // its segments
	torchLargeBlock = 20 << 20 // segments of the large pool
	torchLarge      = 10 << 20 // the least request with a segment of its own
	torchRoundLarge = 2 << 20  // unit to which such a request is rounded up
)

// Torch is torch's caching allocator for private pools.
func Torch() Heap { return &torchHeap{live: map[uint64]*torchBlock{}} }

// torchHeap has the free blocks of the small and the large pool, each ordered by size, then address. New segments
// get ascending addresses.
type torchHeap struct {
	free   [2][]*torchBlock
	live   map[uint64]*torchBlock
	end    uint64 // of the last segment
	mapped int64
}

// torchBlock is a block of a segment; prev and next are its neighbours there.
type torchBlock struct {
	addr, size uint64
	prev, next *torchBlock
	free       bool
	large      int // 1 in the large pool
}

func bySize(x, y *torchBlock) int {
	return cmp.Or(cmp.Compare(x.size, y.size), cmp.Compare(x.addr, y.addr))
}

func (h *torchHeap) Alloc(bytes int64) uint64 {
	size := roundUp(uint64(bytes), torchRounding)
	large := 0
	if size > torchSmall {
		large = 1
	}
	free := h.free[large]
	at, _ := slices.BinarySearchFunc(free, &torchBlock{size: size}, bySize)
	var b *torchBlock
	if at < len(free) {
		b = free[at]
		h.free[large] = slices.Delete(free, at, at+1)
	} else {
		b = h.segment(size, large)
	}
	b.free = false
	h.split(b, size)
	h.live[b.addr] = b
	return b.addr
}

// segment maps a new segment for size bytes and returns it as one block.
func (h *torchHeap) segment(size uint64, large int) *torchBlock {
	switch {
	case size <= torchSmall:
		size = torchSmallBlock
	case size < torchLarge:
		size = torchLargeBlock
	default:
		size = roundUp(size, torchRoundLarge)
	}
	b := &torchBlock{addr: h.end, size: size, large: large}
	h.end += size
	h.mapped += int64(size)
	return b
}

// split cuts a block after size bytes if the rest is large enough for a block.
func (h *torchHeap) split(b *torchBlock, size uint64) {
	rest := b.size - size
	if b.large == 1 && rest <= torchSmall || rest < torchRounding {
		return
	}
	upper := &torchBlock{addr: b.addr + size, size: rest, prev: b, next: b.next, large: b.large}
	if b.next != nil {
		b.next.prev = upper
	}
	b.size, b.next = size, upper
	h.put(upper)
}

func (h *torchHeap) put(b *torchBlock) {
	b.free = true
	at, _ := slices.BinarySearchFunc(h.free[b.large], b, bySize)
	h.free[b.large] = slices.Insert(h.free[b.large], at, b)
}

func (h *torchHeap) take(b *torchBlock) {
	at, _ := slices.BinarySearchFunc(h.free[b.large], b, bySize)
	h.free[b.large] = slices.Delete(h.free[b.large], at, at+1)
}

func (h *torchHeap) Free(place uint64) {
	b := h.live[place]
	delete(h.live, place)
	if next := b.next; next != nil && next.free {
		h.take(next)
		b.join(next)
	}
	if prev := b.prev; prev != nil && prev.free {
		h.take(prev)
		prev.join(b)
		b = prev
	}
	h.put(b)
}

// join adds the next block to b.
func (b *torchBlock) join(next *torchBlock) {
	b.size += next.size
	b.next = next.next
	if b.next != nil {
		b.next.prev = b
	}
}

func (h *torchHeap) Mapped() int64 { return h.mapped }

func roundUp(n, unit uint64) uint64 { return (n + unit - 1) / unit * unit }
