package bfc

import (
	"fmt"
	"math/bits"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/memprof/memprof/trace/tracetest/assert"
)

// pair is the Allocator and the naive one, each on a device of its own that refuses the
// same calls.
type pair struct {
	a               *Allocator
	n               *naive
	aDevice, device *Device
	live            []Block
}

func drawOptions(t *rapid.T) (Options, DeviceOptions) {
	options := Options{
		Limit:             rapid.Uint64Range(0, 256*mib).Draw(t, "limit"),
		Growth:            rapid.SampledFrom([]Growth{Double, Needed, Whole}).Draw(t, "growth"),
		Split:             rapid.SampledFrom([]Split{SplitClassic, SplitAlways}).Draw(t, "split"),
		GarbageCollection: rapid.Bool().Draw(t, "gc"),
	}
	if rapid.Bool().Draw(t, "has headroom") {
		options.Headroom = rapid.Uint64Range(1, 64*mib).Draw(t, "headroom")
	}
	if rapid.Bool().Draw(t, "has fraction") {
		options.FragmentationFraction = 1 / float64(rapid.IntRange(2, 1<<16).Draw(t, "1/fraction"))
	}
	seed := rapid.Uint64().Draw(t, "refusals")
	often := uint64(rapid.SampledFrom([]int{0, 0, 3, 10}).Draw(t, "refusals in 16"))
	refused := func(call int) bool {
		high, _ := bits.Mul64((seed^uint64(call))*0x9e3779b97f4a7c15, 16)
		return high < often
	}
	device := DeviceOptions{
		VMM:         rapid.Bool().Draw(t, "vmm"),
		Granularity: 1 << rapid.IntRange(8, 21).Draw(t, "granularity"),
		Physical:    rapid.Uint64Range(1, 300*mib).Draw(t, "physical"),
		RefuseGrow:  func(call int, _ uint64) bool { return refused(call) },
		RefuseMap:   func(call int, _, _ uint64) bool { return refused(-call) },
		RefuseUnmap: func(call int, _, _ uint64) bool { return refused(call << 20) },
	}
	if rapid.Bool().Draw(t, "noted") {
		options.Trim.When = TrimIteration
		device.Granularity = max(device.Granularity, 64<<10)
	}
	if rapid.Bool().Draw(t, "has reservations") {
		device.Reservation = rapid.Uint64Range(mib, 64*mib).Draw(t, "reservation")
	}
	return options, device
}

func drawPair(t *rapid.T) *pair {
	options, device := drawOptions(t)
	p := &pair{aDevice: NewDevice(device), device: NewDevice(device)}
	a, err := New(options, p.aDevice)
	assert.NoError(t, err)
	p.a, p.n = a, newNaive(options, p.device)
	return p
}

func (p *pair) alloc(t *rapid.T) {
	order := rapid.IntRange(0, 26).Draw(t, "order")
	size := rapid.Uint64Range(0, 1<<order).Draw(t, "size")
	if len(p.live) > 0 && rapid.Bool().Draw(t, "again") { // equal sizes make ties
		size = p.live[0].Requested
	}
	got, ok := p.a.Alloc(size)
	want, wantOK := p.n.alloc(size)
	assert.Must(t, got == want && ok == wantOK, "Alloc(%d) = %+v %v, want %+v %v", size, got, ok, want, wantOK)
	if ok {
		p.live = append(p.live, got)
	}
}

func (p *pair) free(t *rapid.T) {
	if len(p.live) == 0 {
		t.Skip("nothing to free")
	}
	i := rapid.IntRange(0, len(p.live)-1).Draw(t, "block")
	block := p.live[i]
	p.live[i] = p.live[len(p.live)-1]
	p.live = p.live[:len(p.live)-1]
	if got, err := p.a.Free(block.Addr); err != nil || got != block {
		t.Fatalf("Free = %+v %v, want %+v", got, err, block)
	}
	p.n.free(block.Addr)
}

// unmap unmaps pages in a free chunk, or tries to near any.
func (p *pair) unmap(t *rapid.T) {
	if len(p.n.spans) == 0 {
		t.Skip("nothing to unmap")
	}
	unit := p.device.Granularity()
	s := p.n.spans[rapid.IntRange(0, len(p.n.spans)-1).Draw(t, "chunk")]
	for _, free := range p.n.spans {
		if free.id == 0 && free.size > max(unit, s.size) {
			s = free
		}
	}
	granules := s.size / unit
	skip := rapid.Uint64Range(0, granules).Draw(t, "granules before")
	addr := (s.addr+unit-1)/unit*unit + skip*unit
	bytes := unit * rapid.Uint64Range(1, max(1, granules-skip)).Draw(t, "granules")
	err := p.a.Unmap(addr, bytes)
	if want := p.n.unmap(addr, bytes); (err == nil) != want {
		t.Fatalf("Unmap(%#x, %d) = %v, want ok %v", addr, bytes, err, want)
	}
	if err == nil {
		p.aDevice.Unmap(addr, bytes)
		p.device.Unmap(addr, bytes)
	}
}

// restore makes part of a chunk a block, or tries to where that cannot be.
func (p *pair) restore(t *rapid.T) {
	if len(p.n.spans) == 0 {
		t.Skip("nothing to restore in")
	}
	s := p.n.spans[rapid.IntRange(0, len(p.n.spans)-1).Draw(t, "chunk")]
	skip := rapid.Uint64Range(0, s.size/256).Draw(t, "granules before")
	size := 256 * rapid.Uint64Range(0, s.size/256-skip+1).Draw(t, "granules")
	addr := s.addr + 256*skip + rapid.SampledFrom([]uint64{0, 0, 0, 0, 1}).Draw(t, "misaligned")
	requested := rapid.Uint64Range(0, size+1).Draw(t, "requested")
	got, err := p.a.Restore(addr, size, requested)
	want, ok := p.n.putBack(addr, size, requested)
	assert.Must(t, got == want && (err == nil) == ok, "Restore(%#x, %d, %d) = %+v %v, want %+v %v", addr, size, requested, got, err, want, ok)
	if ok {
		p.live = append(p.live, got)
	}
}

func (p *pair) collect(t *rapid.T) {
	if got, want := p.a.CollectGarbage(), p.n.collect(); got != want {
		t.Fatalf("CollectGarbage = %d, want %d", got, want)
	}
}

func (p *pair) iterate(*rapid.T) {
	p.a.EndIteration()
	p.n.iteration++
}

func (p *pair) trim(*rapid.T) {
	p.a.Trim()
	p.n.trim()
}

func (p *pair) unmapFree(t *rapid.T) {
	bytes := rapid.Uint64Range(0, 32*mib).Draw(t, "bytes")
	p.a.UnmapFree(bytes)
	p.n.unmapFree(bytes)
}

func (p *pair) check(t *rapid.T) {
	regions := p.a.Regions()
	if diff := cmp.Diff(p.n.listing(), regions); diff != "" {
		t.Fatalf("regions (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(p.n.stats, p.a.Stats()); diff != "" {
		t.Fatalf("stats (-want +got):\n%s", diff)
	}
	lost := uint64(len(p.n.gone)) * p.device.Granularity()
	if p.a.unmapped.bytes != lost || p.aDevice.unmaps != p.device.unmaps || p.aDevice.maps != p.device.maps {
		t.Fatalf("%d bytes unmapped, %d taken, %d mapped; want %d, %d, %d", p.a.unmapped.bytes, p.aDevice.unmaps, p.aDevice.maps, lost, p.device.unmaps, p.device.maps)
	}
	if p.a.NextRegion() != p.n.next {
		t.Fatalf("next region %d, want %d", p.a.NextRegion(), p.n.next)
	}
	if got := p.a.Stats().Reserved; got != p.aDevice.used || got > p.a.options.Limit {
		t.Fatalf("reserved %d, device says %d, limit %d", got, p.aDevice.used, p.a.options.Limit)
	}
	assert.NoError(t, invariants(p.a, regions))
}

// invariants are those of the package comment and those of the inner structures.
func invariants(a *Allocator, regions []Region) error {
	var free, inUse, largest, live uint64
	for i, r := range regions {
		if i > 0 && r.Addr < regions[i-1].Addr+regions[i-1].Size {
			return fmt.Errorf("region %d overlaps the one before", i)
		}
		end := uint64(0)
		for j, c := range r.Chunks {
			if c.Offset != end || c.Size == 0 || c.Size%Granule != 0 {
				return fmt.Errorf("region %d: chunk of %d at %d, after %d", i, c.Size, c.Offset, end)
			}
			end += c.Size
			if !c.Free() {
				inUse += c.Size
				live++
				if block, ok := a.Find(r.Addr + c.Offset); !ok || block.ID != c.ID || c.Requested > c.Size {
					return fmt.Errorf("region %d: found %+v %v for %+v", i, block, ok, c)
				}
				continue
			}
			free += c.Size
			largest = max(largest, c.Size)
			if j > 0 && r.Chunks[j-1].Free() {
				return fmt.Errorf("region %d: free chunks touch at %d", i, c.Offset)
			}
		}
		if end != r.Size {
			return fmt.Errorf("region %d: %d of %d bytes covered", i, end, r.Size)
		}
	}
	switch {
	case inUse != a.Stats().BytesInUse || free != a.FreeBytes() || largest != a.LargestFree():
		return fmt.Errorf("%d in use, %d free, largest %d; said to be %+v %d %d", inUse, free, largest, a.Stats(), a.FreeBytes(), a.LargestFree())
	case uint64(a.live.count) != live:
		return fmt.Errorf("%d chunks in use, %d in the table", live, a.live.count)
	}
	if err := insideAgrees(a, regions); err != nil {
		return err
	}
	return freeOrder(a, free)
}

// freeOrder walks the free chunks in their order, which must have all of them.
func freeOrder(a *Allocator, bytes uint64) error {
	var last freeNode
	for index := a.free.first(Granule, 0); index != none; index = a.free.after(index) {
		c, node := &a.chunks[index], a.free.nodes[index]
		if c.id != freeID || node.size != c.size || node.addr != c.addr {
			return fmt.Errorf("free chunk %d is %+v in the order, and %+v", index, node, *c)
		}
		if last.size > node.size || last.size == node.size && last.addr >= node.addr {
			return fmt.Errorf("%d at %#x comes after %d at %#x", node.size, node.addr, last.size, last.addr)
		}
		last = node
		bytes -= node.size
	}
	if bytes != 0 {
		return fmt.Errorf("%d free bytes are not in the order", bytes)
	}
	return nil
}

// Every placement, growth, mapping and counter is that of the naive allocator.
func TestAgreesWithNaive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawPair(t)
		t.Repeat(map[string]func(*rapid.T){
			"alloc":      p.alloc,
			"alloc more": p.alloc,
			"free":       p.free,
			"unmap":      p.unmap,
			"restore":    p.restore,
			"collect":    p.collect,
			"iterate":    p.iterate,
			"again":      p.iterate,
			"trim":       p.trim,
			"unmap free": p.unmapFree,
			"":           p.check,
		})
	})
}
