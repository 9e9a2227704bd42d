package twin_test

import (
	"math"

	"github.com/memprof/memprof/bfc"
)

// logUniform returns a size whose logarithm is uniform.
func (d *driver) logUniform(least, greatest float64) uint64 {
	return uint64(math.Exp2(least + d.random.Float64()*(greatest-least)))
}

func (d *driver) oneIn(n int) bool { return d.random.IntN(n) == 0 }

// maybe returns value half of the time, else 0.
func (d *driver) maybe(value uint64) uint64 {
	if d.oneIn(2) {
		return value
	}
	return 0
}

// plenty is more memory than any heap here uses.
const plenty = 1 << 62

// options draws the parameters of an allocator, and what the memory of a heap can do.
func (d *driver) options() (options bfc.Options, device bfc.DeviceOptions) {
	options = bfc.Options{
		Limit:    d.logUniform([]float64{20, 20, 30}[d.random.IntN(3)], 36) + d.maybe(uint64(d.random.IntN(4096))),
		Headroom: d.maybe(d.logUniform(16, 33)),
		Growth:   []bfc.Growth{bfc.Double, bfc.Needed, bfc.Pages}[d.random.IntN(3)],
		Split:    bfc.Split(d.random.IntN(2)),
	}
	if d.oneIn(3) {
		options.Limit = bfc.NoLimit
	}
	if d.oneIn(12) { // so little that 0.9 of it rounds up to itself
		options.Limit = 256 + d.random.Uint64N(4096)
	}
	device = bfc.DeviceOptions{
		VMM:         !d.oneIn(3),
		Granularity: []uint64{256, 4096, 65536, 2 << 20, 2 << 20, 32 << 20}[d.random.IntN(6)],
		Physical:    d.maybe(d.logUniform(24, 36)),
		Reservation: d.maybe(d.logUniform(24, 35)),
	}
	if d.oneIn(2) {
		options.Trim.When = bfc.TrimIteration
	}
	if options.Growth == bfc.Pages || options.Trim.When == bfc.TrimIteration { // pages have state: a block must not have millions
		device.Granularity = max(device.Granularity, 1<<20)
		options.Limit = min(options.Limit, 1<<32)
	}
	if device.Physical == 0 {
		device.Physical = plenty
	}
	if d.oneIn(4) { // preset compact, with memory that refuses nothing
		options.Growth, options.Trim.When, device.VMM = bfc.Pages, bfc.TrimIteration, true
		options.Limit, device.Physical, device.Reservation = 1<<32, 1<<33, 0
		device.Granularity = max(device.Granularity, 1<<20)
	}
	return options, device
}

func (d *driver) newHeap() {
	options, device := d.options()
	refuseGrow, refuseMap, refuseUnmap := d.maybe(1+d.random.Uint64N(12)), d.maybe(2+d.random.Uint64N(9)), d.maybe(1+d.random.Uint64N(5))
	m := &memory{granularity: device.Granularity, record: d.record}
	device.RefuseGrow = func(call int, bytes uint64) bool {
		granted := (bytes + device.Granularity - 1) &^ (device.Granularity - 1)
		return refuseGrow != 0 && uint64(call)%refuseGrow == 0 || granted < bytes || granted > m.free()
	}
	device.RefuseMap = func(call int, _, bytes uint64) bool {
		return refuseMap != 0 && uint64(call)%refuseMap == 0 || bytes > m.free()
	}
	device.RefuseUnmap = func(call int, _, _ uint64) bool { return refuseUnmap != 0 && uint64(call)%refuseUnmap == 0 }
	m.Device = bfc.NewDevice(device)
	d.streams = bfc.Streams{}
	heap, err := bfc.New(options, m)
	if err != nil {
		panic(err)
	}
	d.heap, d.memory, d.live = heap, m, d.live[:0]
	d.noted = options.Growth == bfc.Pages || options.Trim.When == bfc.TrimIteration
	d.many = int(d.logUniform(1, 12))
	d.greatest = []float64{14, 24, 30, 32}[d.random.IntN(4)]
	d.palette = d.palette[:0]
	for range 6 {
		d.palette = append(d.palette, d.logUniform(0, d.greatest))
	}
	d.send(options.Limit, options.Headroom, uint64(options.Growth), truth(device.VMM), device.Granularity, device.Physical,
		device.Reservation, refuseGrow, refuseMap, truth(options.Split == bfc.SplitAlways), truth(options.Trim.When == bfc.TrimIteration), refuseUnmap)
	d.lags, d.over = d.oneIn(2), 0
	if d.lags {
		d.do(opOver, 0, 0)
	} else {
		d.do(opOver, math.MaxUint64, 0)
	}
}

func (d *driver) size() uint64 {
	if d.oneIn(100) {
		return d.freeSize()
	}
	switch d.random.IntN(40) {
	case 0:
		return []uint64{0, 1, 256, 257, math.MaxUint64, math.MaxUint64 - 255, math.MaxUint64 - 256}[d.random.IntN(7)]
	case 1, 2, 3:
		return uint64(1)<<d.random.IntN(33) + d.random.Uint64N(3) - 1
	case 4, 5, 6, 7, 8, 9, 10, 11, 12, 13:
		return d.palette[d.random.IntN(len(d.palette))]
	}
	return d.logUniform(0, d.greatest)
}

// freeSize returns the size of a free chunk, or a granule more or less.
func (d *driver) freeSize() uint64 {
	for _, r := range d.heap.Regions() {
		for _, c := range r.Chunks {
			if c.Free() && d.oneIn(4) {
				return c.Size + 256*d.random.Uint64N(3) - 256
			}
		}
	}
	return 256
}

func (d *driver) someAddress() uint64 {
	regions := d.heap.Regions()
	if len(regions) == 0 {
		return 4096
	}
	r := regions[d.random.IntN(len(regions))]
	c := r.Chunks[d.random.IntN(len(r.Chunks))]
	return r.Addr + c.Offset + d.maybe(d.random.Uint64N(c.Size+1))
}

// unknownAddress returns an address at which no block starts.
func (d *driver) unknownAddress() uint64 {
	addr := d.someAddress()
	if _, ok := d.heap.Find(addr); ok {
		return addr + 1
	}
	return addr
}
