package torchalloc

import (
	"cmp"
	"slices"
)

// Driver is a Device that has so many bytes and places segments as cudaMalloc does on an H200
// with driver 580.159.04, read off its answers to 3,074 requests of 2 to 120 MiB, which it
// reproduces. Where equal free blocks tie, torch takes the lowest address, so a prediction can
// depend on it.
//
//   - A segment lies in a span: addresses for its size, rounded up to 32 MiB. The rest of a span
//     serves later segments.
//   - The newest span that has a gap for a segment serves it, from its smallest gap, the lowest
//     of equal ones.
//   - A new span lies at the upper end of the highest gap that is larger than it.
//   - A span ends with its last segment.
//   - Without such a gap a segment is refused: the addresses do not suffice.
//
// Reservations lie one behind the other from 0x302000000 on, at multiples of 32 MiB.
type Driver struct {
	room  uint64  // bytes that are free
	spans []*span // in the order of their making
	next  uint64  // reservation
}

var _ Device = (*Driver)(nil)

// span is a range of addresses that segments share.
type span struct {
	addr, size uint64
	kept       bool     // it stays without segments: the driver's own
	segments   []extent // by address
}

type extent struct{ addr, size uint64 }

func (e extent) end() uint64 { return e.addr + e.size }

const (
	spanUnit         = 32 * mib
	spansEnd         = 0x7f0000000000 // new spans lie below it
	firstReservation = 0x302000000
)

// NewDriver makes a device with so many bytes of memory.
func NewDriver(bytes uint64) *Driver { return &Driver{room: bytes, next: firstReservation} }

// Keep adds a span that is there before the first segment and never goes, as the rest of what
// a CUDA context takes for itself: 24 MiB and 2 MiB where it was looked at.
func (d *Driver) Keep(bytes uint64) {
	if addr, ok := d.place(bytes); ok {
		d.spans = append(d.spans, &span{addr: addr, size: bytes, kept: true})
	}
}

func (d *Driver) take(bytes uint64) bool {
	if bytes > d.room {
		return false
	}
	d.room -= bytes
	return true
}

// Alloc places a segment.
func (d *Driver) Alloc(bytes uint64) (addr uint64, ok bool) {
	if bytes > d.room {
		return 0, false
	}
	for _, s := range slices.Backward(d.spans) {
		if gap, found := s.gap(bytes); found {
			s.insert(extent{gap.addr, bytes})
			return gap.addr, d.take(bytes)
		}
	}
	size := roundUp(bytes, spanUnit)
	if addr, ok = d.place(size); !ok {
		return 0, false
	}
	s := &span{addr: addr, size: size}
	s.insert(extent{addr, bytes})
	d.spans = append(d.spans, s)
	return addr, d.take(bytes)
}

// adopt has a segment at an address, in a span of its own. Kept spans without segments make way for it.
func (d *Driver) adopt(addr, bytes uint64) bool {
	meets := func(s *span) bool { return addr < s.addr+s.size && s.addr < addr+bytes }
	if slices.ContainsFunc(d.spans, func(s *span) bool { return meets(s) && len(s.segments) > 0 }) || !d.take(bytes) {
		return false
	}
	d.spans = append(slices.DeleteFunc(d.spans, meets), &span{addr: addr, size: bytes, segments: []extent{{addr, bytes}}})
	return true
}

// gap returns the smallest gap of at least bytes, the lowest of equal ones.
func (s *span) gap(bytes uint64) (best extent, found bool) {
	at := s.addr
	for i := 0; i <= len(s.segments); i++ {
		end := s.addr + s.size
		if i < len(s.segments) {
			end = s.segments[i].addr
		}
		if size := end - at; size >= bytes && (!found || size < best.size) {
			best, found = extent{at, size}, true
		}
		if i < len(s.segments) {
			at = s.segments[i].end()
		}
	}
	return best, found
}

func (s *span) insert(e extent) {
	at, _ := slices.BinarySearchFunc(s.segments, e.addr, func(o extent, addr uint64) int { return cmp.Compare(o.addr, addr) })
	s.segments = slices.Insert(s.segments, at, e)
}

// place returns the address of a new span; ok is false where no gap is large enough.
func (d *Driver) place(size uint64) (addr uint64, ok bool) {
	spans := slices.Clone(d.spans)
	slices.SortFunc(spans, func(a, b *span) int { return cmp.Compare(b.addr, a.addr) })
	at := uint64(spansEnd)
	for _, s := range spans {
		if s.addr >= spansEnd {
			continue
		}
		if at-(s.addr+s.size) > size {
			break
		}
		at = s.addr
	}
	if at <= size {
		return 0, false
	}
	return at - size, true
}

// Free releases a segment, and its span with the last one.
func (d *Driver) Free(addr, bytes uint64) {
	d.room += bytes
	for i, s := range d.spans {
		at := slices.Index(s.segments, extent{addr, bytes})
		if at < 0 {
			continue
		}
		s.segments = slices.Delete(s.segments, at, at+1)
		if len(s.segments) == 0 && !s.kept {
			d.spans = slices.Delete(d.spans, i, i+1)
		}
		return
	}
}

// Reserve reserves the next addresses.
func (d *Driver) Reserve(bytes uint64) (addr uint64, ok bool) {
	addr = d.next
	d.next = roundUp(addr+bytes, spanUnit)
	return addr, true
}

// Unreserve does nothing: addresses are not reused.
func (d *Driver) Unreserve(addr, bytes uint64) {}

// Map uses memory for a part of a reservation.
func (d *Driver) Map(addr, bytes uint64) bool { return d.take(bytes) }

// Unmap frees that memory.
func (d *Driver) Unmap(addr, bytes uint64) { d.room += bytes }
