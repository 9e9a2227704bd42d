package graphs

import (
	"fmt"

	"github.com/memprof/memprof/analysis/torchalloc"
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

// Torch is the model of PyTorch's caching allocator (package torchalloc), without settings, on a device that refuses nothing: then a private
// pool keeps its segments as the default one does.
func Torch() Heap {
	const memory = 1 << 46
	a := torchalloc.NewAllocator(torchalloc.AllocatorOptions{Settings: torchalloc.DefaultSettings(), Version: torchalloc.Torch211, Total: memory}, torchalloc.NewDriver(memory))
	return &torchHeap{a, map[uint64]*torchalloc.Block{}}
}

type torchHeap struct {
	a    *torchalloc.Allocator
	live map[uint64]*torchalloc.Block
}

func (h *torchHeap) Alloc(bytes int64) uint64 {
	b, err := h.a.Malloc(uint64(bytes), 0)
	if err != nil {
		panic(fmt.Sprintf("graphs: %v", err))
	}
	h.live[b.Addr()] = b
	return b.Addr()
}

func (h *torchHeap) Free(place uint64) {
	h.a.Free(h.live[place])
	delete(h.live, place)
}

func (h *torchHeap) Mapped() int64 { return int64(h.a.Stats().Reserved.Now) }
