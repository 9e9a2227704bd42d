package twin_test

import (
	"bufio"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/memprof/memprof/bfc"
)

// driver generates operations, sends them to the C twin, runs them in Go, and sends the records of
// that to be compared.
type driver struct {
	random   *rand.Rand
	ops      *bufio.Writer
	expected chan<- []record
	done     <-chan struct{}
	batch    []record
	tally    map[string]int // of outcomes
	broken   bool           // the C twin no longer reads operations

	heap     *bfc.Allocator
	streams  bfc.Streams
	memory   *memory
	live     []uint64
	many     int // blocks to keep alive
	palette  []uint64
	greatest float64 // log2 of the largest size
}

func newDriver(seed uint64, ops *bufio.Writer, expected chan<- []record, done <-chan struct{}) *driver {
	return &driver{random: rand.New(rand.NewPCG(seed, 1)), ops: ops, expected: expected, done: done, tally: map[string]int{}}
}

func (d *driver) run(operations int) {
	for operations > 0 && !d.broken {
		n := 500 + d.random.IntN(6000)
		if d.oneIn(50) {
			n = 100_000
		}
		n = min(n, operations)
		d.oneHeap(n, d.oneIn(3))
		for range 4 { // short jobs with plans
			d.oneHeap(d.random.IntN(20), true)
		}
		operations -= n
	}
	d.crowd(4_000)
	d.crowd(11_600) // more pairs than are planned
	d.ops.Flush()
}

// crowd runs iterations in each of which so many blocks are live together.
func (d *driver) crowd(blocks int) {
	d.newHeap(true)
	for range 4 {
		for i := range blocks {
			d.do(opAlloc, 256*(1+uint64(i)%7), 0)
		}
		for len(d.live) > 0 {
			d.do(opFree, uint64(len(d.live))-1, 0)
		}
		d.do(opIteration, 0, 0)
	}
	d.do(opStats, 0, 0)
	d.send(opEnd, 0, 0)
	d.flush()
}

// oneHeap runs n operations in a new heap, and then iterations that repeat themselves.
func (d *driver) oneHeap(n int, planned bool) {
	d.newHeap(planned)
	for range n {
		d.step()
	}
	for planned && !d.oneIn(4) || d.oneIn(5) {
		d.repeat()
	}
	d.do(opStats, 0, 0)
	d.do(opWalk, 0, 0)
	d.send(opEnd, 0, 0)
	d.flush()
}

func (d *driver) send(words ...uint64) {
	for _, w := range words {
		var raw [8]byte
		binary.LittleEndian.PutUint64(raw[:], w)
		if _, err := d.ops.Write(raw[:]); err != nil {
			d.broken = true
		}
	}
}

func (d *driver) record(kind uint64, values ...uint64) {
	r := record{kind}
	copy(r[1:], values)
	d.tally[r.outcome()]++
	if d.batch = append(d.batch, r); len(d.batch) >= 4096 {
		d.flush()
	}
}

// flush sends the expected records, and then the operations. In the other order both sides could wait
// for each other: the C twin for a reader of its records, while the driver waits for the pipe to have
// room for operations.
func (d *driver) flush() {
	select {
	case d.expected <- d.batch:
	case <-d.done:
		d.broken = true
	}
	d.batch = make([]record, 0, 4096)
	if d.ops.Flush() != nil {
		d.broken = true
	}
}

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

func (d *driver) newHeap(planned bool) {
	options := bfc.Options{
		Limit:             d.logUniform([]float64{20, 20, 30}[d.random.IntN(3)], 36) + d.maybe(uint64(d.random.IntN(4096))),
		Headroom:          d.maybe(d.logUniform(16, 33)),
		Growth:            bfc.Growth(d.random.IntN(5)),
		Step:              d.logUniform(0, 34),
		Split:             []bfc.Split{bfc.SplitClassic, bfc.SplitClassic, bfc.SplitAlways, bfc.Split(d.logUniform(0, 28))}[d.random.IntN(4)],
		GarbageCollection: d.oneIn(2),
	}
	if options.Growth != bfc.None && d.oneIn(3) {
		options.Limit = bfc.NoLimit
	}
	if d.oneIn(12) { // so little that 0.9 of it rounds up to itself
		options.Limit = 256 + d.random.Uint64N(4096)
	}
	if d.oneIn(4) {
		options.FragmentationFraction = d.random.Float64() / 100
	}
	device := bfc.DeviceOptions{
		VMM:         !d.oneIn(3),
		Granularity: []uint64{256, 4096, 65536, 2 << 20, 2 << 20, 32 << 20}[d.random.IntN(6)],
		Physical:    d.maybe(d.logUniform(24, 36)),
		Reservation: d.maybe(d.logUniform(24, 35)),
	}
	if planned {
		options.Placement = bfc.PlacementPlanned
	}
	if d.oneIn(2) {
		options.Trim.When = bfc.TrimIteration
		// Uses are noted by page: a block must not have millions.
		device.Granularity = max(device.Granularity, 1<<20)
		options.Limit = min(options.Limit, 1<<32)
	}
	if options.Growth == bfc.Pages { // pages have state: a block must not have millions
		device.Granularity = max(device.Granularity, 1<<20)
		options.Limit = min(options.Limit, 1<<32)
	}
	if device.Physical == 0 {
		device.Physical = plenty
	}
	if planned && d.oneIn(2) { // preset compact, with memory that refuses nothing
		options.Growth, options.Trim.When, device.VMM = []bfc.Growth{bfc.Needed, bfc.Pages}[d.random.IntN(2)], bfc.TrimIteration, true
		options.Limit, device.Physical, device.Reservation = 1<<32, 1<<33, 0
		device.Granularity = max(device.Granularity, 1<<20)
	}
	refuseGrow, refuseMap, refuseUnmap := d.maybe(1+d.random.Uint64N(12)), d.maybe(2+d.random.Uint64N(9)), d.maybe(1+d.random.Uint64N(5))
	m := &memory{granularity: device.Granularity, record: d.record}
	device.RefuseGrow = func(call int, bytes uint64) bool {
		granted := (bytes + device.Granularity - 1) &^ (device.Granularity - 1)
		return refuseGrow != 0 && uint64(call)%refuseGrow == 0 || granted < bytes || granted > m.spare()
	}
	device.RefuseMap = func(call int, _, bytes uint64) bool {
		return refuseMap != 0 && uint64(call)%refuseMap == 0 || bytes > m.spare()
	}
	device.RefuseUnmap = func(call int, _, _ uint64) bool { return refuseUnmap != 0 && uint64(call)%refuseUnmap == 0 }
	m.Device = bfc.NewDevice(device)
	d.streams = bfc.Streams{}
	heap, err := bfc.New(options, m)
	if err != nil {
		panic(err)
	}
	d.heap, d.memory, d.live = heap, m, d.live[:0]
	d.many = int(d.logUniform(1, 12))
	d.greatest = []float64{14, 24, 30, 32}[d.random.IntN(4)]
	d.palette = d.palette[:0]
	for range 6 {
		d.palette = append(d.palette, d.logUniform(0, d.greatest))
	}
	d.send(options.Limit, options.Headroom, uint64(options.Growth), truth(options.GarbageCollection),
		math.Float64bits(options.FragmentationFraction), truth(device.VMM), device.Granularity, device.Physical,
		device.Reservation, refuseGrow, refuseMap, options.Step, uint64(options.Split), truth(options.Trim.When != bfc.TrimNever), refuseUnmap, truth(options.Placement == bfc.PlacementPlanned))
}

func (d *driver) step() {
	switch {
	case d.oneIn(400):
		d.do(opStats, 0, 0)
	case d.oneIn(2000):
		d.do(opClear, 0, 0)
	case d.oneIn(300):
		d.unmap()
	case d.oneIn(100):
		d.do(opIteration, 0, 0)
	case d.oneIn(200):
		d.do(opTrim, 0, 0)
	case d.oneIn(500):
		d.do(opUnmapFree, d.logUniform(8, 34), 0)
	case d.oneIn(400):
		d.restore()
	case d.oneIn(1000):
		d.do(opHeld, d.maybe(d.logUniform(20, 36)), 0)
	case d.oneIn(1500):
		d.do(opContaining, d.someAddress(), 0)
	case d.oneIn(700):
		d.excess()
	case d.oneIn(1000):
		d.do(opShortage, 0, 0)
	case d.oneIn(300):
		d.do(opShrink, d.someAddress(), 0)
	case d.oneIn(1000):
		d.shrinkAll()
	case d.oneIn(400):
		d.do(opSpare, d.random.Uint64N(64), d.heap.Frees()-min(d.heap.Frees(), d.maybe(d.random.Uint64N(40))))
	case d.oneIn(400):
		d.do(opWant, d.logUniform(20, 34), d.maybe(d.logUniform(20, 34)))
	case d.oneIn(400):
		d.do(opRegister+d.random.Uint64N(2), d.someAddress(), d.maybe(d.logUniform(8, 28)))
	case d.oneIn(500):
		d.do(opFreeAddress, d.unknownAddress(), 0)
	case len(d.live) > 0 && (len(d.live) >= d.many || d.oneIn(3)):
		d.do(opFree, d.random.Uint64N(uint64(len(d.live))), 0)
	default:
		d.do(opAlloc, d.size(), 0)
	}
	if d.oneIn(2000) { // free all blocks in random order, then request much, so that idle regions are released
		for len(d.live) > 0 {
			d.do(opFree, d.random.Uint64N(uint64(len(d.live))), 0)
		}
		for range 4 {
			d.do(opAlloc, d.logUniform(16, 34), 0)
		}
	}
}

// repeat runs iterations that make the same requests and free their blocks at the same positions, in the
// same iteration or the next, sometimes with other operations between: jobs for which plans are made.
func (d *driver) repeat() {
	type step struct {
		size  uint64 // of a request; 0 for a free
		of    int    // the request whose block is freed
		older bool   // that of the iteration before
	}
	greatest := 8 + d.random.IntN(20) // log2 of the largest size
	var steps []step
	var open []int                                               // requests whose blocks this iteration frees
	requests := []int{60, 60, 60, 60, 60, 500}[d.random.IntN(6)] // so many live together are sorted in another way
	for i := range 1 + d.random.IntN(requests) {
		steps = append(steps, step{size: 1 + d.random.Uint64N(1<<(greatest-d.random.IntN(8)))})
		if d.oneIn(3) {
			steps = slices.Insert(steps, d.random.IntN(len(steps)+1), step{of: i, older: true})
		} else {
			open = append(open, i)
		}
		for len(open) > 0 && d.oneIn(2) {
			last := d.random.IntN(len(open))
			steps = append(steps, step{of: open[last]})
			open = append(open[:last], open[last+1:]...)
		}
	}
	others, stays := []int{8, 30, 500, 500}[d.random.IntN(4)], []int{2, 5, 100}[d.random.IntN(3)]
	var blocks, older map[int]uint64
	for range 3 + d.random.IntN(16) {
		blocks, older = map[int]uint64{}, blocks
		request := 0
		for _, s := range steps {
			if d.oneIn(others) {
				d.step()
			}
			of := blocks
			if s.older {
				of = older
			}
			if s.size > 0 {
				before := len(d.live)
				if d.do(opAlloc, s.size, 0); len(d.live) > before {
					blocks[request] = d.live[before]
				}
				request++
			} else if at := slices.Index(d.live, of[s.of]); at >= 0 {
				d.do(opFree, uint64(at), 0)
				delete(of, s.of)
			}
		}
		if d.oneIn(stays) { // a block that stays, an obstacle for the plan
			d.do(opAlloc, 1+d.random.Uint64N(1<<greatest), 0)
		}
		d.do(opIteration, 0, 0)
		if !d.oneIn(4) {
			d.do(opTrim, 0, 0)
		}
	}
}

// excess frees a chunk and requests about 128 MiB less: where splitting begins.
func (d *driver) excess() {
	size := 128<<20 + d.logUniform(8, 27)&^255
	d.do(opAlloc, size+128<<20+256*d.random.Uint64N(3)-256, 0)
	last := uint64(len(d.live)) - 1
	d.do(opAlloc, 256, 0)
	if last < uint64(len(d.live)) {
		d.do(opFree, last, 0)
	}
	d.do(opAlloc, size, 0)
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

// unknownAddress returns an address at which no block starts.
func (d *driver) unknownAddress() uint64 {
	addr := d.someAddress()
	if _, ok := d.heap.Find(addr); ok {
		return addr + 1
	}
	return addr
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

// unmap unmaps pages of a few free chunks; sometimes a range that cannot be unmapped.
func (d *driver) unmap() {
	unit := d.memory.granularity
	for _, r := range d.heap.Regions() {
		for _, c := range r.Chunks {
			from := (r.Addr + c.Offset + unit - 1) &^ (unit - 1)
			to := (r.Addr + c.Offset + c.Size) &^ (unit - 1)
			if !c.Free() || to <= from || d.oneIn(2) {
				continue
			}
			granules := (to - from) / unit
			first := d.random.Uint64N(granules)
			count := 1 + d.random.Uint64N(granules-first)
			d.do(opUnmap, from+first*unit, count*unit+d.maybe(truth(d.oneIn(50))*unit))
		}
	}
}

// shrinkAll frees the slack of all blocks, some of which have none.
func (d *driver) shrinkAll() {
	for _, r := range d.heap.Regions() {
		for _, c := range r.Chunks {
			if !c.Free() && (c.Size > c.Requested+255 || d.oneIn(20)) {
				d.do(opShrink, r.Addr+c.Offset, 0)
			}
		}
	}
}

// restore makes part of a chunk a block at its place; some are in use, misaligned or too long.
func (d *driver) restore() {
	regions := d.heap.Regions()
	if len(regions) == 0 {
		return
	}
	r := regions[d.random.IntN(len(regions))]
	c := r.Chunks[d.random.IntN(len(r.Chunks))]
	first := d.random.Uint64N(c.Size / 256)
	count := 1 + d.random.Uint64N(c.Size/256-first)
	d.do(opRestore, r.Addr+c.Offset+256*first+truth(d.oneIn(50)), 256*count+256*truth(d.oneIn(50)))
}

// do sends an operation, runs it, and records what it did.
func (d *driver) do(kind, a, b uint64) {
	d.send(kind, a, b)
	switch kind {
	case opAlloc:
		d.alloc(a)
	case opFree:
		addr := d.live[a]
		last := len(d.live) - 1
		d.live[a] = d.live[last]
		d.live = d.live[:last]
		d.free(addr)
	case opFreeAddress:
		d.free(a)
	case opUnmap:
		ok := d.heap.Unmap(a, b) == nil
		d.record(didUnmap, truth(ok), a, b)
		if ok {
			d.memory.Unmap(a, b)
		}
	case opRestore:
		block, err := d.heap.Restore(a, b, b-1)
		if err == nil {
			d.live = append(d.live, block.Addr)
		}
		d.record(didRestore, truth(err == nil), block.Addr, block.Size, block.Requested)
	case opIteration:
		d.heap.EndIteration()
		d.streams.EndIteration(d.heap.Stats().Reserved)
	case opTrim:
		given, mapped := d.heap.Trim()
		d.record(didTrim, given, mapped)
	case opUnmapFree:
		d.record(didTrim, d.heap.UnmapFree(a), 0)
	case opShortage:
		d.heap.Shortage()
	case opSpare:
		for _, r := range d.heap.Spare(a, b) {
			d.record(didSpare, r.Addr, r.Bytes, d.heap.Frees(), d.heap.Touched())
			if err := d.heap.Unmap(r.Addr, r.Bytes); err != nil {
				panic(err)
			}
			d.memory.Unmap(r.Addr, r.Bytes)
		}
	case opWant:
		d.want(a, b)
	case opRegister:
		d.heap.Register(a, b)
	case opDeregister:
		d.heap.Deregister(a, b)
	case opShrink:
		block, err := d.heap.Shrink(a)
		d.record(didShrink, truth(err == nil), block.Addr, block.Size, block.Requested)
	case opHeld:
		d.memory.held = a
	case opContaining:
		d.containing(a)
	case opStats:
		d.stats()
	case opWalk:
		d.walk()
	case opClear:
		d.heap.ClearPeaks()
	}
}

func (d *driver) want(bytes, paid uint64) {
	want := d.streams.Want(bytes, paid, d.heap.Stats().Reserved, d.heap.Touched())
	d.record(didWant, want)
	d.streams.Took(want / 16)
}

func (d *driver) alloc(size uint64) {
	block, ok := d.heap.Alloc(size)
	if ok {
		d.live = append(d.live, block.Addr)
	}
	d.record(didAlloc, truth(ok), block.Addr, block.Size, block.Requested, d.heap.NextRegion())
}

func (d *driver) free(addr uint64) {
	block, err := d.heap.Free(addr)
	d.record(didFree, truth(err == nil), block.Addr, block.Size, block.Requested, 1)
}

func (d *driver) containing(addr uint64) {
	for _, r := range d.heap.Regions() {
		for _, c := range r.Chunks {
			if start := r.Addr + c.Offset; !c.Free() && start <= addr && addr < start+c.Size {
				d.record(didContaining, 1, start, c.Size, c.Requested)
				return
			}
		}
	}
	d.record(didContaining)
}

func (d *driver) stats() {
	s := d.heap.Stats()
	d.record(didStats, s.NumAllocs, s.BytesInUse, s.PeakBytesInUse, s.LargestAlloc, s.Reserved)
	d.record(didStatsMore, s.PeakReserved, d.heap.LargestFree(), d.heap.NextRegion(), s.Reserved-s.BytesInUse, uint64(len(d.live)))
}

func (d *driver) walk() {
	for _, r := range d.heap.Regions() {
		for _, c := range r.Chunks {
			d.record(didChunk, r.Addr+c.Offset, c.Size, c.Requested, truth(c.Free()), truth(c.Offset == 0))
		}
	}
}
