package bfc

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// planHeap is an allocator that makes plans, whatever its other options are.
type planHeap struct {
	*pair
	requests []uint64 // of each iteration of a job
	behind   []int    // how many requests later each is freed
}

func drawPlanHeap(t *rapid.T) *planHeap {
	options, device := drawOptions(t)
	options.Placement = PlacementPlanned
	if rapid.Bool().Draw(t, "high") { // regions, and what a plan puts behind them, end near 2^64
		device.Base = -uint64(rapid.IntRange(1, 512).Draw(t, "MiB below")) * mib &^ (device.Granularity - 1)
		options.Limit = NoLimit
	}
	if options.Growth == None {
		options.Limit = min(options.Limit, 256*mib)
	}
	h := &planHeap{pair: &pair{aDevice: NewDevice(device)}}
	var err error
	if h.a, err = New(options, h.aDevice); err != nil {
		t.Fatal(err)
	}
	for range rapid.IntRange(1, 30).Draw(t, "requests") {
		h.requests = append(h.requests, rapid.Uint64Range(1, 1<<rapid.IntRange(8, 24).Draw(t, "order")).Draw(t, "size"))
		h.behind = append(h.behind, rapid.IntRange(1, 40).Draw(t, "behind"))
	}
	return h
}

func (h *planHeap) tryAlloc(t *rapid.T, size uint64) (Block, bool) {
	before := h.a.Stats()
	block, ok := h.a.Alloc(size)
	if after := h.a.Stats(); !ok && (after.NumAllocs != before.NumAllocs || after.BytesInUse != before.BytesInUse) {
		t.Fatalf("a request that failed changed %+v to %+v", before, after)
	}
	return block, ok
}

func (h *planHeap) mustFree(t *rapid.T, block Block) {
	if got, err := h.a.Free(block.Addr); err != nil || got != block {
		t.Fatalf("Free = %+v %v, want %+v", got, err, block)
	}
}

// job runs some iterations of the same requests, with a check behind each.
func (h *planHeap) job(t *rapid.T) {
	due := map[int][]Block{}
	at := 0
	for range rapid.IntRange(1, 6).Draw(t, "iterations") {
		for i, size := range h.requests {
			for _, block := range due[at] {
				h.mustFree(t, block)
			}
			delete(due, at)
			if block, ok := h.tryAlloc(t, size); ok {
				later := at + h.behind[i]
				due[later] = append(due[later], block)
			}
			at++
		}
		h.a.EndIteration()
		if rapid.Bool().Draw(t, "trimmed") {
			h.a.Trim()
		}
		h.check(t)
	}
	for ; len(due) > 0; at++ {
		for _, block := range due[at] {
			h.mustFree(t, block)
		}
		delete(due, at)
	}
}

func (h *planHeap) alloc(t *rapid.T) {
	if block, ok := h.tryAlloc(t, rapid.Uint64Range(0, 1<<rapid.IntRange(0, 26).Draw(t, "order")).Draw(t, "size")); ok {
		h.live = append(h.live, block)
	}
}

func (h *planHeap) free(t *rapid.T) {
	if len(h.live) == 0 {
		t.Skip("nothing to free")
	}
	i := rapid.IntRange(0, len(h.live)-1).Draw(t, "block")
	h.mustFree(t, h.live[i])
	h.live = append(h.live[:i], h.live[i+1:]...)
}

// checkpoint frees all blocks, and restores some of them that are mapped.
func (h *planHeap) checkpoint(t *rapid.T) {
	for _, block := range h.live {
		h.mustFree(t, block)
	}
	var restored []Block
	for _, block := range h.live {
		if again, err := h.a.Restore(block.Addr, block.Size, block.Requested); err == nil {
			restored = append(restored, again)
		}
	}
	h.live = restored
}

func (h *planHeap) check(t *rapid.T) {
	if got := h.a.Stats().Reserved; got != h.aDevice.used || got > h.a.options.Limit {
		t.Fatalf("reserved %d, device says %d, limit %d", got, h.aDevice.used, h.a.options.Limit)
	}
	regions := h.a.Regions()
	if err := invariants(h.a, regions); err != nil {
		t.Fatal(err)
	}
	if err := mappedAndEnding(h.a, regions); err != nil {
		t.Fatal(err)
	}
}

// mappedAndEnding says what of the blocks is not mapped, and where the order of ends is wrong.
func mappedAndEnding(a *Allocator, regions []Region) error {
	at := a.planner.ends.first(Granule, 0)
	for _, r := range regions {
		for _, c := range r.Chunks {
			from, to := r.Addr+c.Offset, r.Addr+c.Offset+c.Size
			if !c.Free() {
				if lost := a.unmapped.within(from, to); lost > 0 {
					return fmt.Errorf("%d bytes of the block at %#x are not mapped", lost, from)
				}
				continue
			}
			if at == none || a.chunks[at].addr != from || a.chunks[at].size != c.Size {
				return fmt.Errorf("the free chunk of %d at %#x is not the next by its end", c.Size, from)
			}
			at = a.planner.ends.after(at)
		}
	}
	if at != none {
		return fmt.Errorf("the chunk at %#x is not free", a.chunks[at].addr)
	}
	return nil
}

// Whatever happens between iterations that are planned, blocks lie apart, all that is in use is
// mapped, and the accounts are right.
func TestPlansKeepTheHeapWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := drawPlanHeap(t)
		t.Repeat(map[string]func(*rapid.T){
			"job":        h.job,
			"job again":  h.job,
			"alloc":      h.alloc,
			"free":       h.free,
			"checkpoint": h.checkpoint,
			"collect":    func(*rapid.T) { h.a.CollectGarbage() },
			"iterate":    func(*rapid.T) { h.a.EndIteration() },
			"trim":       func(*rapid.T) { h.a.Trim() },
			"unmap free": func(t *rapid.T) { h.a.UnmapFree(rapid.Uint64Range(0, 32*mib).Draw(t, "bytes")) },
			"":           h.check,
		})
	})
}
