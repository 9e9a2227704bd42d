package twin_test

import (
	"bufio"
	"encoding/binary"
	"math/rand/v2"

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
	lags     bool   // work goes on after frees; else it is over at once
	over     uint64 // so far it is known to be over
	many     int    // blocks to keep alive
	palette  []uint64
	greatest float64 // log2 of the largest size
	noted    bool    // the allocator notes pages
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
		d.oneHeap(n)
		for range 2 {
			d.oneHeap(d.random.IntN(20)) // short jobs that repeat themselves
		}
		operations -= n
	}
	d.crowd(4_000)
	d.ops.Flush()
}

// crowd runs iterations in each of which so many blocks are live together.
func (d *driver) crowd(blocks int) {
	d.newHeap()
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
func (d *driver) oneHeap(n int) {
	d.newHeap()
	for range n {
		d.step()
	}
	for d.oneIn(2) {
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
		d.record(didTrim, d.heap.Trim())
	case opUnmapFree:
		d.record(didTrim, d.heap.UnmapFree(a))
	case opShortage:
		d.heap.Shortage()
	case opMovable:
		for _, r := range d.heap.Movable(a) {
			d.record(didMovable, r.Addr, r.Bytes, d.heap.Frees(), d.heap.Touched())
			if err := d.heap.Unmap(r.Addr, r.Bytes); err != nil {
				panic(err)
			}
			d.memory.Unmap(r.Addr, r.Bytes)
		}
	case opWant:
		d.want(a, b)
	case opOver:
		d.heap.Over(a)
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
	}
}

func (d *driver) want(bytes, released uint64) {
	want := d.streams.Want(bytes, released, d.heap.Stats().Reserved, d.heap.Touched())
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
	d.record(didStats, s.BytesInUse, s.Reserved, d.heap.LargestFree(), d.heap.NextRegion(), s.Reserved-s.BytesInUse)
	clear := uint64(0)
	for _, r := range d.heap.Idle() {
		clear += d.clearIn(r)
	}
	d.record(didClear, clear, d.heap.Frees(), uint64(len(d.live)))
}

// clearIn returns how many bytes of an idle range nobody can read any more. Where pages are noted each is asked;
// elsewhere a free chunk is clear as a whole, and asking for each of its pages would take minutes: it may have 2^28.
func (d *driver) clearIn(r bfc.Range) (clear uint64) {
	for at, end := r.Addr, r.Addr+r.Bytes; at < end; {
		next := at + d.memory.granularity
		if !d.noted {
			next = max(next, min(end, d.freeEnd(at)&^(d.memory.granularity-1)))
		}
		if d.heap.IsClear(at, next-at) {
			clear += next - at
		}
		at = next
	}
	return clear
}

// freeEnd returns where the free chunk ends that has an address.
func (d *driver) freeEnd(addr uint64) uint64 {
	for _, r := range d.heap.Regions() {
		for _, c := range r.Chunks {
			if start := r.Addr + c.Offset; c.Free() && start <= addr && addr < start+c.Size {
				return start + c.Size
			}
		}
	}
	return 0
}

func (d *driver) walk() {
	for _, r := range d.heap.Regions() {
		for _, c := range r.Chunks {
			d.record(didChunk, r.Addr+c.Offset, c.Size, c.Requested, truth(c.Free()), truth(c.Offset == 0))
		}
	}
}
