package verify

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/tracetest/assert"
)

const (
	kib = 1 << 10
	mib = 1 << 20
	gib = 1 << 30
)

// job is what a process with the capture hook in it would have recorded.
type job struct {
	events []trace.Event
	texts  []string
	heaps  []*heap
	ended  int64 // iterations
	counts bool  // pages, once a request has failed
}

func newJob() *job { return &job{texts: []string{""}} }

func (j *job) add(e trace.Event) {
	e.Seq = int64(len(j.events))
	e.Time = e.Seq * 1000
	j.events = append(j.events, e)
}

func (j *job) text(s string) int32 {
	j.texts = append(j.texts, s)
	return int32(len(j.texts) - 1)
}

// heap is an arena of a job: an allocator over a modelled device, whose calls are recorded.
type heap struct {
	*bfc.Device
	job      *job
	id       int32
	stream   int64
	a        *bfc.Allocator
	physical uint64
	collects bool
	trims    bool
	missing  map[uint64]bool // pages that are unmapped
	pending  map[uint64]bool // blocks whose free waits for other streams
	trimming bool            // what it does is for no request
}

func (j *job) heap(t testing.TB, options bfc.Options, device bfc.DeviceOptions) *heap {
	t.Helper()
	device.Base = uint64(len(j.heaps)+1) << 42
	h := &heap{Device: bfc.NewDevice(device), job: j, id: int32(len(j.heaps)), stream: int64(7 * len(j.heaps)),
		physical: device.Physical, collects: options.GarbageCollection, trims: options.Trim.When != bfc.TrimNever, missing: map[uint64]bool{}, pending: map[uint64]bool{}}
	a, err := bfc.New(options, h)
	assert.NoError(t, err)
	h.a = a
	j.heaps = append(j.heaps, h)
	bit := map[bool]int{true: 1}
	h.add(trace.Event{Kind: trace.KindArena, Addr: int64(device.Base), Requested: int64(options.Limit), Provided: int64(device.Reservation),
		Context: j.text(fmt.Sprintf("%s fraction=%v gc=%d granularity=%d coalesces=%d pool=0 tag= main=%d",
			options.Fields(), options.FragmentationFraction, bit[options.GarbageCollection],
			h.Granularity(), bit[device.VMM], bit[h.id == 0 && isMain(options)]))})
	return h
}

// isMain says whether a main arena has such options: those of a preset.
func isMain(o bfc.Options) bool {
	main := bfc.Policy{Preset: o.Preset()}.ForArena(bfc.Arena{Granularity: 2 * mib})
	return o.Growth == main.Growth && o.Split == main.Split
}

func (h *heap) add(e trace.Event) {
	e.Arena = h.id
	if e.Kind != trace.KindStreamUse {
		e.Stream = h.stream
	}
	h.job.add(e)
}

func (h *heap) Free() uint64 {
	free := min(h.Device.Free(), h.physical)
	h.add(trace.Event{Kind: trace.KindDeviceUsed, Requested: int64(h.physical), Provided: int64(h.physical - free)})
	return free
}

func (h *heap) Grow(bytes uint64) (addr, granted uint64, ok bool) {
	addr, granted, ok = h.Device.Grow(bytes)
	if ok {
		h.add(trace.Event{Kind: trace.KindMap, Addr: int64(addr), Requested: int64(bytes), Provided: int64(granted)})
	} else {
		h.add(trace.Event{Kind: trace.KindGrowFailed, Requested: int64(bytes)})
	}
	return addr, granted, ok
}

func (h *heap) Map(addr, bytes uint64) bool {
	e := trace.Event{Kind: trace.KindMapFailed, Addr: int64(addr), Requested: int64(bytes)}
	ok := h.Device.Map(addr, bytes)
	if ok {
		e.Kind, e.Provided = trace.KindMap, int64(bytes)
		h.mark(addr, bytes, false)
	}
	if h.trimming {
		e.Requested = 0
	}
	if ok || !h.trimming { // what the source of the memory cannot map is no event
		h.add(e)
	}
	return ok
}

func (h *heap) Unmap(addr, bytes uint64) {
	h.Device.Unmap(addr, bytes)
	h.mark(addr, bytes, true)
	h.add(trace.Event{Kind: trace.KindUnmap, Addr: int64(addr), Provided: int64(bytes)})
}

func (h *heap) TryUnmap(addr, bytes uint64) bool {
	if !h.Device.TryUnmap(addr, bytes) {
		return false
	}
	h.mark(addr, bytes, true)
	e := trace.Event{Kind: trace.KindUnmap, Addr: int64(addr), Requested: int64(bytes), Provided: int64(bytes)}
	if h.trimming {
		e.Requested = 0
	}
	h.add(e)
	return true
}

func (h *heap) mark(addr, bytes uint64, missing bool) {
	for g := addr; g < addr+bytes; g += h.Granularity() {
		if missing {
			h.missing[g] = true
		} else {
			delete(h.missing, g)
		}
	}
}

// Release records what is still mapped of a region, range by range.
func (h *heap) Release(addr, bytes uint64) {
	h.Device.Release(addr, bytes)
	from := addr
	unmapTo := func(to uint64) {
		if to > from {
			h.add(trace.Event{Kind: trace.KindUnmap, Addr: int64(from), Provided: int64(to - from)})
		}
	}
	for _, g := range slices.Sorted(maps.Keys(h.missing)) {
		if g >= addr && g < addr+bytes {
			unmapTo(g)
			from = g + h.Granularity()
			delete(h.missing, g)
		}
	}
	unmapTo(addr + bytes)
}

// alloc is a request; one that fails is tried again after reclaim. It returns 0 for none.
func (h *heap) alloc(size uint64) uint64 {
	for attempt := range 2 {
		if b, ok := h.a.Alloc(size); ok {
			h.add(trace.Event{Kind: trace.KindAlloc, Addr: int64(b.Addr), Requested: int64(size), Provided: int64(b.Size)})
			return b.Addr
		}
		if attempt == 0 {
			h.add(trace.Event{Kind: trace.KindReclaim, Requested: int64(size)})
			for _, other := range h.job.heaps {
				if h.job.counts {
					other.shortage()
				}
				other.unmapFree(1)
			}
		}
	}
	h.add(trace.Event{Kind: trace.KindOOM, Requested: int64(size)})
	return 0
}

// shortage says that the device is short of memory, and frees the slack of live blocks.
func (h *heap) shortage() {
	if !h.a.InShortage() {
		h.a.Shortage()
		h.add(trace.Event{Kind: trace.KindShortage})
	}
	for _, r := range h.a.Regions() {
		for _, c := range r.Chunks {
			addr := r.Addr + c.Offset
			if c.Free() || h.pending[addr] {
				continue
			}
			if _, err := h.a.Shrink(addr); err == nil {
				h.event(trace.KindShrink, addr)
			}
		}
	}
}

// unmapFree unmaps every third of the first free pages, from the n-th on, unless
// the arena collects garbage instead.
func (h *heap) unmapFree(n int) {
	if h.collects {
		return
	}
	step := h.Granularity()
	last := n - 30
	for _, r := range h.a.Regions() {
		for _, c := range r.Chunks {
			from := (r.Addr + c.Offset + step - 1) &^ (step - 1)
			for ; c.Free() && n > last && from+step <= r.Addr+c.Offset+c.Size; from += step {
				if n--; n%3 == 0 && h.a.Unmap(from, step) == nil {
					h.Unmap(from, step)
				}
			}
		}
	}
}

// iterate ends an iteration of all heaps, and trims them.
func (j *job) iterate() {
	j.add(trace.Event{Kind: trace.KindIteration, Arena: trace.NoArena, Device: trace.NoDevice, Requested: j.ended})
	j.ended++
	for _, h := range j.heaps {
		h.a.EndIteration()
		h.trim()
	}
}

// trim unmaps what it should now, unless the arena collects garbage.
func (h *heap) trim() {
	if h.collects {
		return
	}
	h.trimming = true
	h.a.Trim()
	h.trimming = false
}

func (h *heap) event(kind trace.Kind, addr uint64) {
	b, ok := h.a.Find(addr)
	if !ok {
		panic("no such block")
	}
	h.add(trace.Event{Kind: kind, Addr: int64(addr), Requested: int64(b.Requested), Provided: int64(b.Size)})
}

func (h *heap) use(addr uint64, stream int64) {
	h.add(trace.Event{Kind: trace.KindStreamUse, Addr: int64(addr), Stream: stream})
}

func (h *heap) free(addr uint64) {
	h.event(trace.KindFree, addr)
	h.a.Free(addr)
}

// freeLater is a free that waits for other streams; done ends the waiting.
func (h *heap) freeLater(addr uint64) {
	h.event(trace.KindFree, addr)
	h.pending[addr] = true
}

func (h *heap) done(addr uint64) {
	h.event(trace.KindFreeDone, addr)
	delete(h.pending, addr)
	h.a.Free(addr)
}

// churn allocates and frees at random until the job has n more events.
func (h *heap) churn(r *rand.Rand, n int, most uint64) {
	var live, pending []uint64
	take := func(from *[]uint64) uint64 {
		i := r.IntN(len(*from))
		addr := (*from)[i]
		(*from)[i] = (*from)[len(*from)-1]
		*from = (*from)[:len(*from)-1]
		return addr
	}
	for end := len(h.job.events) + n; len(h.job.events) < end; {
		switch x := r.IntN(100); {
		case x < 50 && len(live) < 200:
			if addr := h.alloc(1 + r.Uint64N(most)); addr != 0 {
				live = append(live, addr)
			}
		case x < 54 && len(live) > 0:
			addr := take(&live)
			h.use(addr, h.stream) // its own: changes nothing
			h.use(addr, h.stream+1)
			h.freeLater(addr)
			pending = append(pending, addr)
		case x < 58 && len(pending) > 0:
			h.done(take(&pending))
		case x < 60:
			if h.trims || r.IntN(2) == 0 {
				h.job.add(trace.Event{Kind: trace.KindReclaim, Arena: trace.NoArena})
			}
			h.unmapFree(r.IntN(3))
		case x < 62:
			h.job.iterate()
		case h.trims && x < 64: // late, while the next iteration goes on
			h.trim()
		case len(live) > 0:
			h.free(take(&live))
		}
	}
	for len(live) > 0 {
		h.free(take(&live))
	}
	for len(pending) > 0 {
		h.done(take(&pending))
	}
}

// repeat has n iterations of the same requests, of which one in a hundred is left out. A block is
// freed within 20 requests, which may be in the next iteration.
func (h *heap) repeat(r *rand.Rand, n int, most uint64) {
	sizes, lives := make([]uint64, 25), make([]int, 25)
	for i := range sizes {
		sizes[i], lives[i] = 1+r.Uint64N(most), 1+r.IntN(20)
	}
	due := map[int][]uint64{} // what is freed at which request
	at := 0
	for range n {
		for i, size := range sizes {
			for _, addr := range due[at] {
				h.free(addr)
			}
			delete(due, at)
			if r.IntN(100) > 0 {
				if addr := h.alloc(size); addr != 0 {
					due[at+lives[i]] = append(due[at+lives[i]], addr)
				}
			}
			at++
		}
		h.job.iterate()
	}
	for _, at := range slices.Sorted(maps.Keys(due)) {
		for _, addr := range due[at] {
			h.free(addr)
		}
	}
}
