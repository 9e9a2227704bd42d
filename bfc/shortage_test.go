package bfc

import (
	"errors"
	"testing"

	"pgregory.net/rapid"
)

// shortDevice is a small device, and an allocator on it.
type shortDevice struct {
	device *Device
	heap   *Allocator
	live   []uint64
}

const shortPage = 4096

func newShortDevice(t *rapid.T) *shortDevice {
	d := &shortDevice{}
	d.device = NewDevice(DeviceOptions{
		VMM: true, Granularity: shortPage, Physical: shortPage * rapid.Uint64Range(1, 40).Draw(t, "pages"),
		Reservation: shortPage * rapid.SampledFrom([]uint64{0, 0, 8, 24}).Draw(t, "reserved pages"),
	})
	options := Options{
		Limit: NoLimit, Growth: rapid.SampledFrom([]Growth{Double, Needed, Step}).Draw(t, "growth"), Step: 5 * shortPage,
		Split: rapid.SampledFrom([]Split{SplitClassic, SplitAlways}).Draw(t, "split"),
	}
	var err error
	if d.heap, err = New(options, d.device); err != nil {
		t.Fatal(err)
	}
	return d
}

// free frees a random block.
func (d *shortDevice) free(t *rapid.T) {
	at := rapid.IntRange(0, len(d.live)-1).Draw(t, "block")
	if _, err := d.heap.Free(d.live[at]); err != nil {
		t.Fatal(err)
	}
	d.live = append(d.live[:at], d.live[at+1:]...)
}

// shorten does what an owner does when a request has failed: it frees all slack and unmaps all free pages.
func (d *shortDevice) shorten(t *rapid.T) {
	d.heap.Shortage()
	for _, addr := range d.live {
		before, _ := d.heap.Find(addr)
		after, err := d.heap.Shrink(addr)
		if slack := before.Size - roundUp(before.Requested, Granule); slack == 0 {
			if !errors.Is(err, ErrNotInUse) {
				t.Fatalf("shrink of a block without slack: %v", err)
			}
		} else if err != nil || after.Size != before.Size-slack || after.Addr != addr || after.ID != before.ID {
			t.Fatalf("shrink of %+v: %+v, %v", before, after, err)
		}
	}
	d.heap.UnmapFree(NoLimit)
}

// touched returns how many pages the blocks touch.
func (d *shortDevice) touched() uint64 {
	pages := map[uint64]bool{}
	for _, addr := range d.live {
		block, _ := d.heap.Find(addr)
		for page := addr / shortPage; page*shortPage < addr+block.Size; page++ {
			pages[page] = true
		}
	}
	return uint64(len(pages))
}

// fewest returns how many pages a block has to touch that no other touches, at the best of all places: any
// granule of a free chunk, or behind the last one.
func (d *shortDevice) fewest(size uint64) uint64 {
	taken := map[uint64]bool{}
	for _, addr := range d.live {
		block, _ := d.heap.Find(addr)
		for page := addr / shortPage; page*shortPage < addr+block.Size; page++ {
			taken[page] = true
		}
	}
	fewest := (size + shortPage - 1) / shortPage
	try := func(from, to uint64) {
		for at := from; at+size <= to; at += Granule {
			lack := uint64(0)
			for page := at / shortPage; page*shortPage < at+size; page++ {
				if !taken[page] {
					lack++
				}
			}
			fewest = min(fewest, lack)
		}
	}
	for _, r := range d.heap.Regions() {
		for i, c := range r.Chunks {
			end := r.Addr + c.Offset + c.Size
			if last := i == len(r.Chunks)-1; last && c.Free() && end == d.device.next && d.heap.chunks[d.heap.lastGrown].addr == end {
				end = min(end+size, d.device.end) // the region can grow
			}
			if c.Free() {
				try(r.Addr+c.Offset, end)
			}
		}
	}
	return fewest
}

// TestPropertyShortage makes random requests on small devices. In a shortage, with no free page mapped, a
// request fails only where the pages that blocks touch, with as few as possible for its own, exceed
// the device.
func TestPropertyShortage(t *testing.T) {
	outcomes := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		d := newShortDevice(t)
		for range rapid.IntRange(1, 120).Draw(t, "steps") {
			if len(d.live) > 0 && rapid.IntRange(0, 2).Draw(t, "free") == 0 {
				d.free(t)
				continue
			}
			size := rapid.Uint64Range(1, 6*shortPage).Draw(t, "size")
			block, ok := d.heap.Alloc(size)
			if !ok {
				d.shorten(t)
				need := d.touched() + d.fewest(roundUp(size, Granule))
				block, ok = d.heap.Alloc(size)
				for !ok && d.heap.UnmapFree(NoLimit) > 0 { // it grew, and that did not suffice
					block, ok = d.heap.Alloc(size)
				}
				if ok != (need*shortPage <= d.device.options.Physical) {
					t.Fatalf("a request of %d bytes: %v, where %d pages are needed of %d", size, ok, need, d.device.options.Physical/shortPage)
				}
				outcomes[map[bool]string{true: "served", false: "refused"}[ok]]++
			}
			if ok {
				d.live = append(d.live, block.Addr)
			}
			if ok && d.heap.InShortage() && block.Size != roundUp(size, Granule) {
				t.Fatalf("%d bytes for a request of %d in a shortage", block.Size, size)
			}
		}
	})
	if outcomes["served"] == 0 || outcomes["refused"] == 0 {
		t.Errorf("requests after a failed one: %v; want both", outcomes)
	}
}
