package tune

import "time"

// Costs are what driver calls cost on one handle, and how large a handle is.
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

// calls are what was asked of the driver.
type calls struct {
	grows, remaps, gives    int64 // ranges: new ones, those that had been given back, those given back
	mapHandles, giveHandles int64
	waits                   int64 // requests that waited for the device
}

func (c *calls) add(d calls) {
	c.grows += d.grows
	c.remaps += d.remaps
	c.gives += d.gives
	c.mapHandles += d.mapHandles
	c.giveHandles += d.giveHandles
	c.waits += d.waits
}

// handles is how many handles back so many bytes.
func (c *Costs) handles(bytes uint64) int64 { return int64((bytes + c.Handle - 1) / c.Handle) }

// of is what calls take.
func (c *Costs) of(d calls) time.Duration {
	return time.Duration(d.mapHandles)*(c.Create+c.Map+c.Access) + time.Duration(d.giveHandles)*(c.Unmap+c.Release)
}
