// Package modeltest drives the allocators of package bfc over model devices and records the events that the hook
// would record. With it, tests of code that reads traces need no process to record.
package modeltest

import (
	"fmt"
	"io"

	"github.com/memprof/memprof/bfc"
	"github.com/memprof/memprof/trace"
	"github.com/memprof/memprof/trace/dataset"
)

// Recorder is the recording of a simulated process.
type Recorder struct {
	Events  []trace.Event
	Strings *dataset.Strings
	Stream  int64 // of the events to come
	arenas  int32
}

// New returns a Recorder without events.
func New() *Recorder { return &Recorder{Strings: dataset.NewStrings()} }

// Add records an event and sets its seq, time, thread and stream.
func (r *Recorder) Add(e trace.Event) {
	e.Seq = int64(len(r.Events))
	e.Time = 1000 * e.Seq
	e.Thread = 1
	e.Stream = r.Stream
	r.Events = append(r.Events, e)
}

// Mark records the end of an iteration.
func (r *Recorder) Mark(number int64) {
	r.Add(trace.Event{Kind: trace.KindIteration, Device: trace.NoDevice, Arena: trace.NoArena, Requested: number})
}

// Arena is one allocator of a Recorder.
type Arena struct {
	ID     int32
	Device *bfc.Device
	BFC    *bfc.Allocator

	r         *Recorder
	device    int32
	reclaim   func(size uint64) bool
	requested map[uint64]uint64
	unmapped  map[uint64]bool // by the address of a page
}

// NewArena creates an allocator on a device and records it. If reclaim is not nil, a failed request is recorded and
// reclaim is called; if it returns true, the request is repeated.
func (r *Recorder) NewArena(device int32, options bfc.Options, memory *bfc.Device, reclaim func(size uint64) bool) (*Arena, error) {
	a := &Arena{ID: r.arenas, Device: memory, r: r, device: device, reclaim: reclaim, requested: map[uint64]uint64{}, unmapped: map[uint64]bool{}}
	var err error
	if a.BFC, err = bfc.New(options, (*memoryOf)(a)); err != nil {
		return nil, err
	}
	r.arenas++
	main := bfc.Policy{Preset: options.Preset()}.ForArena(bfc.Arena{Granularity: memory.Granularity()}) // other arenas than main ones can be drawn, too
	text := fmt.Sprintf("%s fraction=%v gc=%d granularity=%d coalesces=%d pool=0 tag= main=%d",
		options.Fields(), options.FragmentationFraction, digit(options.GarbageCollection), memory.Granularity(), digit(memory.Coalesces()),
		digit(options.Growth == main.Growth && options.Split == main.Split))
	a.add(trace.Event{Kind: trace.KindArena, Requested: int64(options.Limit), Context: r.Strings.Intern(text)})
	return a, nil
}

func digit(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (a *Arena) add(e trace.Event) {
	e.Device, e.Arena = a.device, a.ID
	a.r.Add(e)
}

// Alloc requests size bytes.
func (a *Arena) Alloc(size uint64, context string) (addr uint64, ok bool) {
	id := a.r.Strings.Intern(context)
	for {
		b, ok := a.BFC.Alloc(size)
		if ok {
			a.requested[b.Addr] = size
			a.add(trace.Event{Kind: trace.KindAlloc, Addr: int64(b.Addr), Requested: int64(size), Provided: int64(b.Size), Context: id})
			return b.Addr, true
		}
		if a.reclaim == nil {
			break
		}
		a.add(trace.Event{Kind: trace.KindReclaim, Requested: int64(size)})
		if !a.reclaim(size) {
			break
		}
	}
	a.add(trace.Event{Kind: trace.KindOOM, Requested: int64(size), Context: id})
	return 0, false
}

// Shortage has the allocator count pages, since its device is short of memory, and records that the first time.
func (a *Arena) Shortage() {
	if !a.BFC.InShortage() {
		a.BFC.Shortage()
		a.add(trace.Event{Kind: trace.KindShortage})
	}
}

// Shrink frees the slack of a block. ok is false if it has none.
func (a *Arena) Shrink(addr uint64) (ok bool) {
	b, err := a.BFC.Shrink(addr)
	if err == nil {
		a.add(trace.Event{Kind: trace.KindShrink, Addr: int64(addr), Requested: int64(b.Requested), Provided: int64(b.Size)})
	}
	return err == nil
}

// Use records that a block is used on another stream.
func (a *Arena) Use(addr uint64, stream int64) {
	saved := a.r.Stream
	a.r.Stream = stream
	a.add(trace.Event{Kind: trace.KindStreamUse, Addr: int64(addr)})
	a.r.Stream = saved
}

// Free frees a block. If pending is true, another stream may still use it: FreeDone completes the free.
func (a *Arena) Free(addr uint64, pending bool) {
	a.free(trace.KindFree, addr)
	if !pending {
		a.release(addr)
	}
}

// FreeDone completes a pending Free.
func (a *Arena) FreeDone(addr uint64) {
	a.free(trace.KindFreeDone, addr)
	a.release(addr)
}

func (a *Arena) free(kind trace.Kind, addr uint64) {
	b, _ := a.BFC.Find(addr)
	a.add(trace.Event{Kind: kind, Addr: int64(addr), Requested: int64(a.requested[addr]), Provided: int64(b.Size)})
}

func (a *Arena) release(addr uint64) {
	delete(a.requested, addr)
	if _, err := a.BFC.Free(addr); err != nil {
		panic(err)
	}
}

// Unmap unmaps the pages in [addr, addr+bytes) if they are mapped and free.
func (a *Arena) Unmap(addr, bytes uint64) bool {
	if a.BFC.Unmap(addr, bytes) != nil {
		return false
	}
	(*memoryOf)(a).Unmap(addr, bytes)
	return true
}

// Trim unmaps free pages, one by one, until at least bytes are unmapped, and returns the bytes.
func (a *Arena) Trim(bytes uint64) uint64 {
	done, unit := uint64(0), a.Device.Granularity()
	for _, r := range a.BFC.Regions() {
		for at := (r.Addr + unit - 1) &^ (unit - 1); at+unit <= r.Addr+r.Size && done < bytes; at += unit {
			if a.Unmap(at, unit) {
				done += unit
			}
		}
	}
	return done
}

// memoryOf is the memory of an Arena: it calls the device and records each call.
type memoryOf Arena

func (m *memoryOf) add(e trace.Event)         { (*Arena)(m).add(e) }
func (m *memoryOf) Granularity() uint64       { return m.Device.Granularity() }
func (m *memoryOf) Coalesces() bool           { return m.Device.Coalesces() }
func (m *memoryOf) Adjoins(bytes uint64) bool { return m.Device.Adjoins(bytes) }

func (m *memoryOf) Grow(bytes uint64) (addr, granted uint64, ok bool) {
	if addr, granted, ok = m.Device.Grow(bytes); !ok {
		m.add(trace.Event{Kind: trace.KindGrowFailed, Requested: int64(bytes)})
		return
	}
	m.add(trace.Event{Kind: trace.KindMap, Addr: int64(addr), Requested: int64(bytes), Provided: int64(granted)})
	return
}

func (m *memoryOf) Map(addr, bytes uint64) bool {
	if !m.Device.Map(addr, bytes) {
		m.add(trace.Event{Kind: trace.KindMapFailed, Addr: int64(addr), Requested: int64(bytes)})
		return false
	}
	m.put(addr, bytes)
	m.add(trace.Event{Kind: trace.KindMap, Addr: int64(addr), Requested: int64(bytes), Provided: int64(bytes)})
	return true
}

func (m *memoryOf) Unmap(addr, bytes uint64) {
	m.Device.Unmap(addr, bytes)
	m.recordUnmap(addr, bytes, 0)
}

func (m *memoryOf) TryUnmap(addr, bytes uint64) bool {
	if !m.Device.TryUnmap(addr, bytes) {
		return false
	}
	m.recordUnmap(addr, bytes, int64(bytes))
	return true
}

// recordUnmap records that the mapped pages of a range are unmapped.
func (m *memoryOf) recordUnmap(addr, bytes uint64, requested int64) {
	unit := m.Device.Granularity()
	for at := addr; at < addr+bytes; {
		from := at
		for ; at < addr+bytes && !m.unmapped[at]; at += unit {
			m.unmapped[at] = true
		}
		if at > from {
			m.add(trace.Event{Kind: trace.KindUnmap, Addr: int64(from), Requested: requested, Provided: int64(at - from)})
		}
		at += unit
	}
}

func (m *memoryOf) put(addr, bytes uint64) {
	for at := addr; at < addr+bytes; at += m.Device.Granularity() {
		delete(m.unmapped, at)
	}
}

func (m *memoryOf) Release(addr, bytes uint64) {
	m.Device.Release(addr, bytes)
	m.recordUnmap(addr, bytes, 0)
	m.put(addr, bytes)
}

// deviceTotal is the memory of an unlimited device, in bytes.
const deviceTotal = 1 << 50

func (m *memoryOf) Free() uint64 {
	free := min(m.Device.Free(), deviceTotal)
	m.add(trace.Event{Kind: trace.KindDeviceUsed, Requested: deviceTotal, Provided: int64(deviceTotal - free)})
	return free
}

// Source returns events in batches of n, as dataset.Reader does.
func Source(events []trace.Event, n int) *Batches { return &Batches{events: events, n: n} }

// Batches is a source of events.
type Batches struct {
	events []trace.Event
	n      int
	batch  trace.Batch
}

// Next returns the next batch, or io.EOF.
func (s *Batches) Next() (*trace.Batch, error) {
	if len(s.events) == 0 {
		return nil, io.EOF
	}
	n := min(s.n, len(s.events))
	b := &s.batch
	b.Head(0)
	for i := range n {
		b.Append(&s.events[i])
	}
	s.events = s.events[n:]
	return b, nil
}

func (s *Batches) Close() error { return nil }
