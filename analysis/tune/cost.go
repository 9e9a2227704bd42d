package tune

import "time"

// Costs are the time of driver calls on one handle, and the size of a handle.
type Costs struct {
	Handle  uint64 // bytes; positive
	Create  time.Duration
	Map     time.Duration
	Access  time.Duration
	Unmap   time.Duration
	Release time.Duration
}

// DefaultCosts were measured on an H200.
func DefaultCosts() Costs {
	return Costs{
		Handle: 2 << 20, Create: 7 * time.Microsecond, Map: 600 * time.Nanosecond, Access: 19 * time.Microsecond,
		Unmap: 13 * time.Microsecond, Release: 9 * time.Microsecond,
	}
}

// calls counts driver calls.
type calls struct {
	grows, remaps, unmaps    int64 // ranges that were granted, mapped again, unmapped
	mapHandles, unmapHandles int64
	movedHandles             int64 // handles that were mapped at another address, their old mapping staying
	oldMappings              int64 // old mappings that were unmapped, since the address got another handle
	waits                    int64 // requests that waited for the device
	eventWaits               int64 // requests that waited for an event, if it was not over
}

func (c *calls) add(d calls) {
	c.grows += d.grows
	c.remaps += d.remaps
	c.unmaps += d.unmaps
	c.mapHandles += d.mapHandles
	c.unmapHandles += d.unmapHandles
	c.movedHandles += d.movedHandles
	c.oldMappings += d.oldMappings
	c.waits += d.waits
	c.eventWaits += d.eventWaits
}

// Calls are driver calls, one for each handle: means over iterations.
type Calls struct {
	Create, Map, Access, Unmap, Release float64
}

// Sum returns all of them.
func (c *Calls) Sum() float64 { return c.Create + c.Map + c.Access + c.Unmap + c.Release }

// each returns the driver calls of one of n iterations.
func (c *calls) each(n float64) Calls {
	mapped := float64(c.mapHandles+c.movedHandles) / n
	return Calls{
		Create: float64(c.mapHandles) / n, Map: mapped, Access: mapped,
		Unmap: float64(c.unmapHandles+c.oldMappings) / n, Release: float64(c.unmapHandles) / n,
	}
}

// handles returns how many handles so many bytes have.
func (c *Costs) handles(bytes uint64) int64 { return int64((bytes + c.Handle - 1) / c.Handle) }

// of returns the time that calls take.
func (c *Costs) of(d calls) time.Duration {
	return time.Duration(d.mapHandles)*(c.Create+c.Map+c.Access) + time.Duration(d.unmapHandles)*(c.Unmap+c.Release) +
		time.Duration(d.movedHandles)*(c.Map+c.Access) + time.Duration(d.oldMappings)*c.Unmap
}
