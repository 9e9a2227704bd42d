package torchalloc

import (
	"github.com/memprof/memprof/analysis/accounting"
	"github.com/memprof/memprof/trace"
)

// job is the recorded job under one settings.
type job struct {
	of       int // its number among the settings
	settings Settings
	version  Version
	totals   map[int32]uint64 // the replay's
	seed     uint64           // of a scatter; 0: the driver's placement
	devices  []*device
	pools    map[poolOf]bool // private pools that are in use
	blocks   []*Block        // by slot; nil where the request was refused
	waits    waits
	waiting  []waiting
	refused  int64
	calls    calls
	opening  int64 // see Options; 0 where it is over, or the settings are others than the recorded ones

	card   *accounting.Card   // nil, or one of the replay's
	others *accounting.Others // the replay's
	first  *accounting.Refusal
}

// device is a device of a job.
type device struct {
	*Allocator
	number int32
	memory memory
	room   *limited // with a card
	opening
	// see Outcome
	used, needed, spared int64
}

type poolOf struct {
	device int32
	id     PoolID
}

// device is the allocator of a device.
func (j *job) device(number int32) *device {
	for _, d := range j.devices {
		if d.number == number {
			return d
		}
	}
	total, known := j.totals[number]
	if !known {
		total = unknownTotal
	}
	d := &device{number: number, memory: j.memory(total)}
	if j.card != nil {
		total = j.card.Bytes
		d.room = &limited{memory: j.memory(endless), total: total, others: func() uint64 { return j.others.Bytes(number) }}
		d.memory = d.room
	}
	d.Allocator = NewAllocator(AllocatorOptions{Settings: j.settings, Version: j.version, Total: total}, d.memory)
	j.devices = append(j.devices, d)
	return d
}

// memory is a device that can have segments from before the first event.
type memory interface {
	Device
	adopt(addr, bytes uint64) bool // a segment; false: the device has no room for it, or another is there
}

// memory is a device without segments. The driver's has the spans of a CUDA context.
func (j *job) memory(total uint64) memory {
	if j.seed != 0 {
		return newScatter(total, j.seed)
	}
	const mib = 1 << 20
	driver := NewDriver(total)
	driver.Keep(24 * mib)
	driver.Keep(2 * mib)
	return driver
}

func (j *job) alloc(at place, slot int32, e *trace.Event) {
	for len(j.blocks) <= int(slot) {
		j.blocks = append(j.blocks, nil)
	}
	if e.Seq < j.opening {
		a := j.device(at.device)
		if j.blocks[slot] = a.place(a.Allocator, e, e.Provided); j.blocks[slot] != nil {
			j.count(a, false)
			return
		}
	}
	j.blocks[slot] = j.request(at, e)
}

// mapped takes a segment, or pages, of the recorded allocator: those from before the history are there if the card has room for them.
func (j *job) mapped(at place, e *trace.Event) {
	if e.Seq >= j.opening || at.expandable != j.settings.Expandable {
		return
	}
	a := j.device(at.device)
	defer j.open(a, at)()
	if at.expandable || a.memory.adopt(uint64(e.Addr), uint64(e.Provided)) {
		a.adopt(a.Allocator, at, e)
	}
}

// request is the block of a request; nil where it is refused.
func (j *job) request(at place, e *trace.Event) *Block {
	j.await()
	if e.Requested == 0 {
		return nil
	}
	a := j.device(at.device)
	defer j.open(a, at)()
	block, err := a.Malloc(uint64(e.Requested), at.stream)
	switch spared := j.card.Spares(e.Seq); {
	case err == nil:
		j.count(a, spared)
	case !spared || j.card.Strict:
		j.refuse(accounting.Refusal{Seq: e.Seq, Device: at.device, Bytes: e.Requested})
	}
	return block
}

// open sends requests to the private pool of a place, if it is of one, until the returned function is called.
func (j *job) open(a *device, at place) (end func()) {
	if at.pool == (PoolID{}) {
		return func() {}
	}
	pool := poolOf{at.device, at.pool}
	first := !j.pools[pool]
	j.pools[pool] = true
	return a.enter(at.pool, first)
}

func (j *job) use(at place, slot int32, stream uint64) {
	if b := j.blocks[slot]; b != nil && b.State() == Allocated {
		j.device(at.device).RecordStream(b, stream)
	}
}

// free takes a free, or the end of the wait for other streams. over says that the block is free now.
func (j *job) free(at place, slot int32, first, over bool) {
	b := j.blocks[slot]
	if b == nil {
		return
	}
	j.opening = 0 // the blocks before a history have no frees, where nobody edited it
	a := j.device(at.device)
	if first {
		a.Free(b)
	}
	switch {
	case j.waits == notAtAll:
		over = true
	case j.waits == long && over && !first:
		j.waiting = append(j.waiting, waiting{a.Allocator, b, longest})
		j.blocks[slot] = nil
		return
	}
	if over {
		a.Complete(b)
		j.blocks[slot] = nil
	}
}

// release ends the use of a private pool by its job.
func (j *job) release(at place) {
	pool := poolOf{at.device, at.pool}
	if !j.pools[pool] {
		return
	}
	delete(j.pools, pool)
	_ = j.device(at.device).ReleasePool(at.pool) // the pool exists
}
