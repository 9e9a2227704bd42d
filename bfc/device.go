package bfc

import "math"

// DeviceOptions describe a model of a device. The zero value is a device with unlimited memory,
// whose grants are not adjacent.
type DeviceOptions struct {
	// VMM makes it a device with virtual memory management: grants are adjacent within an address
	// reservation, and coalesce. Without it they are not adjacent, and each has a higher address
	// than those before.
	VMM bool
	// Granularity is the size of a page in bytes: a power of two of at least Granule; 0 for
	// Granule.
	Granularity uint64
	// Physical is the device's memory in bytes; 0: unlimited.
	Physical uint64
	// Base is the address of the first grant, a multiple of Granularity; 0 for a default.
	Base uint64
	// Reservation is how many bytes of addresses are reserved at a time with VMM. A grant that
	// does not fit begins a new reservation, not adjacent to the last; 0: one for all addresses.
	Reservation uint64
	// RefuseGrow, if set, is called at each Grow with its number, from 1. If it returns true, Grow
	// refuses. RefuseMap and RefuseUnmap do the same for Map and TryUnmap.
	RefuseGrow  func(call int, bytes uint64) bool
	RefuseMap   func(call int, addr, bytes uint64) bool
	RefuseUnmap func(call int, addr, bytes uint64) bool
}

// Device is a Memory that models a device: it counts bytes, and has no memory.
type Device struct {
	options  DeviceOptions
	next     uint64 // where the next grant goes
	end      uint64 // of the addresses reserved there
	used     uint64 // bytes mapped
	unmapped rangeSet
	grows    int
	maps     int
	unmaps   int // calls of TryUnmap
}

var _ Memory = (*Device)(nil)

const (
	defaultBase = 1 << 40
	// apart is the smallest distance in bytes of grants or reservations that are not adjacent.
	apart = 2 << 20
)

// NewDevice returns a device of which nothing is mapped.
func NewDevice(options DeviceOptions) *Device {
	options.Granularity = max(options.Granularity, Granule)
	if options.Base == 0 {
		options.Base = roundUp(defaultBase, options.Granularity)
	}
	return &Device{options: options, next: options.Base, end: options.Base}
}

// Granularity returns the size of a page in bytes.
func (d *Device) Granularity() uint64 { return d.options.Granularity }

// Coalesces says whether grants are adjacent.
func (d *Device) Coalesces() bool { return d.options.VMM }

// Grow maps bytes, rounded up to whole pages. It refuses where RefuseGrow does, where memory or
// addresses are short, and for 0 bytes.
func (d *Device) Grow(bytes uint64) (addr, granted uint64, ok bool) {
	d.grows++
	if d.options.RefuseGrow != nil && d.options.RefuseGrow(d.grows, bytes) {
		return 0, 0, false
	}
	granted = roundUp(bytes, d.options.Granularity)
	if granted == 0 || granted < bytes || granted > d.Free() || !d.reserve(granted) {
		return 0, 0, false
	}
	addr = d.next
	d.next += granted
	d.used += granted
	return addr, granted, true
}

// Adjoins says whether a grant of bytes fits into the last reservation.
func (d *Device) Adjoins(bytes uint64) bool {
	return roundUp(bytes, d.options.Granularity) <= d.end-d.next
}

// reserve makes sure that bytes of addresses are reserved from d.next on, in a new reservation if they
// do not fit into the last one. It returns false where no addresses are left.
func (d *Device) reserve(bytes uint64) bool {
	if bytes <= d.end-d.next {
		return true
	}
	base := d.end
	if base != d.options.Base { // not the first: keep away from the one before
		unit := max(apart, d.options.Granularity)
		base = roundUp(base, unit)
		if base > math.MaxUint64-unit {
			return false
		}
		base += unit
	}
	last := -d.options.Granularity // the address of the last page
	if base > last || bytes > last-base {
		return false
	}
	d.next = base
	d.end = base + d.reservation(bytes, last-base)
	return true
}

// reservation returns how many bytes of addresses to reserve for a grant, where left bytes of addresses
// remain.
func (d *Device) reservation(bytes, left uint64) uint64 {
	switch {
	case !d.options.VMM:
		return bytes
	case d.options.Reservation == 0:
		return left
	}
	return min(left, max(bytes, roundUp(d.options.Reservation, d.options.Granularity)))
}

// Release unmaps a region. Addresses at the end of the reservation are granted again, others are
// not.
func (d *Device) Release(addr, bytes uint64) {
	end := addr + bytes
	d.used -= bytes - d.unmapped.within(addr, end)
	d.unmapped.remove(byteRange{addr, end})
	if d.options.VMM && end == d.next {
		d.next = addr
	}
}

// Map maps pages that were unmapped. It refuses where RefuseMap does, and where memory is short.
func (d *Device) Map(addr, bytes uint64) bool {
	d.maps++
	if d.options.RefuseMap != nil && d.options.RefuseMap(d.maps, addr, bytes) {
		return false
	}
	if bytes > d.Free() {
		return false
	}
	d.used += bytes
	d.unmapped.remove(byteRange{addr, addr + bytes})
	return true
}

// TryUnmap unmaps pages. It refuses where RefuseUnmap does.
func (d *Device) TryUnmap(addr, bytes uint64) bool {
	d.unmaps++
	if d.options.RefuseUnmap != nil && d.options.RefuseUnmap(d.unmaps, addr, bytes) {
		return false
	}
	d.Unmap(addr, bytes)
	return true
}

// Unmap unmaps pages. A caller other than the Allocator has to call Allocator.Unmap as well.
func (d *Device) Unmap(addr, bytes uint64) {
	d.used -= bytes
	d.unmapped.add(byteRange{addr, addr + bytes})
}

// Free returns how many bytes of the device are not mapped.
func (d *Device) Free() uint64 {
	if d.options.Physical == 0 {
		return math.MaxUint64
	}
	return d.options.Physical - d.used
}
