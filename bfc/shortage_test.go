package bfc

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/memprof/memprof/trace/tracetest/assert"
)

// shortDevice is a small device, and an allocator on it.
type shortDevice struct {
	*testing.T
	random *rand.Rand
	device *Device
	heap   *Allocator
	live   []uint64
}

const shortPage = 4096

func newShortDevice(t *testing.T, seed uint64) *shortDevice {
	d := &shortDevice{T: t, random: rand.New(rand.NewPCG(seed, 0))}
	d.device = NewDevice(DeviceOptions{
		VMM: true, Granularity: shortPage, Physical: shortPage * (1 + d.random.Uint64N(40)),
		Reservation: shortPage * []uint64{0, 0, 8, 24}[d.random.IntN(4)],
	})
	options := Options{
		Limit: NoLimit, Growth: []Growth{Double, Needed, Pages}[d.random.IntN(3)],
		Split: []Split{SplitClassic, SplitAlways}[d.random.IntN(2)],
	}
	d.heap = mustNew(t, options, d.device)
	return d
}

// free frees a random block.
func (d *shortDevice) free() {
	at := d.random.IntN(len(d.live))
	mustFree(d.T, d.heap, d.live[at])
	d.live = append(d.live[:at], d.live[at+1:]...)
}

// shorten does what an owner does when a request has failed: it frees all slack and unmaps all free pages.
func (d *shortDevice) shorten() {
	d.heap.Shortage()
	for _, addr := range d.live {
		before, _ := d.heap.Find(addr)
		after, err := d.heap.Shrink(addr)
		if slack := before.Size - roundUp(before.Requested, Granule); slack == 0 {
			if !errors.Is(err, ErrNotInUse) {
				d.Fatalf("shrink of a block without slack: %v", err)
			}
		} else if err != nil || after.Size != before.Size-slack || after.Addr != addr || after.ID != before.ID {
			d.Fatalf("shrink of %+v: %+v, %v", before, after, err)
		}
	}
	d.heap.UnmapFree(NoLimit)
}

// touched returns the pages that the blocks touch.
func (d *shortDevice) touched() map[uint64]bool {
	pages := map[uint64]bool{}
	for _, addr := range d.live {
		block, _ := d.heap.Find(addr)
		for page := addr / shortPage; page*shortPage < addr+block.Size; page++ {
			pages[page] = true
		}
	}
	return pages
}

// fewest returns how many pages a block has to touch that no other touches, at the best of all places: any
// granule of a free chunk, or behind the last one.
func (d *shortDevice) fewest(size uint64) uint64 {
	taken := d.touched()
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

// run makes random requests and frees, and counts those that were served and refused after a failure.
func (d *shortDevice) run(seed uint64, served, refused *int) {
	most := uint64(1) << (8 + d.random.IntN(8)) // largest request
	for range 1 + d.random.IntN(120) {
		if len(d.live) > 0 && d.random.IntN(3) == 0 {
			d.free()
			continue
		}
		size := 1 + d.random.Uint64N(most)
		block, ok := d.heap.Alloc(size)
		if !ok {
			d.shorten()
			need := uint64(len(d.touched())) + d.fewest(roundUp(size, Granule))
			block, ok = d.heap.Alloc(size)
			for !ok && d.heap.UnmapFree(NoLimit) > 0 { // it grew, and that did not suffice
				block, ok = d.heap.Alloc(size)
			}
			if ok != (need*shortPage <= d.device.options.Physical) {
				d.Fatalf("seed %d: a request of %d bytes: %v, where %d pages are needed of %d", seed, size, ok, need, d.device.options.Physical/shortPage)
			}
			*map[bool]*int{true: served, false: refused}[ok]++
		}
		if ok {
			d.live = append(d.live, block.Addr)
		}
		if ok && d.heap.InShortage() && block.Size != roundUp(size, Granule) {
			d.Fatalf("seed %d: %d bytes for a request of %d in a shortage", seed, block.Size, size)
		}
	}
}

// TestShortageToThePage makes random requests on small devices. In a shortage, with no free page mapped, a
// request fails only where the pages that blocks touch, with as few as possible for its own, exceed
// the device.
func TestShortageToThePage(t *testing.T) {
	var served, refused int
	for seed := range uint64(6000) {
		newShortDevice(t, seed).run(seed, &served, &refused)
	}
	assert.That(t, served >= 1000 && refused >= 1000, "%d requests were served after a failure, and %d refused; want many of both", served, refused)
}
