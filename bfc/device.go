package bfc

import "math"

// DeviceOptions describe a model of a device. The zero value is a device without end that
// gives each grant a place of its own.
type DeviceOptions struct {
	// VMM makes it a device with virtual memory management: grants lie one behind the
	// other in a reservation of addresses and coalesce. Without it each grant lies apart,
	// at a greater address than those before.
	VMM bool
	// Granularity is the unit of grants in bytes: a power of two of at least Granule, and
	// 0 for Granule.
	Granularity uint64
	// Physical is what the device has, in bytes; 0 for no end.
	Physical uint64
	// Base is the address of the first grant, a multiple of Granularity; 0 for a default.
	Base uint64
	// Reservation is how many bytes of addresses are reserved at a time with VMM, after
	// which a grant begins a new reservation apart; 0 for no end.
	Reservation uint64
	// RefuseGrow, if it is set, is asked at each growth, counted from 1, and refuses it by
	// returning true; RefuseMap likewise at each Map.
	RefuseGrow func(call int, bytes uint64) bool
	RefuseMap  func(call int, addr, bytes uint64) bool
	// RefuseUnmap is asked likewise at each Take.
	RefuseUnmap func(call int, addr, bytes uint64) bool
}

// Device is a Memory that models a device: it has addresses, but nothing behind them.
type Device struct {
	options  DeviceOptions
	next     uint64 // where the next grant goes
	end      uint64 // of the addresses reserved there
	used     uint64 // physical bytes
	unmapped rangeSet
	grows    int
	maps     int
	takes    int
}

var _ Memory = (*Device)(nil)

const (
	defaultBase = 1 << 40
	// apart is the least distance of grants and reservations that are not to be adjacent.
	apart = 2 << 20
)

// NewDevice returns a device of which nothing is used.
func NewDevice(options DeviceOptions) *Device {
	options.Granularity = max(options.Granularity, Granule)
	if options.Base == 0 {
		options.Base = roundUp(defaultBase, options.Granularity)
	}
	return &Device{options: options, next: options.Base, end: options.Base}
}

// Granularity is the unit of grants in bytes.
func (d *Device) Granularity() uint64 { return d.options.Granularity }

// Coalesces says whether grants are adjacent.
func (d *Device) Coalesces() bool { return d.options.VMM }

// Grow grants bytes rounded up to the granularity. It refuses when told to, when the
// device or its addresses are used up, and for 0 bytes.
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

// reserve sees to it that the next bytes of addresses are reserved, in a new place if they
// would not fit where the last grant was. It is false when there are no addresses left.
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
	last := -d.options.Granularity // the last address of a whole granule
	if base > last || bytes > last-base {
		return false
	}
	d.next = base
	d.end = base + d.reservation(bytes, last-base)
	return true
}

// reservation is how many addresses to reserve for a grant of bytes, with left of them left.
func (d *Device) reservation(bytes, left uint64) uint64 {
	switch {
	case !d.options.VMM:
		return bytes
	case d.options.Reservation == 0:
		return left
	}
	return min(left, max(bytes, roundUp(d.options.Reservation, d.options.Granularity)))
}

// Release takes a region back. The addresses at the end of a reservation are used again;
// those before remain a hole.
func (d *Device) Release(addr, bytes uint64) {
	end := addr + bytes
	d.used -= bytes - d.unmapped.within(addr, end)
	d.unmapped.remove(byteRange{addr, end})
	if d.options.VMM && end == d.next {
		d.next = addr
	}
}

// Map backs granules again that were unmapped. It refuses when told to, and when the
// device is used up.
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

// Take takes physical memory back. It refuses when told to.
func (d *Device) TryUnmap(addr, bytes uint64) bool {
	d.takes++
	if d.options.RefuseUnmap != nil && d.options.RefuseUnmap(d.takes, addr, bytes) {
		return false
	}
	d.Unmap(addr, bytes)
	return true
}

// Unmap gives physical memory back; whoever calls it on their own account tells the
// Allocator.
func (d *Device) Unmap(addr, bytes uint64) {
	d.used -= bytes
	d.unmapped.add(byteRange{addr, addr + bytes})
}

// Free is the physical memory nobody has, in bytes.
func (d *Device) Free() uint64 {
	if d.options.Physical == 0 {
		return math.MaxUint64
	}
	return d.options.Physical - d.used
}
